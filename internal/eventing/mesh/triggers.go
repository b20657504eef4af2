package mesh

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

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice"
	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// readBudget is how long one list of the Triggers is tried.
const readBudget = 10 * time.Second

// ErrNoKind says that the cluster does not serve the kinds of the mesh.
var ErrNoKind = errors.New("the API server does not serve Triggers at v1: install Knative Eventing")

// NotReady says what Triggers of a Subscription wait for. A change of them is told.
type NotReady string

// Error implements error.
func (n NotReady) Error() string { return string(n) }

// Triggers are those of one installation. Methods for different Subscriptions can be called at the
// same time.
type Triggers struct {
	triggers, brokers dynamic.ResourceInterface
	probed            dynamic.ResourceInterface // for what each process may write
	namespace         string
	names             backend.Names
	version           string
	log               *zap.Logger
	changed           func(subscription types.NamespacedName)

	poster *eventservice.Poster
	wake   chan struct{} // asked has something new

	mu    sync.Mutex
	known *k8sutil.Collection // nil: they are not followed
	stop  context.CancelFunc
	asked Broker // whose Triggers are probed
	// of has the Subscription of each Trigger, by the name of the Trigger.
	of map[string]types.NamespacedName
	// arrived has the Triggers that a probe has come through and that are not written yet: by name,
	// which creation. noting: they are being written.
	arrived map[string]string
	noting  bool
}

// New returns the Triggers in a namespace. client is the leader's, and probed that of any process.
// changed is called with the Subscription of each Trigger that comes, changes or goes.
func New(client, probed dynamic.Interface, namespace string, names backend.Names, version string, log *zap.Logger, changed func(types.NamespacedName)) *Triggers {
	return &Triggers{
		triggers: client.Resource(triggers).Namespace(namespace), brokers: client.Resource(brokers).Namespace(namespace), probed: probed.Resource(triggers).Namespace(namespace),
		namespace: namespace, names: names, version: version, log: log, changed: changed,
		poster: eventservice.NewPoster("eventing-controller", backend.MeshTimeout, 1), wake: make(chan struct{}, 1), arrived: map[string]string{},
	}
}

// Follow reads the Triggers, and watches them until Leave. Without need, it only does so if there
// are any. ErrNoKind if there cannot be any.
func (t *Triggers) Follow(ctx context.Context, need bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known != nil {
		if !need && len(t.of) == 0 {
			t.leave()
		}
		return nil
	}
	known := t.collection(t.triggers, nil)
	err := t.adopt(ctx)
	if err == nil {
		err = known.List(ctx)
	}
	switch {
	case apierrors.IsNotFound(err):
		return ErrNoKind
	case err != nil:
		return fmt.Errorf("cannot list Triggers: %w", err)
	}
	of := map[string]types.NamespacedName{}
	for _, u := range known.All() {
		of[u.GetName()] = subscriptionOf(u)
	}
	if !need && len(of) == 0 {
		return nil
	}
	// The watch is longer than the request that begins it.
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	t.known, t.stop, t.of, t.asked = known, stop, of, Broker{}
	known.Watch(watching, func(key string) { t.note(known, key) })
	go t.probes(watching, known)
	return nil
}

// adopt gives the Triggers of an earlier version the label by which they are found, and removes the
// one that tools for deployments claim.
func (t *Triggers) adopt(ctx context.Context) error {
	former := labels.Set{backend.PlaneLabel: string(backend.PlaneMesh), backend.PodInstanceLabel: string(t.names)}.String()
	list, err := t.triggers.List(ctx, metav1.ListOptions{LabelSelector: former})
	if err != nil {
		return err
	}
	for i := range list.Items {
		is := &list.Items[i]
		if !t.names.Ours(is.GetLabels()) {
			continue
		}
		want := map[string]any{backend.InstanceLabel: string(t.names), backend.PodInstanceLabel: nil}
		if err := t.mark(ctx, is, want, nil); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// collection is that of all Triggers of the installation, of which trim keeps a part. It is empty.
func (t *Triggers) collection(client dynamic.ResourceInterface, trim func(*unstructured.Unstructured)) *k8sutil.Collection {
	ours := labels.Set{backend.PlaneLabel: string(backend.PlaneMesh), backend.InstanceLabel: string(t.names)}.String()
	warn := func(err error) { t.log.Warn("cannot read Triggers, retrying", zap.Error(err)) }
	return k8sutil.NewCollection(client, metav1.ListOptions{LabelSelector: ours}, trim, func(ctx context.Context, op func(context.Context) error) error {
		return k8sutil.Retry(ctx, readBudget, warn, op)
	})
}

// note tells of a Trigger that came, changed or went.
func (t *Triggers) note(in *k8sutil.Collection, key string) {
	_, name, _ := strings.Cut(key, "/")
	u := in.Get(t.namespace, name)
	t.mu.Lock()
	if t.known != in {
		t.mu.Unlock()
		return
	}
	before, now := t.of[name], types.NamespacedName{}
	if u != nil {
		now = subscriptionOf(u)
		t.of[name] = now
	} else {
		delete(t.of, name)
	}
	t.mu.Unlock()
	for _, subscription := range slices.Compact([]types.NamespacedName{before, now}) {
		if subscription.Name != "" {
			t.changed(subscription)
		}
	}
}

// Leave ends what Follow began.
func (t *Triggers) Leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave()
}

func (t *Triggers) leave() {
	if t.known != nil {
		t.stop()
		t.known, t.stop, t.of, t.asked = nil, nil, nil, Broker{}
	}
}

// Subscriptions are those that have a Trigger, each once.
func (t *Triggers) Subscriptions() map[types.NamespacedName]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[types.NamespacedName]bool{}
	for _, subscription := range t.of {
		if subscription.Name != "" {
			all[subscription] = true
		}
	}
	return all
}

// seen are the Triggers of a Subscription by name, nil if Triggers are not followed.
func (t *Triggers) seen(subscription types.NamespacedName) (known *k8sutil.Collection, names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, of := range t.of {
		if of == subscription {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return t.known, names
}

// Has tells whether a Subscription has Triggers.
func (t *Triggers) Has(subscription types.NamespacedName) bool {
	_, names := t.seen(subscription)
	return len(names) > 0
}

// BrokerUID reads the UID of a Broker, "" if there is none.
func (t *Triggers) BrokerUID(ctx context.Context, name string) (types.UID, error) {
	u, err := t.brokers.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("cannot read Broker %s/%s: %w", t.namespace, name, err)
	}
	return u.GetUID(), nil
}

// Ensure returns nil if a Subscription has the Triggers that it needs and no other one, Knative
// says that they are ready, and a probe has come through each. NotReady says what they wait for.
func (t *Triggers) Ensure(ctx context.Context, s *eventingv1alpha2.Subscription, b Broker) error {
	known, names := t.seen(types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
	if known == nil {
		return NotReady(ErrNoKind.Error())
	}
	if b.UID == "" {
		return NotReady(fmt.Sprintf("Broker %s/%s does not exist", t.namespace, b.Name))
	}
	wanted := t.wanted(s, b)
	var waits error
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		err := t.ensure(ctx, known, wanted[name], b)
		if notReady := NotReady(""); errors.As(err, &notReady) {
			waits = err
		} else if err != nil {
			return err
		}
	}
	// After the new ones: events of a type that is in both have a Trigger all the time.
	for _, name := range names {
		if wanted[name] == nil {
			if err := t.delete(ctx, known.Get(t.namespace, name)); err != nil {
				return err
			}
		}
	}
	return waits
}

func (t *Triggers) ensure(ctx context.Context, known *k8sutil.Collection, want *unstructured.Unstructured, b Broker) error {
	key := t.namespace + "/" + want.GetName()
	is := known.Get(t.namespace, want.GetName())
	if is == nil {
		err := t.create(ctx, want)
		if err == nil {
			return notYet(key)
		}
		if apierrors.IsAlreadyExists(err) { // the watch is late, or somebody has removed the labels by which it is found
			is, err = t.triggers.Get(ctx, want.GetName(), metav1.GetOptions{})
		}
		if err != nil {
			return fmt.Errorf("cannot create Trigger %s: %w", key, err)
		}
	}
	switch {
	case is.GetDeletionTimestamp() != nil:
		return NotReady("Trigger " + key + " is being deleted")
	case differs(is, want):
		if err := t.delete(ctx, is); err != nil {
			return err
		}
		if err := t.create(ctx, want); err != nil {
			return fmt.Errorf("cannot create Trigger %s: %w", key, err)
		}
		return notYet(key)
	case !marked(is, want) || t.names.Former(is.GetLabels()):
		marks := map[string]any{}
		for key, value := range want.GetLabels() {
			marks[key] = value
		}
		if t.names.Former(is.GetLabels()) {
			marks[backend.PodInstanceLabel] = nil
		}
		if err := t.mark(ctx, is, marks, want.GetAnnotations()); err != nil {
			return err
		}
	}
	switch ready := k8sobject.ReadinessOf(is); {
	case ready.OK():
	case ready.Status == "" || !ready.Current:
		return notYet(key)
	default:
		return NotReady("Trigger " + key + " " + ready.Problem())
	}
	if !reached(is) {
		t.ask(known, b)
		return NotReady("Trigger " + key + " is ready, and no event has come through it yet")
	}
	return nil
}

func (t *Triggers) create(ctx context.Context, want *unstructured.Unstructured) error {
	u, err := another(want)
	if err == nil {
		_, err = t.triggers.Create(ctx, u, metav1.CreateOptions{})
	}
	return err
}

// notYet is what is said of a Trigger until Knative has something to say: each text of its own
// would be a write of the Subscription.
func notYet(trigger string) NotReady { return NotReady("Trigger " + trigger + " is not ready yet") }

// mark writes labels, of which nil removes one, and annotations, if nobody has changed the Trigger
// meanwhile.
func (t *Triggers) mark(ctx context.Context, is *unstructured.Unstructured, labels map[string]any, annotations map[string]string) error {
	metadata := map[string]any{"resourceVersion": is.GetResourceVersion(), "uid": is.GetUID(), "labels": labels}
	if annotations != nil { // null would remove all
		metadata["annotations"] = annotations
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	if _, err := t.triggers.Patch(ctx, is.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("cannot mark Trigger %s/%s: %w", t.namespace, is.GetName(), err)
	}
	return nil
}

// Delete deletes the Triggers of a Subscription.
func (t *Triggers) Delete(ctx context.Context, subscription types.NamespacedName) error {
	known, names := t.seen(subscription)
	var errs []error
	for _, name := range names {
		errs = append(errs, t.delete(ctx, known.Get(t.namespace, name)))
	}
	return errors.Join(errs...)
}

// delete deletes a Trigger in the version that was seen.
func (t *Triggers) delete(ctx context.Context, is *unstructured.Unstructured) error {
	if is == nil || is.GetDeletionTimestamp() != nil {
		return nil
	}
	uid, version := is.GetUID(), is.GetResourceVersion()
	err := t.triggers.Delete(ctx, is.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot delete Trigger %s/%s: %w", t.namespace, is.GetName(), err)
	}
	return nil
}
