package controller

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/connection"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/delivery"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/fence"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/follow"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/peers"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/plan"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stored"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

const (
	// deletionLimit is how long the deletion of a Subscription waits for NATS. A namespace must not
	// hang on it; a sweep deletes the consumer later.
	deletionLimit = 30 * time.Second
	// afterConflict is when a status is written again that somebody else wrote meanwhile.
	afterConflict = 200 * time.Millisecond
	// othersAgain is when the other controllers are asked again that did not answer.
	othersAgain = 500 * time.Millisecond
)

// made says that a consumer was there, as it was wanted, in the stream of a time, over one
// connection.
type made struct {
	want     jetstream.ConsumerConfig
	created  time.Time
	connects int
}

func (m made) is(other made) bool {
	return m.created.Equal(other.created) && m.connects == other.connects && !stream.ConsumerDiffers(m.want, other.want)
}

var (
	errNoStream = errors.New("stream " + backend.Stream + " does not exist in NATS")
	// errOthers says that another controller may still deliver by the spec of before.
	errOthers = errors.New("another controller may deliver by the spec of before")
)

func (c *Controller) reconcileSubscription(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	c.follower.Lead()
	var is stored.Subscription
	s := &is.Subscription
	switch err := c.client.Get(ctx, r.NamespacedName, &is); {
	case apierrors.IsNotFound(err):
		return c.gone(ctx, r.NamespacedName)
	case err != nil:
		return reconcile.Result{}, err
	case !s.DeletionTimestamp.IsZero():
		return c.deleted(ctx, s)
	}
	c.mu.Lock()
	now := c.state
	c.mu.Unlock()
	if !now.asked {
		return reconcile.Result{}, nil // all are reconciled when it is known what serves
	}
	p, problems := plan.Of(s)
	if is.Problem != nil {
		problems = []string{fmt.Sprintf("it cannot be read: %v", is.Problem)}
	}
	f := findings{problems: problems, known: now.known, serving: now.backends, sink: p.Sink, ready: map[operatorv1alpha1.BackendType]bool{}}
	var failed, meshFailed error
	switch {
	case now.known && now.backends.Removed:
		failed = c.undo(ctx, s)
	case len(problems) > 0 || !now.serves(operatorv1alpha1.NATS):
		// The consumer stays, and with it the events that wait. Without a backend, it goes with the
		// stream.
		c.deliveries.Stop(r.NamespacedName)
	default:
		failed = c.deliver(ctx, s, p, now, &f)
	}
	switch {
	case !now.known, !now.serves(operatorv1alpha1.EventMesh), len(problems) > 0:
		c.roster.Forget(r.NamespacedName)
	default:
		meshFailed = c.deliverMesh(ctx, s, now, &f)
	}
	if controllerutil.ContainsFinalizer(s, eventingv1alpha2.Finalizer) && (!now.known || now.serves(operatorv1alpha1.NATS)) {
		f.consumer = backend.ConsumerName(s.Namespace, s.Name)
	}
	if len(problems) == 0 {
		if f.health = c.fleet.Health(r.NamespacedName).With(c.receiver.Health(r.NamespacedName)); !f.health.Known {
			var err error
			if f.service, err = c.exists(ctx, p.Sink); err != nil {
				return reconcile.Result{}, err
			}
		}
	}
	f.delivery, f.waits = s.Status.Delivery, true
	if now.known {
		f.delivery, f.waits = c.details.status(r.NamespacedName, s.Status.Delivery, now.serves(operatorv1alpha1.NATS))
	}
	c.details.keeps(r.NamespacedName, f.keeps(s))
	result := reconcile.Result{RequeueAfter: f.health.Again}
	f.failed = failed != nil || meshFailed != nil
	c.ready.Take(now.round, s, len(problems) > 0, f.ready)
	at, wasFailing := time.Now(), failing(s)
	want, later := statusOf(s, f, at), c.patience.left(s, f, c.ready.Claims(), at)
	if !f.failed && saysReady(s) && want.Ready {
		later = c.ready.Hold(r.NamespacedName, at)
	}
	on := "nats"
	if f.known && !f.serving.Serving.Has(operatorv1alpha1.NATS) {
		on = "eventmesh"
	}
	c.metrics.Subscribed(r.NamespacedName, s.Spec.Types, want.Ready, on)
	only, message, answer := onlyDetails(s.Status, want)
	switch {
	case sameStatus(s.Status, want):
		c.details.wrote(r.NamespacedName, want.Delivery, f.named(at), at, false)
	case later > 0:
		sooner(&result, later)
	case only && !c.details.mayWrite(r.NamespacedName, message, answer):
		// a later round writes it
	default:
		s.Status = want
		switch err := c.client.Status().Update(ctx, &is); {
		case err == nil:
			c.details.wrote(r.NamespacedName, want.Delivery, f.named(at), at, true)
		case apierrors.IsConflict(err):
			result.RequeueAfter = afterConflict
		case apierrors.IsInvalid(err) && is.Problem != nil:
			// Rules of the kind cannot be evaluated over a field of another type. Then the API
			// server takes no write of the object, not even of its status, before somebody has
			// repaired it.
			c.recorder.Eventf(&is, nil, corev1.EventTypeWarning, eventingv1alpha2.ReasonSpecInvalid, "Reconcile",
				"The spec cannot be read, and the API server takes no status before it is repaired: %v. Next: kubectl -n %s edit subscriptions.eventing.kyma-project.io %s", is.Problem, s.Namespace, s.Name)
			return reconcile.Result{}, nil
		case err != nil && !apierrors.IsNotFound(err):
			return reconcile.Result{}, fmt.Errorf("cannot write the status of Subscription %s: %w", r.NamespacedName, err)
		}
	}
	if len(problems) == 0 {
		sooner(&result, c.announcer.Tell(s, f.health, p.Sink, wasFailing, at))
	}
	switch {
	case apierrors.IsConflict(meshFailed):
		return reconcile.Result{RequeueAfter: afterConflict}, nil
	case meshFailed != nil:
		return result, meshFailed
	case errors.Is(failed, connection.ErrNoNATS) && c.connection.Connected():
		return reconcile.Result{RequeueAfter: askAgain}, nil
	case errors.Is(failed, errOthers):
		return reconcile.Result{RequeueAfter: othersAgain}, nil
	case errors.Is(failed, connection.ErrNoNATS), errors.Is(failed, errNoStream):
		return result, nil // it comes again with the connection, or with the stream
	case apierrors.IsConflict(failed):
		return reconcile.Result{RequeueAfter: afterConflict}, nil
	default:
		return result, failed
	}
}

// sooner lets a Subscription be reconciled after a time, if that is not 0, or earlier.
func sooner(result *reconcile.Result, after time.Duration) {
	if after > 0 && (result.RequeueAfter == 0 || after < result.RequeueAfter) {
		result.RequeueAfter = after
	}
}

// deliver creates or updates the consumer of a Subscription, and lets its events be delivered.
func (c *Controller) deliver(ctx context.Context, s *eventingv1alpha2.Subscription, p plan.Plan, now state, f *findings) error {
	key := client.ObjectKeyFromObject(s)
	err := c.ensureConsumer(ctx, s, p, now)
	var js jetstream.JetStream
	if err == nil {
		js, _, err = c.connection.JetStream()
	}
	if err == nil {
		err = c.deliveries.Set(key, p.Settings(s), follow.SourceOf(js, key))
	}
	if err == nil && !judged(s, operatorv1alpha1.NATS, now.backends) {
		err = c.tellOthers(ctx, s)
	}
	switch {
	case err == nil:
		f.ready[operatorv1alpha1.NATS] = true
	case errors.Is(err, connection.ErrNoNATS):
		// Nothing is known of a change. A restart of this process while NATS is away must not write
		// each Subscription twice.
		f.ready[operatorv1alpha1.NATS] = judged(s, operatorv1alpha1.NATS, now.backends)
		f.because(connection.ErrNoNATS.Error())
	case errors.Is(err, errNoStream):
		f.because(errNoStream.Error())
	case errors.Is(err, errOthers):
		f.because(err.Error())
	default:
		f.because(fmt.Sprintf("cannot create the consumer in NATS: %v", err))
	}
	return err
}

// tellOthers returns nil if each controller that delivers knows which spec of a Subscription is the
// present one, and delivers by no earlier one. One that is not heard does not post either, soon.
func (c *Controller) tellOthers(ctx context.Context, s *eventingv1alpha2.Subscription) error {
	if c.peers.Mute() { // then no other one delivers
		return nil
	}
	missing, err := c.follower.Tell(ctx, s)
	switch {
	case len(missing) > 0:
		return fmt.Errorf("%w: %s does not answer, and is waited for up to %s", errOthers, strings.Join(missing, ", "), peers.GoneAfter)
	case errors.Is(err, peers.ErrAlone) && s.Generation > 1:
		return fmt.Errorf("%w: this one began a moment ago, and listens for %s", errOthers, peers.GoneAfter)
	case errors.Is(err, peers.ErrAlone):
		return nil // there was no spec before
	default:
		return err
	}
}

// ensureFinalizer keeps a Subscription from being deleted before its consumer is. It comes before
// the consumer.
func (c *Controller) ensureFinalizer(ctx context.Context, s *eventingv1alpha2.Subscription) error {
	if controllerutil.ContainsFinalizer(s, eventingv1alpha2.Finalizer) {
		return nil
	}
	return c.patchFinalizer(ctx, s, controllerutil.AddFinalizer)
}

func (c *Controller) patchFinalizer(ctx context.Context, s *eventingv1alpha2.Subscription, change func(client.Object, string) bool) error {
	is := &stored.Subscription{Subscription: *s}
	before := is.DeepCopy()
	change(is, eventingv1alpha2.Finalizer)
	err := c.client.Patch(ctx, is, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	*s = is.Subscription
	if err != nil {
		return fmt.Errorf("cannot write the finalizer of Subscription %s: %w", client.ObjectKeyFromObject(s), err)
	}
	return nil
}

// ensureConsumer returns nil if a Subscription has the finalizer, and its consumer is in the
// present stream, with its settings.
func (c *Controller) ensureConsumer(ctx context.Context, s *eventingv1alpha2.Subscription, p plan.Plan, now state) error {
	key := client.ObjectKeyFromObject(s)
	js, connects, err := c.connection.JetStream()
	if err != nil {
		return err
	}
	if now.created.IsZero() {
		return errNoStream
	}
	want := stream.Consumer(key.Namespace, key.Name, p.Filters, p.InFlight == 1)
	if now.keepsTaken {
		want = stream.WithRetries(want)
	}
	want.Metadata[stream.UIDKey], want.Metadata[stream.GenerationKey] = string(p.UID), strconv.FormatInt(s.Generation, 10)
	is := made{want: want, created: now.created, connects: connects}
	c.mu.Lock()
	before, known := c.made[key]
	c.mu.Unlock()
	if known && before.is(is) {
		return c.ensureFinalizer(ctx, s)
	}
	found, err := js.Consumer(ctx, backend.Stream, want.Durable)
	switch {
	case err != nil || !stream.OfAnother(found.CachedInfo().Config, string(p.UID)):
	case controllerutil.ContainsFinalizer(s, eventingv1alpha2.Finalizer):
		// Only this controller gives the finalizer, and only after this look: a Subscription that
		// came with it is a copy of the former one, from a backup.
		c.log.Info("taking over the consumer of a Subscription that was restored", zap.Stringer("subscription", key))
	default:
		c.log.Info("deleting the consumer of a former Subscription of the same name", zap.Stringer("subscription", key))
		c.deliveries.Stop(key)
		if err = discard(ctx, c.lock, js, want.Durable); err == nil {
			c.purges.later(false, stream.Filters(found.CachedInfo().Config)...)
			err = jetstream.ErrConsumerNotFound
		}
	}
	if err == nil || errors.Is(err, jetstream.ErrConsumerNotFound) {
		if err := c.ensureFinalizer(ctx, s); err != nil {
			return err
		}
	}
	if err == nil && found.CachedInfo().Config.PauseUntil != nil { // an update leaves it paused
		c.log.Info("ending the pause of a consumer", zap.Stringer("subscription", key))
		if err := resume(ctx, c.lock, js, want.Durable); err != nil {
			return c.noConsumer(err)
		}
		found, err = js.Consumer(ctx, backend.Stream, want.Durable)
	}
	switch {
	case err == nil && !stream.ConsumerDiffers(found.CachedInfo().Config, want):
	case err == nil || errors.Is(err, jetstream.ErrConsumerNotFound):
		if err := c.lock.Check(); err != nil {
			return err
		}
		if _, err := js.CreateOrUpdateConsumer(ctx, backend.Stream, want); err != nil {
			return c.noConsumer(err)
		}
		if err == nil {
			c.purges.later(false, stream.Removed(found.CachedInfo().Config, want)...)
		}
		// The stream may have been replaced in the meantime, and then "ready" would be said of
		// another one than that of the epoch.
		if created, _, _, err := c.connection.Stream(ctx); err != nil || !created.Equal(now.created) {
			c.backends.add(c.backendsKey(), 0)
			return c.noConsumer(errors.Join(err, errNoStream))
		}
		c.log.Debug("wrote consumer", zap.Stringer("subscription", key))
	default:
		return c.noConsumer(err)
	}
	if known && !before.created.Equal(is.created) {
		c.deliveries.Stop(key) // what is consumed now is a consumer of the former stream
	}
	c.mu.Lock()
	c.made[key] = is
	delete(c.leftover, key)
	c.mu.Unlock()
	return nil
}

// resume ends a pause that somebody else began.
func resume(ctx context.Context, lock *fence.Fence, js jetstream.JetStream, consumer string) error {
	if err := lock.Check(); err != nil {
		return err
	}
	if _, err := js.ResumeConsumer(ctx, backend.Stream, consumer); err != nil {
		return fmt.Errorf("cannot end the pause of consumer %s: %w", consumer, err)
	}
	return nil
}

// discard deletes a consumer, if this process still leads: reading it took time.
func discard(ctx context.Context, lock *fence.Fence, js jetstream.JetStream, consumer string) error {
	if err := lock.Check(); err != nil {
		return err
	}
	if err := js.DeleteConsumer(ctx, backend.Stream, consumer); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return err
	}
	return nil
}

func (c *Controller) noConsumer(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		c.backends.add(c.backendsKey(), 0)
		return errNoStream
	}
	return connection.Unanswered(err)
}

// deleted deletes what was made for a Subscription that is being deleted.
func (c *Controller) deleted(ctx context.Context, s *eventingv1alpha2.Subscription) (reconcile.Result, error) {
	key := client.ObjectKeyFromObject(s)
	// A cache may be late, that of a new leader above all: by now there may be another Subscription
	// of this name, with what it needs.
	switch uid, err := uidOf(ctx, c.live, key); {
	case err != nil:
		return reconcile.Result{}, err
	case uid != "" && uid != s.UID:
		return reconcile.Result{}, nil // the watch tells of it soon
	}
	c.deliveries.Forget(key)
	c.receiver.Forget(key)
	c.roster.Forget(key)
	c.ready.Gone(key)
	if !controllerutil.ContainsFinalizer(s, eventingv1alpha2.Finalizer) {
		return reconcile.Result{}, nil
	}
	if err := c.deleteConsumer(ctx, key, s.UID); err != nil {
		if left := deletionLimit - time.Since(s.DeletionTimestamp.Time); left > 0 {
			c.log.Info("cannot delete the consumer of a Subscription yet", zap.Stringer("subscription", key), zap.Error(err))
			if c.connection.Connected() {
				left = min(left, askAgain)
			}
			return reconcile.Result{RequeueAfter: left}, nil // or earlier, with the connection
		}
		c.log.Warn("the consumer of a deleted Subscription stays until NATS can be reached", zap.Stringer("subscription", key), zap.Error(err))
		c.mu.Lock()
		c.leftover[key] = time.Time{}
		c.mu.Unlock()
	}
	switch err := c.patchFinalizer(ctx, s, controllerutil.RemoveFinalizer); {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: afterConflict}, nil
	default:
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
}

// gone is about a Subscription that is not there. Only the API server itself is believed that: a
// cache may not know it yet.
func (c *Controller) gone(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	c.deliveries.Forget(key)
	c.receiver.Forget(key)
	c.patience.forget(key)
	c.details.forget(key)
	c.announcer.Forget(key)
	c.fleet.Forget(key)
	c.roster.Forget(key)
	c.ready.Gone(key)
	c.mu.Lock()
	since, left := c.leftover[key]
	if _, known := c.made[key]; known { // it was not deleted with the finalizer: somebody removed that
		since, left = time.Time{}, true
		c.leftover[key] = since
		delete(c.made, key)
	}
	c.mu.Unlock()
	if !left {
		return reconcile.Result{}, nil
	}
	if kept := c.options.KeepConsumers - time.Since(since); kept > 0 {
		return reconcile.Result{RequeueAfter: kept}, nil
	}
	uid, err := uidOf(ctx, c.live, key)
	if err == nil && uid == "" {
		if err = c.deleteConsumer(ctx, key, ""); err == nil {
			c.log.Info("deleted the consumer of a Subscription that is gone", zap.Stringer("subscription", key))
		}
	}
	switch {
	case errors.Is(err, connection.ErrNoNATS):
		return reconcile.Result{}, nil // a sweep comes with the connection
	case err != nil:
		return reconcile.Result{}, err
	}
	c.mu.Lock()
	delete(c.leftover, key) // if there is another one by now, the watch tells of it soon
	c.mu.Unlock()
	return reconcile.Result{}, nil
}

// uidOf asks the API server itself for the UID of a Subscription; "" if there is none.
func uidOf(ctx context.Context, live client.Reader, key types.NamespacedName) (types.UID, error) {
	is := &metav1.PartialObjectMetadata{}
	is.SetGroupVersionKind(eventingv1alpha2.GroupVersion.WithKind("Subscription"))
	switch err := live.Get(ctx, key, is); {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("cannot read Subscription %s: %w", key, err)
	}
	return is.UID, nil
}

// undo deletes what was made for a Subscription when no backend serves any more. Without NATS,
// there is nothing left of it.
func (c *Controller) undo(ctx context.Context, s *eventingv1alpha2.Subscription) error {
	key := client.ObjectKeyFromObject(s)
	c.deliveries.Stop(key)
	if !controllerutil.ContainsFinalizer(s, eventingv1alpha2.Finalizer) {
		return nil
	}
	if err := c.deleteConsumer(ctx, key, s.UID); err != nil {
		c.log.Info("cannot delete the consumer of a Subscription: it goes with the stream", zap.Stringer("subscription", key), zap.Error(err))
	}
	return c.patchFinalizer(ctx, s, controllerutil.RemoveFinalizer)
}

// deleteConsumer deletes the consumer of the Subscription with a UID; "" is any: there is no
// Subscription of this name.
func (c *Controller) deleteConsumer(ctx context.Context, key types.NamespacedName, uid types.UID) error {
	c.mu.Lock()
	none := c.state.known && c.state.backends.NATS == nil
	delete(c.made, key)
	c.mu.Unlock()
	if none {
		return nil
	}
	js, _, err := c.connection.JetStream()
	if err != nil {
		return err
	}
	name := backend.ConsumerName(key.Namespace, key.Name)
	var is jetstream.ConsumerConfig
	found, err := js.Consumer(ctx, backend.Stream, name)
	if err == nil {
		if is = found.CachedInfo().Config; uid != "" && stream.OfAnother(is, string(uid)) {
			return nil // that of a later Subscription of this name
		}
		err = discard(ctx, c.lock, js, name)
	}
	switch {
	case err == nil:
		c.purges.later(false, stream.Filters(is)...)
	case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		return nil
	}
	return connection.Unanswered(err)
}

// exists tells whether the Service of a sink is there.
func (c *Controller) exists(ctx context.Context, sink delivery.Sink) (bool, error) {
	service := &metav1.PartialObjectMetadata{}
	service.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Service"))
	err := c.client.Get(ctx, types.NamespacedName{Namespace: sink.Namespace, Name: sink.Service}, service)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
