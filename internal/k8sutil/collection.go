package k8sutil

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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

	mu       sync.RWMutex
	objects  map[string]*unstructured.Unstructured // by namespace/name
	version  string
	changed  func(key string)
	watching bool
}

// NewCollection describes a collection; List fills it. trim may be nil.
func NewCollection(client Source, opts metav1.ListOptions, trim func(*unstructured.Unstructured),
	retry func(context.Context, func(context.Context) error) error,
) *Collection {
	return &Collection{client: client, opts: opts, trim: trim, retry: retry, objects: map[string]*unstructured.Unstructured{}}
}

// List reads the whole collection, in pages.
func (c *Collection) List(ctx context.Context) error {
	objects, version, err := c.read(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects, c.version = objects, version
	return nil
}

func (c *Collection) read(ctx context.Context) (map[string]*unstructured.Unstructured, string, error) {
	var objects map[string]*unstructured.Unstructured
	version, err := Page(ctx, c.client, c.opts, c.retry,
		func() { objects = map[string]*unstructured.Unstructured{} },
		func(obj *unstructured.Unstructured) error {
			// A copy of the header only: the page's slice must not stay alive
			// because of one object in it.
			own := &unstructured.Unstructured{Object: obj.Object}
			c.prepare(own)
			if known := c.Get(own.GetNamespace(), own.GetName()); known != nil && known.GetUID() == own.GetUID() && known.GetResourceVersion() == own.GetResourceVersion() {
				own = known // whoever holds it from an earlier list, and this one, share it
			}
			objects[Key(own)] = own
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
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.objects[namespace+"/"+name]
}

// All returns every object, in no order.
func (c *Collection) All() []*unstructured.Unstructured {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]*unstructured.Unstructured, 0, len(c.objects))
	for _, obj := range c.objects {
		all = append(all, obj)
	}
	return all
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
// already, so that nothing is listed twice.
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
	var objects map[string]*unstructured.Unstructured
	var version string
	if l.relist {
		var err error
		if objects, version, err = c.read(ctx); err != nil {
			return nil, err
		}
	} else {
		c.mu.RLock()
		objects, version = c.objects, c.version
		c.mu.RUnlock()
	}
	l.relist = true
	list := &unstructured.UnstructuredList{Object: map[string]any{"metadata": map[string]any{}}}
	list.SetResourceVersion(version)
	list.Items = make([]unstructured.Unstructured, 0, len(objects))
	for _, obj := range objects {
		list.Items = append(list.Items, *obj)
	}
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
	if !gone {
		c.prepare(u)
	}
	c.mu.Lock()
	if gone {
		delete(c.objects, key)
	} else {
		c.objects[key] = u
	}
	changed := c.changed
	c.mu.Unlock()
	changed(key)
	return nil
}

func (s *collectionStore) Replace(list []any, version string) error {
	c := (*Collection)(s)
	objects := make(map[string]*unstructured.Unstructured, len(list))
	for _, obj := range list {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			own := &unstructured.Unstructured{Object: u.Object}
			objects[Key(own)] = own
		}
	}
	c.mu.Lock()
	before := c.objects
	c.objects, c.version = objects, version
	changed := c.changed
	c.mu.Unlock()
	for key, obj := range objects {
		if old := before[key]; old == nil || old.GetResourceVersion() != obj.GetResourceVersion() {
			changed(key)
		}
	}
	for key := range before {
		if objects[key] == nil {
			changed(key)
		}
	}
	return nil
}
