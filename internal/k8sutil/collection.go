package k8sutil

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Collection is all objects of one resource in one namespace (or matching one
// selector): listed once, in pages, and from then on, if asked to, watched from
// the version of that list. Objects handed out are shared and must not be
// changed.
type Collection struct {
	client Source
	opts   metav1.ListOptions
	trim   func(*unstructured.Unstructured)
	retry  func(context.Context, func(context.Context) error) error
	// packed keeps objects as JSON.
	packed bool

	mu       sync.RWMutex
	objects  map[string]item // by namespace/name
	version  string
	applied  string
	changed  func(key string)
	watching bool
}

// NewCollection describes a collection; List fills it. trim may be nil.
func NewCollection(client Source, opts metav1.ListOptions, trim func(*unstructured.Unstructured),
	retry func(context.Context, func(context.Context) error) error,
) *Collection {
	return &Collection{client: client, opts: opts, trim: trim, retry: retry, objects: map[string]item{}}
}

// Named selects the one object of a name.
func Named(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
}

// ListUntil lists again and again, with a pause after each failure, which failed gets, until
// that succeeds. An error says that ctx has ended.
func (c *Collection) ListUntil(ctx context.Context, pause time.Duration, failed func(error)) error {
	for {
		err := c.List(ctx)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		failed(err)
		if err := Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// Pack makes the collection, which must be empty, keep its objects as JSON: a fifth of
// the memory. Each Get then decodes an object again.
func (c *Collection) Pack() *Collection {
	c.packed = true
	return c
}

// item is one object of a collection: as it is, or as JSON.
type item struct {
	object *unstructured.Unstructured
	raw    []byte
}

func (c *Collection) item(obj *unstructured.Unstructured) (item, error) {
	if !c.packed {
		return item{object: obj}, nil
	}
	raw, err := json.Marshal(obj.Object)
	if err != nil {
		return item{}, fmt.Errorf("cannot encode %s %s: %w", obj.GetKind(), Key(obj), err)
	}
	return item{raw: raw}, nil
}

// get returns the object, nil for the zero item.
func (i item) get() *unstructured.Unstructured {
	if i.raw == nil {
		return i.object
	}
	object, err := decodeObject(i.raw)
	if err != nil {
		panic(fmt.Sprintf("cannot decode what this process has encoded: %v", err))
	}
	return &unstructured.Unstructured{Object: object}
}

// same says whether two items are one state of one object.
func (i item) same(other item) bool {
	if i.object == nil || other.object == nil {
		return bytes.Equal(i.raw, other.raw) && i.object == other.object
	}
	return i.object.GetUID() == other.object.GetUID() && i.object.GetResourceVersion() == other.object.GetResourceVersion()
}

// List reads the whole collection, in pages.
func (c *Collection) List(ctx context.Context) error {
	objects, version, err := c.read(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects, c.version, c.applied = objects, version, version
	return nil
}

// Version is the resource version that the collection has reached: it has all changes up to
// that one, and the function that Watch was given was told of them. "" before the first List.
// Versions of one resource can be compared: see IsBefore.
func (c *Collection) Version() string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.applied
}

// IsBefore tells whether a resource version is an earlier one than another, of one resource. "" is
// before all, and nothing is before it. What is no version is before all, too.
func IsBefore(version, other string) bool {
	switch {
	case other == "":
		return false
	case version == "":
		return true
	}
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err != nil || order < 0
}

func (c *Collection) read(ctx context.Context) (map[string]item, string, error) {
	var objects map[string]item
	version, err := Page(ctx, c.client, c.opts, c.retry,
		func() { objects = map[string]item{} },
		func(obj *unstructured.Unstructured) error {
			// A copy of the header only: the page's slice must not stay alive
			// because of one object in it.
			own := &unstructured.Unstructured{Object: obj.Object}
			c.prepare(own)
			key := Key(own)
			one, err := c.item(own)
			if err != nil {
				return err
			}
			if known := c.known(key); one.same(known) {
				one = known // holders of an earlier list and of this one share it
			}
			objects[key] = one
			return nil
		})
	return objects, version, err
}

func (c *Collection) prepare(obj *unstructured.Unstructured) {
	Trim(obj)
	if c.trim != nil {
		c.trim(obj)
	}
}

// Get returns the object as last seen, nil if there is none.
func (c *Collection) Get(namespace, name string) *unstructured.Unstructured {
	return c.known(namespace + "/" + name).get()
}

func (c *Collection) known(key string) item {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.objects[key]
}

// All returns every object, in no order.
func (c *Collection) All() []*unstructured.Unstructured {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]*unstructured.Unstructured, 0, len(c.objects))
	for _, one := range c.objects {
		all = append(all, one.get())
	}
	return all
}

// Each hands over one object after the other, by namespace and name.
func (c *Collection) Each(fn func(*unstructured.Unstructured)) {
	c.mu.RLock()
	objects := maps.Clone(c.objects)
	c.mu.RUnlock()
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		fn(objects[key].get())
	}
}

// Watch keeps the collection current until ctx ends, and calls changed with the
// key ("namespace/name") of each object that came, changed or went. It is one
// watch, begun at the version of the last List; if the server no longer has
// that version, the collection is listed again. A second call does nothing.
func (c *Collection) Watch(ctx context.Context, changed func(key string)) {
	c.mu.Lock()
	if c.watching {
		c.mu.Unlock()
		return
	}
	c.watching, c.changed = true, changed
	c.mu.Unlock()
	lw := &listWatch{collection: c}
	reflector := cache.NewReflectorWithOptions(lw, nil, (*collectionStore)(c), cache.ReflectorOptions{
		Backoff: &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.3, Steps: 6, Cap: 5 * time.Second},
	})
	go reflector.RunWithContext(ctx)
}

// Watching says whether Watch was called.
func (c *Collection) Watching() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.watching
}

// listWatch feeds a reflector: its first list is what the collection holds
// already, so that nothing is listed twice. Lists reach the collection without the
// reflector: what that gets has a version and no objects.
type listWatch struct {
	collection *Collection
	relist     bool
}

func (l *listWatch) List(opts metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), opts)
}

func (l *listWatch) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), opts)
}

func (l *listWatch) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	c := l.collection
	if l.relist {
		objects, version, err := c.read(ctx)
		if err != nil {
			return nil, err
		}
		c.replace(objects, version)
	}
	l.relist = true
	list := &unstructured.UnstructuredList{Object: map[string]any{"metadata": map[string]any{}}}
	c.mu.RLock()
	list.SetResourceVersion(c.version)
	c.mu.RUnlock()
	return list, nil
}

func (l *listWatch) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.LabelSelector, opts.FieldSelector = l.collection.opts.LabelSelector, l.collection.opts.FieldSelector
	return l.collection.client.Watch(ctx, opts)
}

// IsWatchListSemanticsUnSupported keeps the reflector from streaming the initial
// list: the collection has it, and Kubernetes 1.16 cannot stream it.
func (l *listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// collectionStore is the reflector's end of a Collection.
type collectionStore Collection

func (s *collectionStore) Add(obj any) error    { return s.set(obj, false) }
func (s *collectionStore) Update(obj any) error { return s.set(obj, false) }
func (s *collectionStore) Delete(obj any) error { return s.set(obj, true) }
func (s *collectionStore) Resync() error        { return nil }

func (s *collectionStore) set(obj any, gone bool) error {
	c := (*Collection)(s)
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	key := Key(u)
	var one item
	if !gone {
		c.prepare(u)
		var err error
		if one, err = c.item(u); err != nil {
			return err
		}
	}
	c.mu.Lock()
	if gone {
		delete(c.objects, key)
	} else {
		c.objects[key] = one
	}
	changed := c.changed
	c.mu.Unlock()
	changed(key)
	return nil
}

// Replace does nothing: see listWatch.
func (s *collectionStore) Replace([]any, string) error { return nil }

// UpdateResourceVersion is called by the reflector after each change, and for each bookmark.
func (s *collectionStore) UpdateResourceVersion(version string) {
	c := (*Collection)(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.applied = version
}

// replace puts what was listed in the place of what is known.
func (c *Collection) replace(objects map[string]item, version string) {
	c.mu.Lock()
	before := c.objects
	c.objects, c.version = objects, version
	changed := c.changed
	c.mu.Unlock()
	for key, one := range objects {
		if old, known := before[key]; !known || !one.same(old) {
			changed(key)
		}
	}
	for key := range before {
		if _, there := objects[key]; !there {
			changed(key)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.applied = version
}
