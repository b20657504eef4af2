package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/chart"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/dependency"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/drift"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/identity"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/rollout"
)

const (
	// downLimit is how long NATS may be away before that is an error.
	downLimit = time.Minute
	// silence is how long NATS that is to be removed, or one of its servers, may be away before a
	// command is shown that removes it with what it holds: an operator that starts connects first,
	// and servers start again by themselves.
	silence = 20 * time.Second
	// askAgain is when NATS is asked again for what no watch tells: which certificate it has, what
	// is in its streams.
	askAgain = 10 * time.Second
	// drainedAgain is when a closed, empty stream of one server is looked at again: a barrier shows
	// soon that it stays so.
	drainedAgain = time.Second
)

// Renderer is a chart.Chart, or one that remembers its renderings.
type Renderer interface {
	Render(chart.Release, map[string]any) ([]*unstructured.Unstructured, error)
}

// Rules decides. It has no client.
type Rules struct {
	identity.Identities
	Chart Renderer
	// Version is that of the operator.
	Version string
	// The images, with their digests.
	NATSImage, PublisherImage, ControllerImage string
	// PullSecrets are names of Secrets for pulling them.
	PullSecrets []string
	// NATSURL is where the publisher and the controller connect to NATS.
	NATSURL string
	// DependencyTimeout is how long a missing API of others is awaited; BackendTimeout how long a
	// backend may take to start.
	DependencyTimeout, BackendTimeout time.Duration
	// DrainDelay is how long after its close a stream of several servers may still store what was
	// published before; DrainWatch is how long it has to be empty after that.
	DrainDelay, DrainWatch time.Duration
	// MeshDelay is how long events may be on their way in Channels that cannot be looked into.
	MeshDelay time.Duration

	// carriers are the backends of a test; nil are those that there are.
	carriers []*carrier
}

// Decision is what follows from an observed.World.
type Decision struct {
	Actions []Action
	// Conditions are those of the Eventing from now on; State is their sum.
	Conditions []metav1.Condition
	State      operatorv1alpha1.State
	Active     operatorv1alpha1.BackendType
	Serving    backend.Set
	// After is when to look again at the latest, if no watch says so before; 0 is never.
	After time.Duration
	// Values are those with which the chart was rendered; nil if it was not.
	Values map[string]any
	NATS   *operatorv1alpha1.NATSStatus
	// PublisherService is <name>.<namespace> of the Service that takes events; "" if there is none.
	PublisherService string
	// Switch is the change of the backend that is under way; nil if there is none.
	Switch *operatorv1alpha1.Switch

	world *observed.World
	// unapplied: what the spec asks for is not applied, and a condition says why.
	unapplied bool
	// kept are the fields that something changes at each write.
	kept []string
}

// States are all states of an Eventing, the one that wins first.
var States = []operatorv1alpha1.State{
	operatorv1alpha1.StateDeleting, operatorv1alpha1.StateWarning, operatorv1alpha1.StateError, operatorv1alpha1.StateProcessing, operatorv1alpha1.StateReady,
}

// Steps are all steps of a switch, as the reasons of the condition Switching: Idle without a
// switch, Blocked when it waits for too long.
var Steps = []string{
	operatorv1alpha1.ReasonIdle, operatorv1alpha1.ReasonProvisioning, operatorv1alpha1.ReasonAwaiting, operatorv1alpha1.ReasonRollingOut,
	operatorv1alpha1.ReasonClosing, operatorv1alpha1.ReasonDraining, operatorv1alpha1.ReasonDangling, operatorv1alpha1.ReasonRemoving, operatorv1alpha1.ReasonBlocked,
}

// keep notes what something changes in an object at each write, and tells whether there is any.
func (o *Decision) keep(u *unstructured.Unstructured, changed []drift.Difference) bool {
	for _, c := range changed {
		o.kept = append(o.kept, fmt.Sprintf("%s %s: %s", u.GetKind(), u.GetName(), c))
	}
	return len(changed) > 0
}

func (o *Decision) do(actions ...Action) { o.Actions = append(o.Actions, actions...) }

// AtLeast makes the state at least as grave as s.
func (o *Decision) AtLeast(s operatorv1alpha1.State) {
	if o.State == "" || slices.Index(States, s) < slices.Index(States, o.State) {
		o.State = s
	}
}

// look asks for another look after a time, if none is asked for earlier.
func (o *Decision) look(after time.Duration) {
	if after = max(after, time.Millisecond); o.After == 0 || after < o.After {
		o.After = after
	}
}

// Condition sets a condition. Its time changes only with its status.
func (o *Decision) Condition(kind string, ok bool, reason, format string, args ...any) {
	status := metav1.ConditionFalse
	if ok {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&o.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: fmt.Sprintf(format, args...), ObservedGeneration: o.world.Eventing.Generation,
		LastTransitionTime: metav1.NewTime(o.world.Now),
	})
}

// wrongFor is how long a condition that is now False has been so.
func (o *Decision) wrongFor(kind string) time.Duration {
	if c := meta.FindStatusCondition(o.world.Eventing.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionFalse {
		return o.world.Now.Sub(c.LastTransitionTime.Time)
	}
	return 0
}

// Decide is a pure function of the world.
func (d *Rules) Decide(w *observed.World) *Decision {
	e := w.Eventing
	o := &Decision{world: w, Conditions: slices.Clone(e.Status.Conditions), Active: e.Status.ActiveBackend}
	if w.NATS.Stream != nil {
		o.NATS = natsStatus(d, w)
	}
	o.Condition(operatorv1alpha1.ConditionServed, true, operatorv1alpha1.ReasonServed, "")
	if e.DeletionTimestamp != nil {
		d.teardown(w, o)
		d.guard(w, o)
		return o
	}
	if !slices.Contains(e.Finalizers, operatorv1alpha1.Finalizer) {
		o.do(Finalize{})
	}
	target := operatorv1alpha1.BackendType("")
	if e.Spec.Backend != nil {
		target = e.Spec.Backend.Type.Canonical()
	}
	dependencies := d.dependencies(w, o, target)
	switch t := newReconciliation(d, w, o, target); {
	case t.wanted == nil:
		o.AtLeast(operatorv1alpha1.StateWarning)
		o.Condition(operatorv1alpha1.ConditionBackendAvailable, false, operatorv1alpha1.ReasonNoBackend, "No backend is set. Set spec.backend.type to %s.", operatorv1alpha1.BackendNames())
	case t.wanted.unsupported(e.Spec.Backend.Config) != "":
		o.AtLeast(operatorv1alpha1.StateWarning)
		o.Condition(operatorv1alpha1.ConditionBackendAvailable, false, operatorv1alpha1.ReasonNotSupported, "%s", t.wanted.unsupported(e.Spec.Backend.Config))
	case !dependencies && !t.wanted.exists(d, w):
		// Nothing is installed, and nothing is begun. What is there of other backends goes on.
		o.unapplied = true
		d.programs(w, o, target)
	default:
		t.ready = dependencies
		t.run()
		t.repeatReport()
		d.programs(w, o, target)
		letters(w, o)
	}
	d.guard(w, o)
	if len(o.Actions) == 0 && !o.unapplied {
		o.Condition(operatorv1alpha1.ConditionSpecApplied, true, operatorv1alpha1.ReasonApplied, "%s", drift.Told(o.kept))
	}
	d.degraded(w, o)
	o.AtLeast(operatorv1alpha1.StateReady)
	return o
}

// dependencies sets the conditions about APIs of others, and tells whether all that are required
// are there.
func (d *Rules) dependencies(w *observed.World, o *Decision, target operatorv1alpha1.BackendType) bool {
	wrong, skipped, soon := dependency.Judge(w.Dependencies)
	if soon {
		o.look(dependency.DiscoveryRetry)
	}
	skipped = append(skipped, rollout.Unscaled(w.Now, w.Object(observed.Autoscaler.Kind, d.Names.Controller()), w.Object(observed.Autoscaler.Kind, d.Names.Publisher()))...)
	if len(skipped) > 0 {
		o.Condition(operatorv1alpha1.ConditionOptionalFeatures, false, operatorv1alpha1.ReasonSkipped, "%s.", strings.Join(skipped, ". "))
	} else {
		o.Condition(operatorv1alpha1.ConditionOptionalFeatures, true, operatorv1alpha1.ReasonAllApplied, "")
	}
	if wrong == nil {
		o.Condition(operatorv1alpha1.ConditionDependenciesAvailable, true, operatorv1alpha1.ReasonAvailable, "")
		return true
	}
	d.missing(o, wrong, target)
	return false
}

// missing says that an API of others is not there that is required, and how grave that is.
func (d *Rules) missing(o *Decision, wrong *dependency.Dependency, target operatorv1alpha1.BackendType) {
	const kind = operatorv1alpha1.ConditionDependenciesAvailable
	active, left := o.world.Eventing.Status.ActiveBackend.Canonical(), d.DependencyTimeout-o.wrongFor(kind)
	waiting := left > 0 && !wrong.AtOnce && wrong.Presence != dependency.Conflict && active != target
	switch {
	case waiting, wrong.Presence == dependency.Soon:
		o.AtLeast(operatorv1alpha1.StateProcessing)
		o.look(left)
	case active != "" && active != target:
		o.AtLeast(operatorv1alpha1.StateWarning) // the backend that is active goes on
	default:
		o.AtLeast(operatorv1alpha1.StateError)
	}
	o.Condition(kind, false, wrong.Reason(waiting), "%s", wrong.Message())
}
