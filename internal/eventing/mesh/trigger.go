package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	"k8s.io/client-go/util/workqueue"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice"
	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

const (
	// readBudget is how long one list of the Triggers is tried.
	readBudget = 10 * time.Second
	// writers is how many Triggers are deleted at a time.
	writers = 8
	// admittedAgain is how long until it is asked again whether the API server would store the
	// Trigger as it is wanted.
	admittedAgain = 5 * time.Second
)

// ErrNoKind says that the cluster does not serve the kinds of the mesh.
var ErrNoKind = errors.New("the API server does not serve Triggers at v1: install Knative Eventing")

// NotReady says what the Trigger waits for. A change of it is told.
type NotReady string

// Error implements error.
func (n NotReady) Error() string { return string(n) }

// Refuses says why the mesh refuses each event, although Knative says that all of it is ready.
type Refuses string

// Error implements error.
func (r Refuses) Error() string { return string(r) }

// Trigger is that of one installation. Its methods can be called at the same time.
type Trigger struct {
	triggers          objects
	brokers, channels dynamic.ResourceInterface
	probed            dynamic.ResourceInterface // for what each process may write
	namespace         string
	names             backend.Names
	version           string
	log               *zap.Logger
	changed           func()

	poster *eventservice.Poster
	wake   chan struct{} // asked has something new

	mu    sync.Mutex
	known *k8sutil.Collection // nil: it is not followed. Triggers of an earlier version are among them
	// channel is the Channel of the Broker; nil: it is not followed. channelAsked is when it was
	// asked for.
	channel      *k8sutil.Collection
	channelAsked time.Time
	stop         context.CancelFunc
	asked        Broker // whose Trigger is probed
	// noting is which creation this process is writing a probe of, noted the one of which it has
	// done so last, at notedAt.
	noting, noted string
	notedAt       time.Time
	again         *time.Timer // nil: nothing has changed what is wanted

	health *health
}

// Options are those of a Trigger. All are required.
type Options struct {
	// Client is the leader's, and Probed that of any process.
	Client, Probed dynamic.Interface
	Namespace      string
	Names          backend.Names
	Version        string
	// Lease is how long the leader leads without renewing it. What is found out in the time of one
	// renewal is looked at that often.
	Lease time.Duration
	Log   *zap.Logger
	// Changed is called when the Trigger, or one of an earlier version, comes, changes or goes, and
	// when the mesh begins or stops to refuse events.
	Changed func()
}

// New returns the Trigger in a namespace.
func New(o Options) *Trigger {
	in := objects{o.Client.Resource(triggers).Namespace(o.Namespace), o.Namespace}
	return &Trigger{
		triggers: in, brokers: o.Client.Resource(brokers).Namespace(o.Namespace),
		channels: o.Client.Resource(channels).Namespace(o.Namespace), probed: o.Probed.Resource(triggers).Namespace(o.Namespace),
		namespace: o.Namespace, names: o.Names, version: o.Version, log: o.Log, changed: o.Changed,
		poster: eventservice.NewPoster("eventing-controller", backend.MeshTimeout, 1), wake: make(chan struct{}, 1),
		health: &health{triggers: in, channel: o.Names.BrokerChannel(), changed: o.Changed, every: o.Lease * 2 / 3},
	}
}

// Follow reads the Triggers, and watches them until Leave. Without need, it only does so if there
// are any. ErrNoKind if there cannot be any.
func (t *Trigger) Follow(ctx context.Context, need bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known != nil {
		if !need && len(t.known.All()) == 0 {
			t.leave()
		} else {
			t.followChannel(ctx)
		}
		return nil
	}
	ours := labels.Set{backend.PlaneLabel: string(backend.PlaneMesh), backend.InstanceLabel: string(t.names)}.String()
	warn := func(err error) { t.log.Warn("cannot read Triggers, retrying", zap.Error(err)) }
	known := k8sutil.NewCollection(t.triggers, metav1.ListOptions{LabelSelector: ours}, nil, k8sutil.Retrying(readBudget, warn))
	err := t.adopt(ctx)
	if err == nil {
		err = known.List(ctx)
	}
	switch {
	case apierrors.IsNotFound(err):
		return ErrNoKind
	case err != nil:
		return fmt.Errorf("cannot list Triggers: %w", err)
	case !need && len(known.All()) == 0:
		return nil
	}
	// The watch is longer than the request that begins it.
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	t.known, t.stop, t.asked = known, stop, Broker{}
	known.Watch(watching, func(string) { t.changed() })
	t.followChannel(ctx)
	go t.probes(watching, known)
	return nil
}

// adopt gives the Triggers of an earlier version the label by which they are found, and removes the
// one that tools for deployments claim.
func (t *Trigger) adopt(ctx context.Context) error {
	former := labels.Set{backend.PlaneLabel: string(backend.PlaneMesh), backend.PodInstanceLabel: string(t.names)}.String()
	list, err := t.triggers.List(ctx, metav1.ListOptions{LabelSelector: former})
	if err != nil {
		return err
	}
	var errs []error
	for i := range list.Items {
		is := &list.Items[i]
		if !t.names.Ours(is.GetLabels()) {
			continue
		}
		want := map[string]any{backend.InstanceLabel: string(t.names), backend.PodInstanceLabel: nil}
		if _, err := t.triggers.mark(ctx, is, map[string]any{"labels": want}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err) // Knative has written its status meanwhile; the others are marked
		}
	}
	return errors.Join(errs...)
}

// Leave ends what Follow began.
func (t *Trigger) Leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave()
}

func (t *Trigger) leave() {
	if t.again != nil {
		t.again.Stop()
	}
	if t.known != nil {
		t.stop()
		t.known, t.channel, t.channelAsked, t.stop, t.asked = nil, nil, time.Time{}, nil, Broker{}
	}
}

// seen are the Triggers, and the Channel of the Broker, as the watches know them.
func (t *Trigger) seen() (known, channel *k8sutil.Collection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known, t.channel
}

// BrokerUID reads the UID of a Broker, "" if there is none.
func (t *Trigger) BrokerUID(ctx context.Context, name string) (types.UID, error) {
	u, err := t.brokers.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("cannot read Broker %s/%s: %w", t.namespace, name, err)
	}
	return u.GetUID(), nil
}

// Ensure returns nil if a Trigger leads all events of a Broker to the controller: Knative says that
// it is ready, and a probe has come through it. NotReady says what it waits for. Then the one that
// it replaces is deleted: one that somebody has edited, or that of a former Broker. Until then,
// that one may be what events come through. Refuses if the mesh takes no event.
//
// Those of an earlier version, one for each type of a Subscription, stay as long as the Broker
// does: Knative refuses all events after several Triggers of one Broker were deleted.
func (t *Trigger) Ensure(ctx context.Context, b Broker) error {
	known, channel := t.seen()
	if known == nil {
		return NotReady(ErrNoKind.Error())
	}
	if b.UID == "" {
		if err := t.letGo(ctx, known); err != nil {
			return err
		}
		return NotReady(fmt.Sprintf("Broker %s/%s does not exist", t.namespace, b.Name))
	}
	is, err := t.find(ctx, known, b)
	if err != nil {
		return err
	}
	key := t.namespace + "/" + is.GetName()
	if want := t.wanted(b, is.GetName()); !marked(is, want) || t.names.Former(is.GetLabels()) {
		marks := map[string]any{}
		for key, value := range want.GetLabels() {
			marks[key] = value
		}
		if t.names.Former(is.GetLabels()) {
			marks[backend.PodInstanceLabel] = nil
		}
		finalizers := is.GetFinalizers()
		if !held(is) {
			finalizers = append(finalizers, backend.TriggerFinalizer)
		}
		marked := map[string]any{"labels": marks, "annotations": want.GetAnnotations(), "finalizers": finalizers}
		if _, err := t.triggers.mark(ctx, is, marked); err != nil {
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
	t.ask(known, b)
	if !reached(is) {
		return NotReady("Trigger " + key + " is ready, and no event has come through it yet")
	}
	for _, name := range t.names.Triggers() {
		if former := known.Get(t.namespace, name); former != nil && name != is.GetName() {
			if err := t.triggers.replaced(ctx, former); err != nil {
				return err
			}
		}
	}
	if t.health.drops(channel, is) {
		t.log.Warn("the Channel of the Broker has no subscriber for the Trigger, and drops events: another Trigger is created", zap.String("trigger", key))
		return cmp.Or(t.triggers.delete(ctx, is, metav1.DeletePropagationBackground), beingDeleted(is))
	}
	return t.health.refuses(ctx, known, channel)
}

// find returns the Trigger that does what is wanted, one that a probe has come through if there is
// one. If there is none, it creates it: under a second name if that of the first one is taken.
func (t *Trigger) find(ctx context.Context, known *k8sutil.Collection, b Broker) (*unstructured.Unstructured, error) {
	var is *unstructured.Unstructured
	for _, name := range t.names.Triggers() {
		u := known.Get(t.namespace, name)
		if u != nil && t.does(u, b) && (is == nil || !reached(is)) {
			is = u
		}
	}
	if is != nil {
		return is, nil
	}
	// The watch may be late, or somebody has removed the labels by which it is found.
	for _, name := range t.names.Triggers() {
		if known.Get(t.namespace, name) != nil {
			continue
		}
		u, err := t.triggers.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("cannot read Trigger %s/%s: %w", t.namespace, name, err)
		case t.does(u, b):
			return u, nil
		case u.GetDeletionTimestamp() == nil || !t.names.Ours(u.GetLabels()):
			if err := t.triggers.remove(ctx, u); err != nil {
				return nil, err
			}
		}
	}
	if err := t.admitted(ctx, b); err != nil {
		return nil, t.cannotCreate(ctx, known, t.names.Triggers()[0], err)
	}
	for _, name := range t.names.Triggers() {
		if known.Get(t.namespace, name) != nil {
			continue
		}
		_, err := t.triggers.Create(ctx, t.wanted(b, name), metav1.CreateOptions{})
		if err == nil {
			return nil, notYet(t.namespace + "/" + name)
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, t.cannotCreate(ctx, known, name, err)
		}
	}
	return nil, t.makeRoom(ctx, known)
}

// admitted returns nil if the API server would store what is wanted. A webhook or a policy may
// change each Trigger: one after the other would be created and deleted without an end.
func (t *Trigger) admitted(ctx context.Context, b Broker) error {
	want := t.wanted(b, "")
	want.SetGenerateName(t.names.Triggers()[0] + "-")
	is, err := t.triggers.Create(ctx, want, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsBadRequest(err) {
		return nil // a webhook cannot be asked so
	}
	if err != nil {
		return err
	}
	if found := differences(is, want); len(found) > 0 {
		t.later()
		return NotReady(fmt.Sprintf("A webhook or a policy of the cluster changes each Trigger in namespace %s: %s. None is created so. Except this namespace from it. To see the webhooks: kubectl get mutatingwebhookconfigurations",
			t.namespace, strings.Join(found, "; ")))
	}
	return nil
}

// later lets the Trigger be looked after again when nothing that is watched may change.
func (t *Trigger) later() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.again != nil {
		t.again.Stop()
	}
	t.again = time.AfterFunc(admittedAgain, t.changed)
}

// cannotCreate is the reason why there is no Trigger.
func (t *Trigger) cannotCreate(ctx context.Context, known *k8sutil.Collection, name string, err error) error {
	if _, ok := errors.AsType[NotReady](err); ok {
		return err
	}
	err = fmt.Errorf("cannot create Trigger %s/%s: %w", t.namespace, name, err)
	if refusesNew(err) {
		err = errors.Join(err, t.letGo(ctx, known))
	}
	return err
}

// makeRoom removes one of two Triggers that do not do what is wanted: not the only one that events
// may come through. The watch tells when it is gone.
func (t *Trigger) makeRoom(ctx context.Context, known *k8sutil.Collection) error {
	var least *unstructured.Unstructured
	for _, name := range t.names.Triggers() {
		u := known.Get(t.namespace, name)
		switch {
		case u == nil:
		case u.GetDeletionTimestamp() != nil && !held(u):
			return beingDeleted(u)
		case least == nil || !reached(u):
			least = u
		}
	}
	if least == nil {
		return notYet(t.namespace + "/" + t.names.Triggers()[0])
	}
	return cmp.Or(t.triggers.replaced(ctx, least), beingDeleted(least))
}

func beingDeleted(u *unstructured.Unstructured) error {
	return NotReady("Trigger " + u.GetNamespace() + "/" + u.GetName() + " is being deleted")
}

// refusesNew tells of an error that the namespace, or the kind, is being deleted.
func refusesNew(err error) bool {
	return k8sutil.NamespaceTerminating(err) || apierrors.IsMethodNotSupported(err)
}

// letGo lets those Triggers go that somebody has deleted, when no other one can take over, or when
// no event can come.
func (t *Trigger) letGo(ctx context.Context, known *k8sutil.Collection) error {
	var errs []error
	for _, u := range known.All() {
		if u.GetDeletionTimestamp() != nil {
			errs = append(errs, t.triggers.remove(ctx, u))
		}
	}
	return errors.Join(errs...)
}

// does tells whether a Trigger does what is wanted, and stays.
func (t *Trigger) does(u *unstructured.Unstructured, b Broker) bool {
	return u.GetDeletionTimestamp() == nil && !differs(u, t.wanted(b, u.GetName()))
}

// notYet is what is said of a Trigger until Knative has something to say: each text of its own
// would be a write of each Subscription.
func notYet(trigger string) NotReady { return NotReady("Trigger " + trigger + " is not ready yet") }

// Any tells whether there is a Trigger of ours.
func (t *Trigger) Any() bool {
	known, _ := t.seen()
	return known != nil && len(known.All()) > 0
}

// Delete deletes the Trigger, and those of an earlier version.
func (t *Trigger) Delete(ctx context.Context) error {
	known, _ := t.seen()
	if known == nil {
		return nil
	}
	all := known.All()
	errs := make([]error, len(all))
	workqueue.ParallelizeUntil(ctx, writers, len(all), func(i int) { errs[i] = t.triggers.remove(ctx, all[i]) })
	return errors.Join(errs...)
}
