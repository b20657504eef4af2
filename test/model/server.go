// Package model is a Kubernetes API server in memory, and random small worlds that
// run on it: see Server and World.
package model

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

func init() {
	// client-go's handlers of errors keep the time of the last one in a variable of
	// the process, and sleep by it. Each bubble of testing/synctest has a clock of its
	// own, so that such a sleep could last for years.
	utilruntime.ErrorHandlers = nil //nolint:reassign // that is what it is there for
}

// Kind is a kind that a Server serves.
type Kind struct {
	schema.GroupVersionKind
	Plural     string
	Namespaced bool
	// Status and Scale say which subresources there are.
	Status, Scale bool
}

// Resource is the name of the kind in errors and paths.
func (k *Kind) Resource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Plural}
}

// Builtin are the kinds that every Server serves.
var Builtin = []Kind{
	{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, Plural: "namespaces", Status: true},
	{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Plural: "configmaps", Namespaced: true},
	{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, Plural: "secrets", Namespaced: true},
	{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Event"}, Plural: "events", Namespaced: true},
	{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}, Plural: "serviceaccounts", Namespaced: true},
	{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Plural: "pods", Namespaced: true, Status: true},
	{GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Plural: "deployments", Namespaced: true, Status: true, Scale: true},
	{GroupVersionKind: schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"}, Plural: "rolebindings", Namespaced: true},
	{GroupVersionKind: schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}, Plural: "leases", Namespaced: true},
}

// Key names one object. Plural is that of its kind.
type Key struct {
	Group, Plural, Namespace, Name string
}

func (k Key) String() string {
	s := k.Plural
	if k.Group != "" {
		s += "." + k.Group
	}
	if k.Namespace != "" {
		s += " " + k.Namespace + "/" + k.Name
	} else {
		s += " " + k.Name
	}
	return s
}

// Object is the content of one. A stored one is never changed, but replaced.
type Object = map[string]any

// Write is one change of one object: the server's own history.
type Write struct {
	// Version is the resource version that the server counted for it.
	Version int64
	Time    time.Time
	// Actor is the name of the client; "gc" is the garbage collector.
	Actor string
	Verb  string
	// Call is the number of the client's request.
	Call int
	Key  Key
	Kind string
	// Before is nil for a creation, After if the object is gone.
	Before, After Object
}

// Server is a Kubernetes API server in memory. Its zero value is not usable: see
// New. All clients are http.RoundTrippers, and nothing of it needs a network or a
// clock but time.Now, so that it works in a bubble of testing/synctest.
type Server struct {
	mu      sync.Mutex
	kinds   map[schema.GroupResource]*Kind
	objects map[Key]Object
	version int64
	uids    int64
	// oldest is the version before which no watch may start.
	oldest   int64
	history  []Write
	requests []*Request
	watchers map[*watcher]struct{}
	pages    map[string][]Object
	denied   func(Permission) bool
	serving  map[schema.GroupResource][]string
	admit    []func(*Request, Object)
	refuses  func(*Request) error
	seed     uint64
	lag      time.Duration
	seen     map[string]int
}

// Permission is what a SelfSubjectAccessReview asks for.
type Permission struct {
	Verb, Group, Resource, Subresource, Namespace string
}

// New makes a server that serves the built-in kinds and more. Latencies are derived
// from the seed.
func New(seed uint64, more ...Kind) *Server {
	s := &Server{
		kinds: map[schema.GroupResource]*Kind{}, objects: map[Key]Object{},
		watchers: map[*watcher]struct{}{}, pages: map[string][]Object{}, seed: seed, seen: map[string]int{},
		serving: map[schema.GroupResource][]string{},
		lag:     20 * time.Millisecond,
	}
	for _, k := range append(slices.Clone(Builtin), more...) {
		s.kinds[k.Resource()] = &k
	}
	return s
}

// Deny makes the server refuse what denied says, in access reviews and in requests.
func (s *Server) Deny(denied func(Permission) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied = denied
}

// Compact forgets the history of watches: one that starts earlier gets 410, and so
// do continue tokens.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest = s.version
	clear(s.pages)
}

// History returns all writes so far.
func (s *Server) History() []Write {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.history)
}

// Requests returns all requests that were carried out so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Request, len(s.requests))
	for i, r := range s.requests {
		all[i] = *r
	}
	return all
}

// Objects returns all objects as they are now. They must not be changed.
func (s *Server) Objects() map[Key]Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.objects)
}

// chance is a number below n that depends on the seed and on how often it was asked
// for by that name, and not on the order in which goroutines came.
func (s *Server) chance(name string, n int64) int64 {
	s.seen[name]++
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %s %d", s.seed, name, s.seen[name])
	return int64(mix(h.Sum64()) % uint64(n))
}

// mix spreads similar numbers (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

func (s *Server) pause(name string, from, to time.Duration) time.Duration {
	return from + time.Duration(s.chance(name, int64(to-from)))
}

// nextVersion counts one write.
func (s *Server) nextVersion() string {
	s.version++
	return strconv.FormatInt(s.version, 10)
}

// store replaces, or with a nil object removes, what is stored, and tells history
// and watchers. The object gets the version of the write.
func (s *Server) store(actor, verb string, call int, kind *Kind, key Key, after Object) Object {
	before := s.objects[key]
	version := s.nextVersion()
	w := Write{Version: s.version, Time: time.Now(), Actor: actor, Verb: verb, Call: call, Key: key, Kind: kind.Kind, Before: before, After: after}
	typ, shown := "MODIFIED", after
	switch {
	case after == nil:
		typ = "DELETED"
		shown = runtime.DeepCopyJSON(before)
		meta(shown)["resourceVersion"] = version
		delete(s.objects, key)
	case before == nil:
		typ = "ADDED"
		fallthrough
	default:
		meta(after)["resourceVersion"] = version
		s.objects[key] = after
	}
	s.history = append(s.history, w)
	for watcher := range s.watchers {
		watcher.tell(typ, kind, key, before, shown, s.version)
	}
	return shown
}

func meta(obj Object) map[string]any {
	m, _ := obj["metadata"].(map[string]any)
	if m == nil {
		m = map[string]any{}
		obj["metadata"] = m
	}
	return m
}

func text(obj Object, field string) string {
	s, _ := meta(obj)[field].(string)
	return s
}

func finalizers(obj Object) []any {
	f, _ := meta(obj)["finalizers"].([]any)
	return f
}

// deleting says whether an object has a deletion timestamp.
func deleting(obj Object) bool { return meta(obj)["deletionTimestamp"] != nil }

// remove deletes an object that has no finalizer left, and lets the garbage
// collector see to what belongs to it.
func (s *Server) remove(actor, verb string, call int, kind *Kind, key Key) {
	before := s.objects[key]
	s.store(actor, verb, call, kind, key, nil)
	uid := text(before, "uid")
	s.later("gc "+uid, func() { s.collect(uid) })
}

// later calls f soon, with the lock held.
func (s *Server) later(name string, f func()) {
	time.AfterFunc(s.pause(name, 5*time.Millisecond, 200*time.Millisecond), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		f()
	})
}

// collect deletes the objects that belong to the UID and to nothing else that exists.
func (s *Server) collect(uid string) {
	exists := map[string]bool{}
	for _, obj := range s.objects {
		exists[text(obj, "uid")] = true
	}
	if exists[uid] {
		return
	}
	for _, key := range s.sorted() {
		obj := s.objects[key]
		owners, _ := meta(obj)["ownerReferences"].([]any)
		ours, alive := false, false
		for _, o := range owners {
			owner, _ := o.(map[string]any)
			id, _ := owner["uid"].(string)
			ours = ours || id == uid
			alive = alive || exists[id]
		}
		if ours && !alive && !deleting(obj) {
			s.delete("gc", 0, s.kinds[schema.GroupResource{Group: key.Group, Resource: key.Plural}], key)
		}
	}
}

// orphan removes the references to the UID.
func (s *Server) orphan(uid string) {
	for _, key := range s.sorted() {
		obj := s.objects[key]
		owners, _ := meta(obj)["ownerReferences"].([]any)
		kept := slices.DeleteFunc(slices.Clone(owners), func(o any) bool {
			owner, _ := o.(map[string]any)
			return owner["uid"] == uid
		})
		if len(kept) == len(owners) {
			continue
		}
		after := runtime.DeepCopyJSON(obj)
		meta(after)["ownerReferences"] = kept
		tidy(after)
		s.store("gc", "update", 0, s.kinds[schema.GroupResource{Group: key.Group, Resource: key.Plural}], key, after)
	}
}

func (s *Server) sorted() []Key { return sortedObjects(s.objects) }

func sortedObjects(objects map[Key]Object) []Key {
	keys := slices.Collect(maps.Keys(objects))
	slices.SortFunc(keys, func(a, b Key) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Plural, b.Plural),
			strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return keys
}

// delete marks an object as going, or removes it if it has no finalizer. It returns
// the object if it stays for now.
func (s *Server) delete(actor string, call int, kind *Kind, key Key) Object {
	obj := s.objects[key]
	if key.Plural == "namespaces" && key.Group == "" {
		if !deleting(obj) {
			obj = s.terminate(actor, call, kind, key, obj)
			s.later("namespace "+key.Name, func() { s.empty(kind, key) })
		}
		return obj
	}
	if len(finalizers(obj)) == 0 {
		s.remove(actor, "delete", call, kind, key)
		return nil
	}
	if deleting(obj) {
		return obj
	}
	return s.terminate(actor, call, kind, key, obj)
}

func (s *Server) terminate(actor string, call int, kind *Kind, key Key, obj Object) Object {
	after := runtime.DeepCopyJSON(obj)
	meta(after)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	meta(after)["deletionGracePeriodSeconds"] = int64(0)
	return s.store(actor, "delete", call, kind, key, after)
}

// empty deletes what is in a namespace that is being deleted, and the namespace once
// nothing is left.
func (s *Server) empty(kind *Kind, namespace Key) {
	left := false
	for _, key := range s.sorted() {
		if key.Namespace != namespace.Name {
			continue
		}
		if !deleting(s.objects[key]) {
			s.delete("gc", 0, s.kinds[schema.GroupResource{Group: key.Group, Resource: key.Plural}], key)
		}
		_, still := s.objects[key]
		left = left || still
	}
	switch obj := s.objects[namespace]; {
	case obj == nil:
	case left:
		s.later("namespace "+namespace.Name, func() { s.empty(kind, namespace) })
	case len(finalizers(obj)) == 0:
		s.remove("gc", "delete", 0, kind, namespace)
	}
}

// tidy removes empty lists and maps of the metadata, which the real server does not
// store either.
func tidy(obj Object) {
	m := meta(obj)
	for _, field := range []string{"annotations", "finalizers", "labels", "ownerReferences"} {
		switch value := m[field].(type) {
		case map[string]any:
			if len(value) == 0 {
				delete(m, field)
			}
		case []any:
			if len(value) == 0 {
				delete(m, field)
			}
		case nil:
			delete(m, field)
		}
	}
	delete(m, "managedFields")
	delete(m, "selfLink")
}

// create stores a new object, or says why not.
func (s *Server) create(r *Request, kind *Kind, obj Object) (Object, error) {
	m := meta(obj)
	name, _ := m["name"].(string)
	switch {
	case name == "":
		return nil, apierrors.NewBadRequest("name or generateName is required")
	case m["resourceVersion"] != nil && m["resourceVersion"] != "":
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	case kind.Namespaced && m["namespace"] != nil && m["namespace"] != r.Namespace:
		return nil, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	key := Key{kind.Group, kind.Plural, r.Namespace, name}
	if kind.Namespaced {
		m["namespace"] = r.Namespace
		namespace := s.objects[Key{"", "namespaces", "", r.Namespace}]
		switch {
		case namespace == nil:
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, r.Namespace)
		case deleting(namespace) && s.objects[key] == nil:
			return nil, apierrors.NewForbidden(kind.Resource(), name,
				fmt.Errorf("unable to create new content in namespace %s because it is being terminated", r.Namespace))
		}
	}
	if s.objects[key] != nil {
		return nil, apierrors.NewAlreadyExists(kind.Resource(), name)
	}
	for _, field := range []string{"deletionTimestamp", "deletionGracePeriodSeconds", "generateName"} {
		delete(m, field)
	}
	if kind.Status {
		delete(obj, "status")
	}
	s.uids++
	m["uid"] = fmt.Sprintf("00000000-0000-4000-8000-%012d", s.uids)
	m["generation"] = int64(1)
	m["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	s.admitted(r, obj)
	tidy(obj)
	if err := tooLarge(kind, obj); err != nil {
		return nil, err
	}
	if r.DryRun {
		return obj, nil
	}
	stored := s.store(r.Actor, "create", r.N, kind, key, obj)
	if owners, _ := m["ownerReferences"].([]any); len(owners) > 0 {
		for _, o := range owners {
			owner, _ := o.(map[string]any)
			uid, _ := owner["uid"].(string)
			s.later("gc "+uid, func() { s.collect(uid) })
		}
	}
	return stored, nil
}

// replace stores an object in the place of the one there is, or says why not.
func (s *Server) replace(r *Request, kind *Kind, key Key, obj Object) (Object, error) {
	before := s.objects[key]
	m, old := meta(obj), meta(before)
	if uid, _ := m["uid"].(string); uid != "" && uid != old["uid"] {
		return nil, apierrors.NewConflict(kind.Resource(), key.Name,
			fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, old["uid"])) //nolint:staticcheck // the real server's words
	}
	if version, _ := m["resourceVersion"].(string); version != "" && version != old["resourceVersion"] {
		return nil, apierrors.NewConflict(kind.Resource(), key.Name,
			fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again"))
	}
	if m["name"] != nil && m["name"] != key.Name {
		return nil, apierrors.NewBadRequest("the name of the object does not match the name on the URL")
	}
	for _, field := range []string{"name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "resourceVersion"} {
		if old[field] == nil {
			delete(m, field)
		} else {
			m[field] = old[field]
		}
	}
	obj["apiVersion"], obj["kind"] = before["apiVersion"], before["kind"]
	s.admitted(r, obj)
	switch {
	case r.Subresource == "status":
		status := obj["status"]
		obj = runtime.DeepCopyJSON(before)
		if status == nil {
			delete(obj, "status")
		} else {
			obj["status"] = status
		}
		m = meta(obj)
	case kind.Status:
		if before["status"] == nil {
			delete(obj, "status")
		} else {
			obj["status"] = before["status"]
		}
	}
	tidy(obj)
	if deleting(before) {
		for _, f := range finalizers(obj) {
			if !slices.Contains(finalizers(before), f) {
				return nil, invalid(kind, key.Name, "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted")
			}
		}
	}
	if equal(before, obj) {
		return before, nil
	}
	if err := tooLarge(kind, obj); err != nil {
		return nil, err
	}
	if !sameContent(before, obj) {
		generation, _ := old["generation"].(int64)
		m["generation"] = generation + 1
	}
	if r.DryRun {
		return obj, nil
	}
	if deleting(before) && len(finalizers(obj)) == 0 && key.Plural != "namespaces" {
		s.remove(r.Actor, r.Verb, r.N, kind, key)
		return obj, nil
	}
	return s.store(r.Actor, r.Verb, r.N, kind, key, obj), nil
}

func invalid(kind *Kind, name, why string) error {
	err := apierrors.NewInvalid(kind.GroupKind(), name, nil)
	err.ErrStatus.Message = fmt.Sprintf("%s %q is invalid: %s", kind.Kind, name, why)
	return err
}

// sameContent says whether two objects differ in metadata and status only.
func sameContent(a, b Object) bool {
	strip := func(obj Object) Object {
		obj = maps.Clone(obj)
		delete(obj, "metadata")
		delete(obj, "status")
		return obj
	}
	return equal(strip(a), strip(b))
}

func statusOf(err error) *metav1.Status {
	if status, ok := err.(apierrors.APIStatus); ok {
		s := status.Status()
		s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		return &s
	}
	s := apierrors.NewInternalError(err).Status()
	s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &s
}
