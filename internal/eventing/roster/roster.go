// Package roster lets the controllers that serve the mesh agree on the Subscriptions that all of
// them know. The mesh posts an event to any of them. A controller with a stale cache would answer
// with success, and not deliver the event to a Subscription whose status reports it as ready.
//
// All of it is in one ConfigMap, so that all that is written there has one order:
//
//   - Each process that serves writes, again and again, which resource version of Subscriptions it
//     knows. It serves for as long as it has written that a moment ago.
//   - The leader writes which version it asks for. A Subscription is ready when the leader has seen
//     a state of the ConfigMap in which its version is asked for, and all processes know it.
//   - A process that begins, or that could not write for a while, reads what is asked for in the
//     answer to its own write, and serves when it knows that.
//
// A process is therefore either in the state that the leader has seen, or has joined later and
// knows the requested version. A process that stops writing is removed only after it has stopped
// serving: it measures the time from before its last write, and the leader from when it saw that
// write. No clocks are compared.
//
// docs/decisions/1211-one-trigger-and-the-roster.md.
package roster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/delivery"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

const (
	// asksKey has what the leader asks for. No pod has such a name.
	asksKey = "_asks"
	// gather is how long the leader waits for more versions to ask for.
	gather = 20 * time.Millisecond
	// looks is how often a process compares what it knows with what is asked for, and retry after
	// which time a request to the API server is tried again.
	looks = 5 * time.Millisecond
	retry = time.Second
	// answers is how long the others have for an answer before something else is done meanwhile.
	answers = 500 * time.Millisecond
	// requestLimit bounds one request.
	requestLimit = 10 * time.Second
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// Options are of one process.
type Options struct {
	// Client is that of any process, and Leader that which refuses the writes of one that does not
	// lead.
	Client, Leader dynamic.Interface
	// Namespace and Name are of the ConfigMap.
	Namespace, Name string
	// Pod is the name of this one. Two processes may have the same, one after the other.
	Pod string
	// Member: this process is to serve the mesh.
	Member bool
	// Lease is how long a leader is waited for. A process serves for twice as long after its last
	// write.
	Lease time.Duration
	Log   *zap.Logger
	// Open reads the Subscriptions, and follows them until ctx ends.
	Open func(ctx context.Context) (Subscriptions, error)
	// Known is called when something is known that Ask was called for.
	Known func(types.NamespacedName)
}

// Subscriptions are those that a process knows: a directory.Directory.
type Subscriptions interface {
	// Version is the resource version up to which all changes are known, and Newest the greatest
	// one of a Subscription that is known.
	Version() string
	Newest() string
	// Match returns those that want the events of a source and a type.
	Match(source, eventType string) []delivery.Recipient
}

// question is the value of asksKey: which version is asked for, and the UID of the ConfigMap that
// this was written to. A copy of it that comes from a backup has another UID, and may have the
// versions of another cluster, which are far ahead of those of this one.
func question(version string, of types.UID) string { return version + " " + string(of) }

// questionOf is which version is asked for in the data of a ConfigMap with a UID; "" if none is. An
// earlier version of this program has written no UID.
func questionOf(data map[string]string, uid types.UID) string {
	version, of, _ := strings.Cut(data[asksKey], " ")
	if of != "" && of != string(uid) {
		return ""
	}
	return version
}

// entry is what a process writes of itself.
type entry struct {
	// Run is unique, and Renewed the time of this write, for people.
	Run     string `json:"run"`
	Renewed string `json:"renewed"`
	// Knows is the resource version up to which it knows all Subscriptions.
	Knows string `json:"knows"`
}

// Roster is that of one process. Its methods can be called at the same time.
type Roster struct {
	options Options
	run     string
	// changed is there when something has changed that Run looks at, and ask when there is
	// something to ask for.
	changed, ask chan struct{}

	mu     sync.RWMutex
	wanted bool // the mesh serves
	// subscriptions and until say what this process serves by, and for how long. admitted: it has
	// served.
	subscriptions Subscriptions
	until         time.Time
	admitted      bool
	// said is what this process wrote of itself last.
	said string
	// data is the ConfigMap as it was seen last, with its UID and version, and seen since when each
	// entry is as it is. fresh is when the request began that saw it last: what a watch tells may
	// be late.
	data    map[string]string
	uid     types.UID
	version string
	seen    map[string]seen
	fresh   time.Time
	// asked is the greatest version that this process wants to be known, and waiting who waits for
	// which.
	asked   string
	waiting map[types.NamespacedName]string
}

// seen is what a process has written of itself, and since when that is so.
type seen struct {
	content, knows string
	since          time.Time
}

// New returns a Roster that serves nothing.
func New(o Options) *Roster {
	return &Roster{
		options: o, run: uuid.NewString(), changed: make(chan struct{}, 1), ask: make(chan struct{}, 1),
		seen: map[string]seen{}, waiting: map[types.NamespacedName]string{},
	}
}

// serveFor is how long a process serves after a write, and renewAfter when it writes again.
func (o *Options) serveFor() time.Duration   { return 2 * o.Lease }
func (o *Options) renewAfter() time.Duration { return o.Lease / 3 }

// GoneAfter is how long the leader waits for a process that writes no more. It is longer than that
// process serves by what clocks and waits differ.
func (r *Roster) GoneAfter() time.Duration { return r.options.serveFor() + r.options.Lease/2 }

// Use says whether the mesh serves.
func (r *Roster) Use(wanted bool) {
	r.mu.Lock()
	changed := r.wanted != wanted
	r.wanted = wanted
	r.mu.Unlock()
	if changed {
		signal(r.changed)
	}
}

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// Ready is an error as long as this process has never been able to serve the mesh, and should.
func (r *Roster) Ready() error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.wanted && r.options.Member && !r.admitted {
		return errors.New("the other controllers do not know yet that this one serves the mesh")
	}
	return nil
}

// ErrBehind says that this process may not know all Subscriptions.
var ErrBehind = errors.New("this controller cannot know now whether it knows all Subscriptions")

// Match returns the Subscriptions that want the events of a source and a type.
func (r *Roster) Match(source, eventType string) ([]delivery.Recipient, error) {
	r.mu.RLock()
	s, until := r.subscriptions, r.until
	r.mu.RUnlock()
	if s == nil || time.Now().After(until) {
		return nil, ErrBehind
	}
	return s.Match(source, eventType), nil
}

// Run follows the roster until ctx ends, and then removes this process from it.
func (r *Roster) Run(ctx context.Context) {
	for ctx.Err() == nil {
		r.mu.RLock()
		wanted := r.wanted
		r.mu.RUnlock()
		if !wanted {
			select {
			case <-r.changed:
			case <-ctx.Done():
			}
			continue
		}
		if err := r.attend(ctx); err != nil && ctx.Err() == nil {
			r.options.Log.Warn("cannot serve the mesh yet", zap.Error(err))
			_ = k8sutil.Sleep(ctx, retry)
		}
	}
}

// attend serves until the mesh does not serve any more, or ctx ends.
func (r *Roster) attend(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel()
	warn := func(err error) {
		r.options.Log.Warn("cannot read the roster of the controllers, retrying", zap.Error(err))
	}
	in := k8sutil.NewCollection(r.options.resource(r.options.Client), k8sutil.Named(r.options.Name), nil, k8sutil.Retrying(requestLimit, warn))
	if err := in.List(ctx); err != nil {
		return fmt.Errorf("cannot read ConfigMap %s/%s: %w", r.options.Namespace, r.options.Name, err)
	}
	// What a watch tells has no age: it may be late.
	look := func() { r.look(in.Get(r.options.Namespace, r.options.Name), time.Time{}) }
	look()
	in.Watch(ctx, func(string) { look() })
	others.Go(func() { r.asks(ctx) })
	if !r.options.Member {
		r.stays(ctx)
		return nil
	}
	// Before the list: what is said to be ready later is asked of this process, too.
	if _, err := r.say(ctx, ""); err != nil {
		return err
	}
	defer r.withdraw(context.WithoutCancel(ctx))
	s, err := r.options.Open(ctx)
	if err != nil {
		return fmt.Errorf("cannot read Subscriptions: %w", err)
	}
	return r.serve(ctx, s)
}

// stays returns when the mesh does not serve any more, or ctx ends.
func (r *Roster) stays(ctx context.Context) {
	for r.still(ctx) {
		select {
		case <-r.changed:
		case <-ctx.Done():
		}
	}
}

func (r *Roster) still(ctx context.Context) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.wanted && ctx.Err() == nil
}

// serve writes what this process knows, and lets it serve for as long as that is believed.
func (r *Roster) serve(ctx context.Context, s Subscriptions) error {
	for r.still(ctx) {
		began, knows := time.Now(), s.Version()
		asks, err := r.say(ctx, knows)
		ended := time.Now()
		if err != nil {
			if ctx.Err() == nil {
				r.options.Log.Warn("cannot tell the other controllers what this one knows", zap.Error(err))
			}
			_ = k8sutil.Sleep(ctx, min(retry, r.options.renewAfter()))
			continue
		}
		r.mu.Lock()
		// One whose write came in time serves on: the leader waits for it.
		if serves := r.subscriptions != nil && ended.Before(r.until); serves || !k8sutil.IsBefore(knows, asks) {
			if !serves {
				r.options.Log.Info("serving the mesh", zap.String("version", knows))
			}
			r.subscriptions, r.until, r.admitted = s, began.Add(r.options.serveFor()), true
		}
		r.mu.Unlock()
		r.pause(ctx, s, knows)
	}
	return nil
}

// pause returns when there is something new to say: the time has come, or this process knows what
// is asked for and has not said so.
func (r *Roster) pause(ctx context.Context, s Subscriptions, said string) {
	renew := time.NewTimer(r.options.renewAfter())
	defer renew.Stop()
	for {
		r.mu.RLock()
		asks, wanted := questionOf(r.data, r.uid), r.wanted
		r.mu.RUnlock()
		var soon <-chan time.Time
		switch {
		case !wanted:
			return
		case k8sutil.IsBefore(said, asks) && !k8sutil.IsBefore(s.Version(), asks):
			return
		case k8sutil.IsBefore(said, asks):
			soon = time.After(looks)
		}
		select {
		case <-soon:
		case <-r.changed:
		case <-renew.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// say writes what this process knows, and returns what is asked for in the same state.
func (r *Roster) say(ctx context.Context, knows string) (asks string, err error) {
	content, err := json.Marshal(entry{r.run, time.Now().UTC().Format(time.RFC3339Nano), knows})
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	r.said = string(content)
	r.mu.Unlock()
	is, err := r.write(ctx, r.options.Client, types.MergePatchType, map[string]any{"data": map[string]any{r.options.Pod: string(content)}})
	if err != nil {
		return "", err
	}
	return questionOf(dataOf(is), is.GetUID()), nil
}

// withdraw removes this process from the roster. If that fails, it is left out when its time is
// over.
func (r *Roster) withdraw(ctx context.Context) {
	r.mu.Lock()
	r.subscriptions = nil
	said := r.said
	r.mu.Unlock()
	if said == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	if err := r.remove(ctx, r.options.Client, r.options.Pod, said); err != nil {
		r.options.Log.Info("cannot remove this controller from the roster", zap.Error(err))
	}
}

// remove removes an entry, if it is as it was seen.
func (r *Roster) remove(ctx context.Context, client dynamic.Interface, pod, content string) error {
	_, err := r.write(ctx, client, types.JSONPatchType, replaced(pod, content, map[string]any{"op": "remove", "path": "/data/" + pod}))
	if another(err) {
		return nil
	}
	return err
}

func (o *Options) resource(client dynamic.Interface) dynamic.ResourceInterface {
	return client.Resource(configMaps).Namespace(o.Namespace)
}

// write patches the ConfigMap, and returns it.
func (r *Roster) write(ctx context.Context, client dynamic.Interface, kind types.PatchType, patch any) (*unstructured.Unstructured, error) {
	raw, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, min(requestLimit, r.options.Lease))
	defer cancel()
	began := time.Now()
	u, err := r.options.resource(client).Patch(ctx, r.options.Name, kind, raw, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot write ConfigMap %s/%s: %w", r.options.Namespace, r.options.Name, err)
	}
	r.look(u, began)
	return u, nil
}

// read reads the ConfigMap.
func (r *Roster) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(requestLimit, r.options.Lease))
	defer cancel()
	began := time.Now()
	list, err := r.options.resource(r.options.Client).List(ctx, k8sutil.Named(r.options.Name))
	switch {
	case err != nil:
		return fmt.Errorf("cannot read ConfigMap %s/%s: %w", r.options.Namespace, r.options.Name, err)
	case len(list.Items) == 0:
		r.look(nil, began)
	default:
		r.look(&list.Items[0], began)
	}
	return nil
}

// dataOf is what the ConfigMap has; nil if there is none.
func dataOf(u *unstructured.Unstructured) map[string]string {
	if u == nil {
		return nil
	}
	data, _, _ := unstructured.NestedStringMap(u.Object, "data")
	if data == nil {
		data = map[string]string{}
	}
	return data
}

// look takes over what the ConfigMap has, which was read from a time on; zero if that is not
// known.
func (r *Roster) look(u *unstructured.Unstructured, read time.Time) {
	r.mu.Lock()
	if u != nil && r.data != nil && k8sutil.IsBefore(u.GetResourceVersion(), r.version) { // a watch is late
		r.mu.Unlock()
		return
	}
	r.data, r.uid, r.version = dataOf(u), "", ""
	if u != nil {
		r.uid, r.version = u.GetUID(), u.GetResourceVersion()
	}
	if !read.IsZero() {
		r.fresh = read
	}
	for pod, content := range r.data {
		if pod == asksKey || r.seen[pod].content == content {
			continue
		}
		var is entry
		if err := json.Unmarshal([]byte(content), &is); err != nil {
			r.options.Log.Warn("a controller has written something that is not understood", zap.String("pod", pod), zap.Error(err))
		}
		r.seen[pod] = seen{content, is.Knows, time.Now()}
	}
	maps.DeleteFunc(r.seen, func(pod string, _ seen) bool { return r.data[pod] == "" })
	r.mu.Unlock()
	signal(r.changed)
	signal(r.ask)
}

// Ask tells whether all processes that serve know a Subscription in a version. When it is asked for
// the first time, they have a moment for the answer. If they do not all know it, missing are the
// pods that do not, as far as that can be said, and Known is called when they do. Only the leader
// asks.
func (r *Roster) Ask(ctx context.Context, subscription types.NamespacedName, version string) (known bool, missing []string) {
	r.mu.Lock()
	patience := answers
	if r.waiting[subscription] == version {
		patience = 0
	}
	r.waiting[subscription] = version
	if k8sutil.IsBefore(r.asked, version) {
		r.asked = version
	}
	r.mu.Unlock()
	signal(r.ask)
	limit := time.NewTimer(patience)
	defer limit.Stop()
	again := time.NewTicker(looks)
	defer again.Stop()
	for {
		r.mu.Lock()
		if known, missing = r.known(version); known && r.waiting[subscription] == version {
			delete(r.waiting, subscription)
		}
		r.mu.Unlock()
		if known {
			return true, nil
		}
		select {
		case <-again.C:
		case <-limit.C:
			return false, missing
		case <-ctx.Done():
			return false, missing
		}
	}
}

// Forget lets nothing wait for a Subscription.
func (r *Roster) Forget(subscription types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, subscription)
}

// known tells whether all know a version. The caller holds the lock.
func (r *Roster) known(version string) (known bool, missing []string) {
	if r.data == nil || k8sutil.IsBefore(questionOf(r.data, r.uid), version) {
		return false, nil
	}
	for pod, is := range r.seen {
		if !r.gone(is) && k8sutil.IsBefore(is.knows, version) {
			missing = append(missing, pod)
		}
	}
	slices.Sort(missing)
	return len(missing) == 0, missing
}

// gone tells whether a process does not serve any more: a request that began long after its last
// write was seen has found no later one. The caller holds the lock.
func (r *Roster) gone(is seen) bool { return r.fresh.Sub(is.since) > r.GoneAfter() }

// asks writes what is asked for, and tells what is known, until ctx ends.
func (r *Roster) asks(ctx context.Context) {
	again := time.NewTicker(retry)
	defer again.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-again.C: // some may be gone
		case <-r.ask:
		}
		r.mu.Lock()
		write := len(r.waiting) > 0 && r.data != nil && k8sutil.IsBefore(questionOf(r.data, r.uid), r.asked)
		r.mu.Unlock()
		if write {
			if err := r.put(ctx); err != nil && ctx.Err() == nil {
				r.options.Log.Warn("cannot ask the other controllers what they know", zap.Error(err))
				_ = k8sutil.Sleep(ctx, retry)
			}
			continue // the watch tells of it
		}
		r.tell(ctx)
	}
}

// put writes what is asked for. What others have written since is left: it must never become an
// earlier version.
func (r *Roster) put(ctx context.Context) error {
	if err := k8sutil.Sleep(ctx, gather); err != nil {
		return err
	}
	r.mu.RLock()
	is, before, asks, uid := r.data[asksKey], questionOf(r.data, r.uid), r.asked, r.uid
	if r.subscriptions != nil {
		// One question is for all that this process knows: many Subscriptions would make many. It
		// is the version of one of them: others may reach a later one only with the next change.
		if newest := r.subscriptions.Newest(); k8sutil.IsBefore(asks, newest) {
			asks = newest
		}
	}
	r.mu.RUnlock()
	if !k8sutil.IsBefore(before, asks) {
		return nil
	}
	next := question(asks, uid)
	var err error
	if is == "" {
		_, err = r.write(ctx, r.options.Leader, types.MergePatchType, map[string]any{"data": map[string]any{asksKey: next}})
	} else {
		_, err = r.write(ctx, r.options.Leader, types.JSONPatchType, replaced(asksKey, is, map[string]any{"op": "replace", "path": "/data/" + asksKey, "value": next}))
	}
	if another(err) { // the watch tells of it
		return nil
	}
	return err
}

// replaced is a patch that does something to a key, if that has this content.
func replaced(key, content string, op map[string]any) []map[string]any {
	return []map[string]any{{"op": "test", "path": "/data/" + key, "value": content}, op}
}

// another tells whether a key had another content than a patch expected.
func another(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsInvalid(err) }

// tell tells of what is known by now, and removes the entries of processes that are gone.
func (r *Roster) tell(ctx context.Context) {
	r.mu.Lock()
	waits, silent := len(r.waiting) > 0, false
	for _, is := range r.seen {
		silent = silent || !r.gone(is) && time.Since(is.since) > r.GoneAfter()
	}
	r.mu.Unlock()
	if !waits {
		return
	}
	if silent {
		if err := r.read(ctx); err != nil {
			r.options.Log.Info("cannot find out whether a controller is gone", zap.Error(err))
		}
	}
	r.mu.Lock()
	var known []types.NamespacedName
	for subscription, version := range r.waiting {
		if is, _ := r.known(version); is {
			known = append(known, subscription)
			delete(r.waiting, subscription)
		}
	}
	gone := map[string]string{}
	for pod, is := range r.seen {
		if r.gone(is) {
			gone[pod] = is.content
		}
	}
	r.mu.Unlock()
	for _, subscription := range known {
		r.options.Known(subscription)
	}
	for pod, content := range gone {
		r.options.Log.Info("a controller that served the mesh is gone", zap.String("pod", pod))
		if err := r.remove(ctx, r.options.Leader, pod, content); err != nil {
			r.options.Log.Info("cannot remove a controller from the roster", zap.String("pod", pod), zap.Error(err))
		}
	}
}
