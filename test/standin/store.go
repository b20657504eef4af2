package standin

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// store is one kind as its informer saw it last, or as the stand-in itself wrote
// it since. Without the latter, each step would have to wait for its own write
// to come back over the watch.
type store struct {
	gvk      schema.GroupVersionKind
	resource dynamic.NamespaceableResourceInterface
	informer cache.SharedIndexInformer

	changed func(key string)

	mu      sync.Mutex
	written map[string]*unstructured.Unstructured
	// gone are the objects whose deletion was seen: the answer to a create or
	// update may come in later than that, and must not restore them.
	gone map[types.UID]struct{}
}

// ownFor is for how long an own write counts that the watch has not shown. An object that was made
// and deleted while there was no watch, as after its CRD went and came back, is in none, ever.
const ownFor = 5 * time.Second

func newStore(client dynamic.Interface, gvr schema.GroupVersionResource, kind string) *store {
	resource := client.Resource(gvr)
	return &store{
		gvk:      gvr.GroupVersion().WithKind(kind),
		resource: resource,
		informer: cache.NewSharedIndexInformerWithOptions(kubernetes.ListWatch(resource.List, resource.Watch), &unstructured.Unstructured{},
			cache.SharedIndexInformerOptions{ObjectDescription: gvr.String()}),
		written: map[string]*unstructured.Unstructured{},
		gone:    map[types.UID]struct{}{},
	}
}

// watch calls changed with the key of every object that changes.
func (s *store) watch(changed func(key string)) error {
	s.changed = changed
	if err := s.informer.SetTransform(trim); err != nil {
		return fmt.Errorf("cannot watch %s: %w", s.gvk.Kind, err)
	}
	_, err := s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { changed(s.observed(obj)) },
		UpdateFunc: func(_, obj any) { changed(s.observed(obj)) },
		DeleteFunc: func(obj any) { changed(s.vanished(obj)) },
	})
	if err != nil {
		return fmt.Errorf("cannot watch %s: %w", s.gvk.Kind, err)
	}
	return nil
}

func trim(obj any) (any, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		u.SetManagedFields(nil)
	}
	return obj, nil
}

// observed forgets the own copy of what the informer has now seen.
func (s *store) observed(obj any) string {
	u := obj.(*unstructured.Unstructured)
	key := keyOf(u)
	s.mu.Lock()
	defer s.mu.Unlock()
	if own := s.written[key]; own != nil && !newer(own, u) {
		delete(s.written, key)
	}
	return key
}

func (s *store) vanished(obj any) string {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	u := obj.(*unstructured.Unstructured)
	key := keyOf(u)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone[u.GetUID()] = struct{}{}
	if own := s.written[key]; own != nil && own.GetUID() == u.GetUID() {
		delete(s.written, key)
	}
	return key
}

// wrote remembers what the API server answered to an own write.
func (s *store) wrote(u *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, gone := s.gone[u.GetUID()]; !gone {
		s.written[keyOf(u)] = u
		time.AfterFunc(ownFor, func() { s.forget(u) })
	}
}

// forget an own write, if it is still the newest state known, and look at the object again.
func (s *store) forget(u *unstructured.Unstructured) {
	key := keyOf(u)
	s.mu.Lock()
	held := s.written[key] == u
	if held {
		delete(s.written, key)
	}
	s.mu.Unlock()
	if held {
		s.changed(key)
	}
}

// get returns the newest state known, nil if there is none. It is shared: not
// to be changed.
func (s *store) get(key string) *unstructured.Unstructured {
	// The informer's copy is read under the lock: its event, which forgets the
	// own copy, comes after it, so that one of the two is always the newest.
	s.mu.Lock()
	defer s.mu.Unlock()
	var seen *unstructured.Unstructured
	if obj, exists, _ := s.informer.GetStore().GetByKey(key); exists {
		seen = obj.(*unstructured.Unstructured)
	}
	if own := s.written[key]; own != nil && (seen == nil || newer(own, seen)) {
		return own
	}
	return seen
}

func (s *store) allReady() bool {
	for _, key := range s.informer.GetStore().ListKeys() {
		if !isReady(s.get(key)) {
			return false
		}
	}
	return true
}

func (s *store) create(ctx context.Context, u *unstructured.Unstructured) error {
	u.SetGroupVersionKind(s.gvk)
	made, err := s.resource.Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("cannot create %s %s: %w", s.gvk.Kind, keyOf(u), err)
	}
	s.wrote(made)
	return nil
}

func (s *store) update(ctx context.Context, u *unstructured.Unstructured) error {
	made, err := s.resource.Namespace(u.GetNamespace()).Update(ctx, u, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("cannot update %s %s: %w", s.gvk.Kind, keyOf(u), err)
	}
	s.wrote(made)
	return nil
}

// setStatus writes the status if it is another one than the object has.
func (s *store) setStatus(ctx context.Context, u *unstructured.Unstructured, status map[string]any) error {
	if equality.Semantic.DeepEqual(u.Object["status"], any(status)) {
		return nil
	}
	u = u.DeepCopy()
	u.Object["status"] = status
	made, err := s.resource.Namespace(u.GetNamespace()).UpdateStatus(ctx, u, metav1.UpdateOptions{})
	// Its deletion is on the way to the informer.
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot update the status of %s %s: %w", s.gvk.Kind, keyOf(u), err)
	}
	s.wrote(made)
	return nil
}

// newer says whether a is a later state than b. Versions that cannot be
// compared count as older, which costs a conflict and a second attempt.
func newer(a, b *unstructured.Unstructured) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order > 0
}

func keyOf(u *unstructured.Unstructured) string { return u.GetNamespace() + "/" + u.GetName() }

func splitKey(key string) (namespace, name string) {
	namespace, name, _ = strings.Cut(key, "/")
	return namespace, name
}
