package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/decide"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stored"
)

const (
	// rounds bounds how often one reconcile looks and acts. An installation needs fewer.
	rounds = 40
	// routine is how often a healthy backend is looked at: how full a stream is, no watch says.
	routine = 30 * time.Second
	// refusedRetry is when an action is tried again that the API server has refused as invalid or
	// forbidden.
	refusedRetry = time.Minute
	// failLimit is how long looking and acting may fail before the status says so.
	failLimit = 30 * time.Second
)

// reconciler serves one Eventing, and tells the others that they are not served.
type reconciler struct {
	*decide.Rules
	client   client.Client
	observer *observer
	actor    *actor
	watches  *watches
	// failing is since when looking or acting has failed; zero if it does not.
	failing time.Time
	// logged is the hash of the values that were last written to the log.
	logged uint64
}

// Reconcile looks, decides and acts, until nothing is left to do but to wait.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var all stored.EventingList
	if err := r.observer.reader.List(ctx, &all); err != nil {
		return ctrl.Result{}, fmt.Errorf("cannot list Eventings: %w", err)
	}
	served := pick(all.Items)
	for i := range all.Items {
		e := &all.Items[i]
		if e.Namespace != request.Namespace || e.Name != request.Name {
			continue
		}
		switch {
		case e.UID != served.UID:
			return ctrl.Result{}, r.decline(ctx, e, served)
		case e.Problem != nil && e.DeletionTimestamp == nil: // what is deleted needs no spec
			return ctrl.Result{}, r.unreadable(ctx, e)
		}
		result, err := r.serve(ctx, &e.Eventing)
		return result, errors.Join(err, r.lagging(ctx, e, err))
	}
	return ctrl.Result{}, nil // it is gone
}

// decline says which Eventing is served instead.
func (r *reconciler) decline(ctx context.Context, e, served *stored.Eventing) error {
	status := *e.Status.DeepCopy()
	status.State, status.ObservedGeneration, status.Version = operatorv1alpha1.StateWarning, e.Generation, r.Version
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: operatorv1alpha1.ConditionServed, Status: metav1.ConditionFalse, Reason: operatorv1alpha1.ReasonAnotherCRServed, ObservedGeneration: e.Generation,
		Message: fmt.Sprintf("Eventing %s/%s is older, and is the one that is served. Delete one of them.", served.Namespace, served.Name),
	})
	if c := r.notRead(e); e.Problem != nil && meta.SetStatusCondition(&status.Conditions, c) {
		r.actor.recorder.Eventf(e, nil, corev1.EventTypeWarning, c.Reason, "Reconcile", "%s", c.Message)
	}
	return r.write(ctx, &e.Eventing, status)
}

// unreadable says why the Eventing that is served cannot be read. Nothing is decided without its
// spec: what is installed goes on.
func (r *reconciler) unreadable(ctx context.Context, e *stored.Eventing) error {
	status := *e.Status.DeepCopy()
	status.State, status.ObservedGeneration, status.Version = operatorv1alpha1.StateWarning, e.Generation, r.Version
	if c := r.notRead(e); meta.SetStatusCondition(&status.Conditions, c) {
		r.actor.recorder.Eventf(e, nil, corev1.EventTypeWarning, c.Reason, "Reconcile", "%s", c.Message)
	}
	return r.write(ctx, &e.Eventing, status)
}

func (r *reconciler) notRead(e *stored.Eventing) metav1.Condition {
	return metav1.Condition{
		Type: operatorv1alpha1.ConditionSpecApplied, Status: metav1.ConditionFalse, Reason: operatorv1alpha1.ReasonSpecInvalid, ObservedGeneration: e.Generation,
		Message: fmt.Sprintf("The spec cannot be read, and what is installed is left as it is: %v. Next: kubectl -n %s edit eventings.operator.kyma-project.io %s", e.Problem, e.Namespace, e.Name),
	}
}

// lagging says in the status that looking or acting fails, when it has for a while: the status is
// older than the spec then, and says nothing of it. What failed for a moment is no news.
func (r *reconciler) lagging(ctx context.Context, e *stored.Eventing, failed error) error {
	if failed == nil || ctx.Err() != nil {
		r.failing = time.Time{}
		return nil
	}
	if r.failing.IsZero() {
		r.failing = time.Now()
	}
	if time.Since(r.failing) < failLimit {
		return nil
	}
	is := &stored.Eventing{}
	if err := r.observer.reader.Get(ctx, client.ObjectKeyFromObject(e), is); err != nil {
		return client.IgnoreNotFound(err)
	}
	status := *is.Status.DeepCopy()
	status.ObservedGeneration, status.Version = is.Generation, r.Version
	if status.State == operatorv1alpha1.StateReady || status.State == "" {
		status.State = operatorv1alpha1.StateProcessing
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: operatorv1alpha1.ConditionSpecApplied, Status: metav1.ConditionFalse, Reason: operatorv1alpha1.ReasonFailing, ObservedGeneration: is.Generation,
		Message: fmt.Sprintf("The operator tries again and again: %v", failed),
	})
	return r.write(ctx, &is.Eventing, status)
}

func (r *reconciler) serve(ctx context.Context, e *operatorv1alpha1.Eventing) (ctrl.Result, error) {
	log := logr.FromContextOrDiscard(ctx)
	for range rounds {
		w, err := r.observer.observe(ctx, e)
		if err != nil {
			return ctrl.Result{}, err
		}
		if err := r.watches.follow(ctx, w); err != nil {
			return ctrl.Result{}, err
		}
		decision := r.Decide(w)
		r.announce(log, decision)
		done, failed := r.act(ctx, w, decision)
		if done {
			r.observer.nats.close()
			released()
			return ctrl.Result{}, nil
		}
		if failed != nil && !refused(failed) {
			// What failed for a moment is no news for the status. What is wrong for longer is seen
			// by looking.
			return ctrl.Result{}, failed
		}
		if failed != nil {
			decision.AtLeast(operatorv1alpha1.StateWarning)
			decision.Condition(operatorv1alpha1.ConditionSpecApplied, false, operatorv1alpha1.ReasonRefused, "The API server refuses a change: %v%s", failed, remedy(failed, w.Eventing.Namespace))
			decision.After = refusedRetry
		}
		if len(decision.Actions) == 0 || failed != nil {
			record(decision)
			if err := r.write(ctx, w.Eventing, r.status(w, decision)); err != nil {
				return ctrl.Result{}, err
			}
			after := decision.After
			if after == 0 || after > routine {
				after = routine
			}
			return ctrl.Result{RequeueAfter: after}, nil
		}
		// The status says what is going on while much is to do. It is no write for each round:
		// little of it changes.
		if err := r.write(ctx, w.Eventing, r.status(w, decision)); err != nil {
			return ctrl.Result{}, err
		}
		next := &stored.Eventing{}
		if err := r.observer.reader.Get(ctx, client.ObjectKeyFromObject(w.Eventing), next); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		if next.Problem != nil && next.DeletionTimestamp == nil {
			return ctrl.Result{}, r.unreadable(ctx, next)
		}
		e = &next.Eventing
	}
	return ctrl.Result{RequeueAfter: time.Second}, nil
}

// act does the actions in order. done means that the Eventing is released.
func (r *reconciler) act(ctx context.Context, w *observed.World, decision *decide.Decision) (done bool, err error) {
	for _, todo := range decision.Actions {
		if err := r.actor.do(ctx, w, todo); err != nil {
			return false, fmt.Errorf("cannot %s: %w", todo, err)
		}
		_, released := todo.(decide.Release)
		done = done || released
	}
	return done, nil
}

// announce writes one line for each change of the values: those of the chart, with public keys
// only.
func (r *reconciler) announce(log logr.Logger, d *decide.Decision) {
	if d.Values == nil {
		return
	}
	if h := hash(d.Values); h != r.logged {
		r.logged = h
		backend, _ := d.Values["backend"].(map[string]any)
		log.Info("Eventing", "flags", d.Values, "backend", backend["type"])
	}
}

func hash(v any) uint64 {
	raw, err := json.Marshal(v)
	if err != nil {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write(raw)
	return h.Sum64()
}

func (r *reconciler) status(w *observed.World, d *decide.Decision) operatorv1alpha1.EventingStatus {
	status := *w.Eventing.Status.DeepCopy()
	status.State, status.Conditions, status.ActiveBackend, status.Serving, status.NATS = d.State, d.Conditions, d.Active, d.Serving, d.NATS
	status.ObservedGeneration, status.Version, status.PublisherService = w.Eventing.Generation, r.Version, d.PublisherService
	status.Switch = d.Switch
	status.SpecHash = int64(hash(w.Eventing.Spec.Backend)) //nolint:gosec // all 64 bits, with or without a sign
	return status
}

// write writes a status that differs, if nobody has changed the object since it was read.
func (r *reconciler) write(ctx context.Context, e *operatorv1alpha1.Eventing, status operatorv1alpha1.EventingStatus) error {
	if reflect.DeepEqual(normal(e.Status), normal(status)) {
		return nil
	}
	is := &stored.Eventing{Eventing: *e}
	before := is.DeepCopy()
	is.Status = status
	err := r.client.Status().Patch(ctx, is, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(r.Names.Owner()))
	*e = is.Eventing
	if err != nil {
		return client.IgnoreNotFound(fmt.Errorf("cannot write the status of Eventing %s/%s: %w", e.Namespace, e.Name, err))
	}
	return nil
}

// normal is a status as JSON has it: without parts of seconds, and empty lists left out.
func normal(s operatorv1alpha1.EventingStatus) (out operatorv1alpha1.EventingStatus) {
	raw, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		return s
	}
	return out
}
