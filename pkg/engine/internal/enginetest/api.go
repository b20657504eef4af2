package enginetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func init() {
	// client-go's handlers of errors keep the time of the last one in a variable of the
	// process, and sleep by it. Each bubble of testing/synctest has a clock of its own.
	utilruntime.ErrorHandlers = nil //nolint:reassign // that is what it is there for
}

// kinds that an API serves, with the name of their resource.
var kinds = map[string]string{"Thing": "Thing", "Broker": "Broker", "Deployment": "Deployment", "Pod": "pods", "Zone": "Zone"}

// API is client-go's dynamic fake, with what that lacks of an API server: UIDs, resource versions,
// preconditions, finalizers and dry runs. It is also an http.RoundTripper for what the engine does
// not do through a dynamic client: lists and discovery.
type API struct {
	*fake.FakeDynamicClient
	Connection migration.Connection

	t      *testing.T
	mu     sync.Mutex
	number int
	faults []*Fault
	// broken is how many requests for discovery fail from now on, asked how many there were.
	broken, asked int
	// away are kinds that are not served.
	away map[string]bool
	// admit changes what is stored.
	admit func(*unstructured.Unstructured)
	// past are the writes so far.
	past []past
}

// past is one write: object is nil if it was deleted then.
type past struct {
	version int
	ref     migration.Ref
	object  *unstructured.Unstructured
}

// wrote keeps a write.
func (api *API) wrote(ref migration.Ref, object *unstructured.Unstructured) {
	api.past = append(api.past, past{api.number, ref, object})
}

// exactly answers a list with what there was at the version that it asks for.
func (api *API) exactly(a clienttesting.ListActionImpl) *unstructured.UnstructuredList {
	api.mu.Lock()
	defer api.mu.Unlock()
	at, err := strconv.Atoi(a.ListOptions.ResourceVersion)
	api.must(err)
	then := map[migration.Ref]*unstructured.Unstructured{}
	for _, w := range api.past {
		if w.version <= at {
			then[w.ref] = w.object
		}
	}
	list := &unstructured.UnstructuredList{}
	for ref, obj := range then {
		if obj != nil && ref.GroupVersionResource == a.GetResource() && ref.Namespace == a.GetNamespace() {
			list.Items = append(list.Items, *obj.DeepCopy())
		}
	}
	return list
}

// Admit makes the API store what f makes of an object that is created or patched, as a schema or a
// webhook does.
func (api *API) Admit(f func(*unstructured.Unstructured)) {
	api.mu.Lock()
	defer api.mu.Unlock()
	api.admit = f
}

func (api *API) admitted(obj *unstructured.Unstructured) {
	api.mu.Lock()
	f := api.admit
	api.mu.Unlock()
	if f != nil {
		f(obj)
	}
}

// Away says whether a kind is served at no version: its definition, or what serves it, is gone. Its
// objects stay.
func (api *API) Away(kind string, away bool) {
	api.mu.Lock()
	defer api.mu.Unlock()
	if api.away == nil {
		api.away = map[string]bool{}
	}
	api.away[kind] = away
}

func (api *API) isAway(kind string) bool {
	api.mu.Lock()
	defer api.mu.Unlock()
	return api.away[kind]
}

// BreakDiscovery makes the next n requests for discovery fail.
func (api *API) BreakDiscovery(n int) {
	api.mu.Lock()
	defer api.mu.Unlock()
	api.broken = n
}

// Requests is the number of requests so far, those for discovery among them.
func (api *API) Requests() int {
	api.mu.Lock()
	defer api.mu.Unlock()
	return api.asked + len(api.Actions())
}

// isBroken counts a request for discovery, and says whether it fails.
func (api *API) isBroken() bool {
	api.mu.Lock()
	defer api.mu.Unlock()
	api.asked++
	api.broken--
	return api.broken >= 0
}

// Fault is what becomes of one request.
type Fault struct {
	// Verb of the request, and the name of its object, "" for a list.
	Verb, Name string
	// Err is its answer.
	Err error
	// Lost: the request is still carried out.
	Lost bool
	// Before is what somebody else does before the request arrives; nil: nothing.
	Before func()
}

// NewAPI returns an API that holds these objects.
func NewAPI(t *testing.T, objects ...*unstructured.Unstructured) *API {
	t.Helper()
	lists := map[schema.GroupVersionResource]string{}
	for kind, resource := range kinds {
		lists[schema.GroupVersionResource{Version: "v1", Resource: resource}] = kind + "List"
	}
	api := &API{t: t, FakeDynamicClient: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)}
	api.PrependReactor("*", "*", api.react)
	api.PrependWatchReactor("*", api.watch)
	for _, obj := range objects {
		api.Put(obj)
	}
	cfg := &rest.Config{
		Host: "http://api.invalid", Transport: api, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"},
	}
	lister, err := k8sutil.NewLister(cfg, api)
	api.must(err)
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	api.must(err)
	api.Connection = migration.Connection{Client: api, Lister: lister, Served: k8sutil.NewServed(disco, Direct), Read: Direct}
	return api
}

func (api *API) must(err error) {
	if err != nil {
		api.t.Helper()
		api.t.Error(err)
	}
}

// Cluster is a view of the API that has read nothing yet.
func (api *API) Cluster() *migration.Cluster { return migration.NewCluster(api.Connection, nil) }

// Fail makes the next request of that verb and name meet a fault. Of several, the first one comes
// first.
func (api *API) Fail(faults ...Fault) {
	api.mu.Lock()
	defer api.mu.Unlock()
	for i := range faults {
		api.faults = append(api.faults, &faults[i])
	}
}

// Put is what others write: past all faults.
func (api *API) Put(obj *unstructured.Unstructured) *unstructured.Unstructured {
	ref := RefTo(obj)
	own := obj.DeepCopy()
	if live := api.Live(ref); live != nil {
		api.stamp(own, live)
		api.must(api.Tracker().Update(ref.GroupVersionResource, own, ref.Namespace))
		return own
	}
	api.stamp(own, obj)
	api.must(api.Tracker().Create(ref.GroupVersionResource, own, ref.Namespace))
	return own
}

// Edit is Put of an object as it is then.
func (api *API) Edit(ref migration.Ref, change func(*unstructured.Unstructured)) {
	live := api.Live(ref)
	change(live)
	api.Put(live)
}

// Remove is what others delete.
func (api *API) Remove(ref migration.Ref) {
	api.deleted(RefTo(api.Live(ref)))
	api.must(api.Tracker().Delete(ref.GroupVersionResource, ref.Namespace, ref.Name))
}

// Live is the object as it is stored, nil if there is none.
func (api *API) Live(ref migration.Ref) *unstructured.Unstructured {
	obj, err := api.Tracker().Get(ref.GroupVersionResource, ref.Namespace, ref.Name)
	if err != nil {
		return nil
	}
	return obj.(*unstructured.Unstructured)
}

// Writes are the requests so far that write, each as "verb name".
func (api *API) Writes() []string {
	var all []string
	for _, a := range api.Actions() {
		switch a.GetVerb() {
		case "create", "update", "patch", "delete":
			all = append(all, a.GetVerb()+" "+nameOf(a))
		}
	}
	return all
}

func nameOf(a clienttesting.Action) string {
	switch a := a.(type) {
	case clienttesting.CreateActionImpl:
		obj, err := meta.Accessor(a.Object)
		if err == nil {
			return obj.GetName()
		}
	case interface{ GetName() string }:
		return a.GetName()
	}
	return ""
}

// stamp gives an object the next version, and the identity of the one before.
func (api *API) stamp(obj, before *unstructured.Unstructured) {
	api.mu.Lock()
	defer api.mu.Unlock()
	api.number++
	obj.SetResourceVersion(fmt.Sprint(api.number))
	if obj.SetUID(before.GetUID()); obj.GetUID() == "" {
		obj.SetUID(types.UID(fmt.Sprintf("uid-%d", api.number)))
	}
	obj.SetCreationTimestamp(before.GetCreationTimestamp())
	if created := obj.GetCreationTimestamp(); created.IsZero() {
		obj.SetCreationTimestamp(metav1.Now())
	}
	api.wrote(RefTo(obj), obj.DeepCopy())
}

// deleted counts a deletion as a write.
func (api *API) deleted(ref migration.Ref) {
	api.mu.Lock()
	defer api.mu.Unlock()
	api.number++
	api.wrote(ref, nil)
}

func (api *API) next(a clienttesting.Action) *Fault {
	api.mu.Lock()
	defer api.mu.Unlock()
	for i, f := range api.faults {
		if f.Verb == a.GetVerb() && f.Name == nameOf(a) {
			api.faults = append(api.faults[:i:i], api.faults[i+1:]...)
			return f
		}
	}
	return &Fault{}
}

func (api *API) react(a clienttesting.Action) (bool, runtime.Object, error) {
	if gvr := a.GetResource(); api.isAway(gvr.Resource) {
		return true, nil, apierrors.NewGenericServerResponse(http.StatusNotFound, a.GetVerb(), gvr.GroupResource(), "", "", 0, true)
	}
	f := api.next(a)
	if f.Before != nil {
		f.Before()
	}
	if f.Err != nil && !f.Lost {
		return true, nil, f.Err
	}
	obj, err := api.carryOut(a)
	if f.Err != nil {
		return true, nil, f.Err
	}
	return true, obj, err
}

// watch copies what it delivers: the tracker delivers objects that exist already as it
// stores them, and who watches may change them.
func (api *API) watch(a clienttesting.Action) (bool, watch.Interface, error) {
	w, err := api.Tracker().Watch(a.GetResource(), a.GetNamespace(), a.(clienttesting.WatchActionImpl).ListOptions)
	if err != nil {
		return true, nil, err
	}
	out := copies{watch.NewRaceFreeFake(), w}
	go func() {
		for e := range w.ResultChan() {
			out.Action(e.Type, e.Object.DeepCopyObject())
		}
	}()
	return true, out, nil
}

// copies of the events of source.
type copies struct {
	*watch.RaceFreeFakeWatcher
	source watch.Interface
}

func (c copies) Stop() {
	c.source.Stop()
	c.RaceFreeFakeWatcher.Stop()
}

func (api *API) carryOut(a clienttesting.Action) (runtime.Object, error) {
	gvr := a.GetResource()
	switch a := a.(type) {
	case clienttesting.ListActionImpl:
		if a.ListOptions.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
			return api.exactly(a), nil
		}
	case clienttesting.CreateActionImpl:
		obj := a.Object.(*unstructured.Unstructured).DeepCopy()
		api.admitted(obj)
		if len(a.CreateOptions.DryRun) > 0 {
			return obj, nil
		}
		api.stamp(obj, &unstructured.Unstructured{Object: map[string]any{}})
		return obj, api.Tracker().Create(gvr, obj, a.GetNamespace())
	case clienttesting.DeleteActionImpl:
		stored, err := api.Tracker().Get(gvr, a.GetNamespace(), a.GetName())
		if err != nil {
			return nil, err
		}
		live := stored.(*unstructured.Unstructured)
		if want := a.DeleteOptions.Preconditions; want.UID != nil && *want.UID != live.GetUID() || want.ResourceVersion != nil && *want.ResourceVersion != live.GetResourceVersion() {
			return nil, conflict(gvr, a.GetName())
		}
		if len(live.GetFinalizers()) == 0 {
			api.deleted(RefTo(live))
			return nil, api.Tracker().Delete(gvr, a.GetNamespace(), a.GetName())
		}
		if live.GetDeletionTimestamp() == nil {
			live.SetDeletionTimestamp(new(metav1.Now()))
			api.Put(live)
		}
		return nil, nil
	case clienttesting.PatchActionImpl:
		stored, err := api.Tracker().Get(gvr, a.GetNamespace(), a.GetName())
		if err != nil {
			return nil, err
		}
		return api.patch(a, stored.(*unstructured.Unstructured))
	}
	_, obj, err := clienttesting.ObjectReaction(api.Tracker())(a)
	return obj, err
}

func (api *API) patch(a clienttesting.PatchActionImpl, live *unstructured.Unstructured) (runtime.Object, error) {
	gvr := a.GetResource()
	raw, err := live.MarshalJSON()
	if err != nil {
		return nil, err
	}
	if a.GetPatchType() == types.MergePatchType {
		given := &unstructured.Unstructured{}
		if err := json.Unmarshal(a.GetPatch(), &given.Object); err != nil {
			return nil, err
		}
		if uid := given.GetUID(); uid != "" && uid != live.GetUID() {
			return nil, conflict(gvr, a.GetName())
		}
		if version := given.GetResourceVersion(); version != "" && version != live.GetResourceVersion() {
			return nil, conflict(gvr, a.GetName())
		}
		raw, err = jsonpatch.MergePatch(raw, a.GetPatch())
	} else {
		var operations jsonpatch.Patch
		if operations, err = jsonpatch.DecodePatch(a.GetPatch()); err == nil {
			raw, err = operations.Apply(raw)
		}
	}
	if err != nil {
		return nil, apierrors.NewInvalid(live.GroupVersionKind().GroupKind(), a.GetName(), nil)
	}
	after := &unstructured.Unstructured{}
	if err := after.UnmarshalJSON(raw); err != nil {
		return nil, err
	}
	api.admitted(after)
	if live.GetDeletionTimestamp() != nil && len(after.GetFinalizers()) == 0 {
		api.deleted(RefTo(live))
		return after, api.Tracker().Delete(gvr, a.GetNamespace(), a.GetName())
	}
	return api.Put(after), nil
}

func conflict(gvr schema.GroupVersionResource, name string) error {
	return apierrors.NewConflict(gvr.GroupResource(), name, errors.New("it is another one, or was changed"))
}

// RoundTrip implements http.RoundTripper: lists and discovery of the core group.
func (api *API) RoundTrip(req *http.Request) (*http.Response, error) {
	parts := strings.Split(strings.TrimPrefix(req.URL.Path, "/"), "/")
	var answer any
	if discovers := len(parts) < 3; discovers && api.isBroken() {
		return respond(http.StatusServiceUnavailable, apierrors.NewServiceUnavailable("it is starting").Status())
	}
	switch {
	case req.URL.Path == "/api":
		answer = &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case req.URL.Path == "/apis":
		answer = &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	case req.URL.Path == "/api/v1":
		list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1"}
		for kind, resource := range kinds {
			if api.isAway(resource) {
				continue
			}
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: resource, Kind: kind, Namespaced: true})
		}
		answer = list
	default:
		// /api/v1/namespaces/<namespace>/<resource> or /api/v1/<resource>.
		namespace := ""
		if len(parts) > 4 {
			namespace = parts[3]
		}
		gvr := schema.GroupVersionResource{Version: "v1", Resource: parts[len(parts)-1]}
		list, err := api.Resource(gvr).Namespace(namespace).List(req.Context(), metav1.ListOptions{LabelSelector: req.URL.Query().Get("labelSelector")})
		if err != nil {
			var status apierrors.APIStatus
			if !errors.As(err, &status) {
				return nil, err
			}
			given := status.Status()
			given.Kind, given.APIVersion = "Status", "v1"
			return respond(int(given.Code), given)
		}
		answer = list
	}
	return respond(http.StatusOK, answer)
}

func respond(code int, answer any) (*http.Response, error) {
	raw, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(raw)), ContentLength: int64(len(raw)),
	}, nil
}
