package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// fresh is a world as a recheck reads it: watches show it, and what is not watched is read from an
// API server that answers with it.
type fresh struct {
	*world
	cluster *migration.Cluster
	// fails are the kinds that cannot be read.
	fails []string
}

func (f *fresh) failure(kind string) error {
	if slices.Contains(f.fails, kind) {
		return errors.New(kind + " cannot be read")
	}
	return nil
}

func (f *fresh) Watched(ctx context.Context, r migration.Resource, namespace string) ([]*unstructured.Unstructured, error) {
	if err := f.failure(r.Kind + " of " + namespace); err != nil {
		return nil, err
	}
	return f.List(ctx, r, namespace, migration.ListOptions{})
}

func (f *fresh) WatchedEach(ctx context.Context, r migration.Resource, namespace string, fn func(*unstructured.Unstructured)) error {
	if err := f.failure(r.Kind); err != nil {
		return err
	}
	return f.ListEach(ctx, r, namespace, migration.ListOptions{}, fn)
}

func (f *fresh) WatchedOne(ctx context.Context, ref migration.Ref) (*unstructured.Unstructured, error) {
	if err := f.failure(ref.Kind + " " + ref.Name); err != nil {
		return nil, err
	}
	return f.Get(ctx, ref)
}

func (f *fresh) Shared(ctx context.Context, key string, read func(context.Context, *migration.Cluster) (any, error)) (any, error) {
	if err := f.failure(key); err != nil {
		return nil, err
	}
	return read(ctx, f.cluster)
}

// ServeHTTP answers lists and reads of one object.
func (w *world) ServeHTTP(out http.ResponseWriter, q *http.Request) {
	parts := strings.Split(strings.Trim(q.URL.Path, "/"), "/")
	if len(parts) < 3 {
		out.WriteHeader(http.StatusInternalServerError) // it has no discovery
		return
	}
	group := schema.GroupVersion{Version: parts[1]}
	rest := parts[2:]
	if parts[0] == "apis" {
		group, rest = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	}
	namespace := ""
	if rest[0] == "namespaces" && len(rest) > 2 {
		namespace, rest = rest[1], rest[2:]
	}
	if slices.Contains(rest, "proxy") {
		raw, _ := w.PodGet(q.Context(), "", "", 0, "", nil)
		_, _ = out.Write(raw)
		return
	}
	kind := ""
	all := assumedKinds()
	resources := []migration.Resource{deployments, replicaSets, pods, namespaces}
	for _, k := range all.all() {
		resources = append(resources, k.Resource)
	}
	for _, r := range resources {
		if r.Resource == rest[0] && r.Group == group.Group {
			kind = r.Kind
		}
	}
	out.Header().Set("Content-Type", "application/json")
	answer := map[string]any{"apiVersion": group.String(), "kind": kind + "List", "metadata": map[string]any{"resourceVersion": "1"}}
	if len(rest) == 1 {
		items := []any{}
		for _, obj := range w.objects.List(schema.GroupKind{Group: group.Group, Kind: kind}, namespace) {
			items = append(items, obj.Object)
		}
		answer["items"] = items
	} else if obj := w.objects.Get(migration.SubjectOf(schema.GroupKind{Group: group.Group, Kind: kind}, namespace, rest[1])); obj != nil {
		answer = obj.Object
	} else {
		out.WriteHeader(http.StatusNotFound)
		answer = map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
	}
	_ = json.NewEncoder(out).Encode(answer)
}

func freshOf(t *testing.T, w *world) *fresh {
	t.Helper()
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	cfg := &rest.Config{Host: server.URL, QPS: -1}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	lister, err := k8sutil.NewLister(cfg, client)
	if err != nil {
		t.Fatal(err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	direct := func(ctx context.Context, read func(context.Context) error) error { return read(ctx) }
	return &fresh{world: w, cluster: migration.NewCluster(migration.Connection{Client: client, Lister: lister, Served: k8sutil.NewServed(disco, direct), Read: direct}, nil)}
}

// TestRecheck: all that a deletion was decided on is looked at once more, and what cannot be read
// is an error, never a yes.
func TestRecheck(t *testing.T) {
	find := func(w *world, kind, name string) *unstructured.Unstructured {
		i := slices.IndexFunc(w.objects, func(u *unstructured.Unstructured) bool { return u.GetKind() == kind && u.GetName() == name })
		if i < 0 {
			t.Fatalf("there is no %s %s", kind, name)
		}
		return w.objects[i]
	}
	remove := func(w *world, kind, name string) {
		obj := find(w, kind, name)
		w.objects = slices.DeleteFunc(w.objects, func(u *unstructured.Unstructured) bool { return u == obj })
	}
	stopped := func(w *world) {
		remove(w, "Pod", "pod-0")
		k8sobject.MapAt(find(w, "Deployment", "event-bus-subscription-controller").Object, "spec")["replicas"] = int64(0)
	}
	released := func(w *world) { find(w, "Subscription", "orders").SetFinalizers(nil) }
	type change = func(w *world, o *options)
	for name, tc := range map[string]struct {
		reason string
		// at is how many replicas the controller had when the plan was made, and guard the number
		// of the guard.
		at, guard int
		// free: the plan saw no finalizer on the Subscription.
		free      bool
		change    change
		fails     string
		want, err string
	}{
		"All":       {reason: "nothing has changed", at: 1},
		"AllByHand": {reason: "the unit does what the controller would", at: 0, change: func(w *world, _ *options) { stopped(w) }},
		"Gone":      {reason: "what belongs to it may be left", at: 1, change: func(w *world, _ *options) { remove(w, "Subscription", "orders") }},
		"Spec": {reason: "its Trigger is for what it was", at: 1, change: func(w *world, _ *options) {
			k8sobject.MapAt(find(w, "Subscription", "orders").Object, "spec")["endpoint"] = "http://x"
		}, want: "its spec was changed"},
		"OptedOut": {reason: "somebody has taken the namespace out", at: 1, change: func(w *world, _ *options) {
			find(w, "Namespace", "shop").SetLabels(map[string]string{kyma.OptOutLabel: "true"})
		}, want: "its namespace carries the label"},
		"NoBroker":      {reason: "the Broker was deleted", at: 1, change: func(w *world, _ *options) { remove(w, "Broker", "default") }, want: "Broker shop/default does not exist any more"},
		"Broker":        {reason: "the Broker is not ready", at: 1, change: func(w *world, _ *options) { notReady(find(w, "Broker", "default")) }, want: "is not ready"},
		"NoTrigger":     {reason: "the Trigger was deleted", at: 1, change: func(w *world, _ *options) { remove(w, "Trigger", "t") }, want: "no Trigger brings the same events"},
		"Trigger":       {reason: "the Trigger is not ready", at: 1, change: func(w *world, _ *options) { notReady(find(w, "Trigger", "t")) }, want: "is not ready"},
		"OpaqueTrigger": {reason: "nobody knows what it selects", at: 1, change: func(w *world, _ *options) { opaque(find(w, "Trigger", "t")) }, want: "no Trigger brings the same events"},
		"TwoTriggers": {reason: "one that works is enough", at: 1, change: func(w *world, _ *options) {
			broken := notReady(find(w, "Trigger", "t").DeepCopy())
			broken.SetName("a")
			w.objects = append(w.objects, broken)
		}},
		"Mesh":       {reason: "the mesh takes no events of the source", at: 1, change: func(w *world, _ *options) { remove(w, "HTTPSource", "commerce") }, want: "HTTPSource kyma-integration/commerce does not exist"},
		"Controller": {reason: "nobody would clean up", at: 1, change: func(w *world, _ *options) { stopped(w) }, want: "was scaled to 0 or deleted meanwhile"},
		"Unknown": {reason: "the controller never knew it, and it has nothing to clean up", at: 1, free: true, change: func(w *world, _ *options) {
			stopped(w)
			released(w)
			remove(w, "Subscription", "orders--shop")
		}},
		"Served": {reason: "the controller began to serve it before it ended", at: 1, free: true, change: func(w *world, _ *options) {
			stopped(w)
			released(w)
		}, want: "began to serve it after the plan was made"},
		"ServedFinalizer": {reason: "the same, and it has put its finalizer on it", at: 1, free: true, change: func(w *world, _ *options) {
			stopped(w)
			remove(w, "Subscription", "orders--shop")
		}, want: "began to serve it after the plan was made"},
		"Started":  {reason: "both would do the same", at: 0, want: "would do the same at the same time"},
		"Switch":   {reason: "the event-service posts to the Event Bus again", at: 1, change: func(w *world, _ *options) { remove(w, "Deployment", "commerce-event-service") }, want: "event-service"},
		"InFlight": {reason: "events wait for it", at: 1, change: func(w *world, _ *options) { w.channels = []string{natsAnswer(7, 2)} }, want: "2 events in flight"},
		"Dropped": {reason: "they may be dropped", at: 1, change: func(w *world, o *options) {
			w.channels = []string{natsAnswer(7, 2)}
			o.legacyTraffic = ignore
		}},
		"NoLink": {reason: "nothing is delivered to it", at: 1, change: func(w *world, _ *options) {
			remove(w, "Subscription", "orders--shop")
			w.channels = []string{natsAnswer(7, 2)}
		}},
		"Publishers": {reason: "time has to pass between two looks", at: 1, change: func(_ *world, o *options) { o.observePublishers = time.Minute }, err: "ask again in"},
		"Channel":    {reason: "nobody subscribes to the Channel", at: 0, guard: 1, change: func(w *world, _ *options) { stopped(w); remove(w, "Subscription", "orders--shop") }},
		"Subscribed": {reason: "somebody subscribes to the Channel", at: 0, guard: 1, change: func(w *world, _ *options) { stopped(w) }, want: "subscribes to it"},
		"ChannelRun": {reason: "the controller would create it again", at: 0, guard: 1, change: func(w *world, _ *options) { remove(w, "Subscription", "orders--shop") }, want: "would do the same at the same time"},

		"FailsNamespace":    {reason: "the mesh cannot be read", at: 1, fails: "mesh", err: "mesh cannot be read"},
		"FailsBroker":       {reason: "the Broker cannot be read", at: 1, fails: "Broker default", err: "cannot be read"},
		"FailsTriggers":     {reason: "Triggers cannot be read", at: 1, fails: "Trigger", err: "cannot be read"},
		"FailsNATS":         {reason: "what is in flight cannot be read", at: 1, fails: "nats", err: "cannot be read"},
		"FailsController":   {reason: "the controller cannot be read", at: 1, fails: "Deployment event-bus-subscription-controller", err: "cannot be read"},
		"FailsReplicaSets":  {reason: "its ReplicaSets cannot be read", at: 0, guard: 1, fails: "ReplicaSet of kyma-system", err: "cannot be read", change: func(w *world, _ *options) { stopped(w); remove(w, "Subscription", "orders--shop") }},
		"FailsSubscribers":  {reason: "who subscribes cannot be read", at: 0, guard: 1, fails: "subscribers", err: "cannot be read"},
		"FailsSubscription": {reason: "it cannot be read itself", at: 1, fails: "Subscription orders", err: "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			s := contracted()
			s.bus.Controller, s.controller = controllerAt(tc.at), controllerAt(tc.at).Deployment
			if tc.free {
				s.subscriptions[0].SetFinalizers(nil)
			}
			j := New()
			j.options.observePublishers = 0
			w := live()
			unit, at := guardOf(t, planned(s, j.options, 0), tc.guard)
			if tc.change != nil {
				tc.change(w, &j.options)
			}
			f := freshOf(t, w)
			f.fails = []string{tc.fails}
			finding, err := j.Recheck(t.Context(), f, unit, at)
			switch {
			case (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err):
				t.Errorf("%s: error %v, want %q", tc.reason, err, tc.err)
			case err != nil:
			case (finding != nil) != (tc.want != "") || finding != nil && !strings.Contains(finding.Problem, tc.want):
				t.Errorf("%s: finding %v, want %q", tc.reason, finding, tc.want)
			case finding != nil && (!strings.HasPrefix(finding.Problem, "not deleted: ") || finding.Note == "" || finding.Severity != migration.Deferred):
				t.Errorf("%s: %+v", tc.reason, finding)
			}
		})
	}
}

// opaque makes a Trigger select what this job does not understand.
func opaque(trigger *unstructured.Unstructured) {
	k8sobject.MapAt(trigger.Object, "spec", "filter", "attributes")["subject"] = "x"
}

// guardOf returns the unit with the n-th guard of a plan, and its change.
func guardOf(t *testing.T, plan *migration.Plan, n int) (unit *migration.Unit, change int) {
	t.Helper()
	for i := range plan.Units {
		for k := range plan.Units[i].Changes {
			if plan.Units[i].Changes[k].Guard {
				if n == 0 {
					return &plan.Units[i], k
				}
				n--
			}
		}
	}
	t.Fatalf("the plan has no such guard: %v", verbs(plan.Units))
	return nil, 0
}

// TestProtect: kinds that cannot be asked for are an error.
func TestProtect(t *testing.T) {
	f := freshOf(t, live())
	ref := assumedKinds().trigger.Ref("shop", "t")
	if _, err := New().Protect(t.Context(), f.cluster, []migration.Ref{ref}); err == nil {
		t.Errorf("%s is judged without discovery of %s", ref, knative.Trigger)
	}
}
