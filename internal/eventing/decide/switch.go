package decide

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
)

const (
	// awaitController and awaitSubscriptions are how long a switch waits before it says that it is
	// blocked.
	awaitController, awaitSubscriptions = 2 * time.Minute, 5 * time.Minute
	// drainLimit is how long the outgoing backend may hold events before that is a warning.
	drainLimit = 30 * time.Minute
)

// reconciliation is one look at all backends: the one that is wanted, and the others, which may
// still be there. Nothing of a switch is stored: the first rule that does not hold is the step.
type reconciliation struct {
	*Rules
	w      *observed.World
	o      *Decision
	target operatorv1alpha1.BackendType
	// wanted is the backend of the name target. leaving is the outgoing one, the first of the
	// others that exists; nil if none does. All others are served and kept safe meanwhile.
	wanted, leaving *carrier
	// ready: nothing of others is missing.
	ready bool
	// backends are what publisher and controller follow.
	backends backend.Backends
	// keys are the public keys of the users of NATS.
	keys map[string]string
}

// newReconciliation is a look at the backends of which one is wanted.
func newReconciliation(d *Rules, w *observed.World, o *Decision, target operatorv1alpha1.BackendType) *reconciliation {
	t := &reconciliation{Rules: d, w: w, o: o, target: target, wanted: d.carrier(target)}
	for _, c := range t.others() {
		if t.leaving == nil && c.exists(d, w) {
			t.leaving = c
		}
	}
	return t
}

// others are all backends but the wanted one. Whether something of them is there does not matter.
func (t *reconciliation) others() (all []*carrier) {
	for _, c := range t.known() {
		if c.is != t.target {
			all = append(all, c)
		}
	}
	return all
}

// run makes the wanted backend take events, moves the publisher to it, and removes the others when
// they hold nothing more.
func (t *reconciliation) run() {
	w, o := t.w, t.o
	if t.leaving == nil {
		o.Condition(operatorv1alpha1.ConditionSwitching, false, operatorv1alpha1.ReasonIdle, "")
	}
	if t.hindered() {
		return
	}
	var err error
	if t.backends, err = w.Backends(t.Names); err != nil {
		o.AtLeast(operatorv1alpha1.StateProcessing)
		o.do(t.Rules.backends(w, t.fresh(), "begin an epoch"))
		return
	}
	o.Serving = t.backends.Serving
	if !t.installed() {
		o.AtLeast(operatorv1alpha1.StateProcessing)
		if problem := meta.FindStatusCondition(o.Conditions, operatorv1alpha1.ConditionBackendAvailable); problem == nil {
			t.unavailable("The backend is being installed.")
		}
		if !t.backends.Accept.Has(t.target) { // later this is a repair, and the step is the one of the look before
			t.step(operatorv1alpha1.ReasonProvisioning, "The backend %s is being installed.", t.target)
		}
		return
	}
	if !t.wanted.prepared(t) {
		t.step(operatorv1alpha1.ReasonProvisioning, "The backend %s is not available yet.", t.target)
		return
	}
	if t.serve() && t.open() && t.moved() {
		t.leave()
	}
}

// hindered tells whether something has to be deleted by people first. Then nothing is applied.
func (t *reconciliation) hindered() bool {
	reason, message := t.wanted.unavailable, t.wanted.unfit(t.Rules, t.w)
	switch {
	case len(t.w.Foreign) > 0:
		reason = operatorv1alpha1.ReasonForeignObject
		message = strings.Join(t.w.Foreign, ", ") + " was not created by this operator. Delete it, or start the operator with another --resource-prefix."
		t.o.look(downLimit / 2) // objects of others are not watched
	case message == "":
		return false
	}
	t.o.AtLeast(operatorv1alpha1.StateWarning)
	t.o.Condition(operatorv1alpha1.ConditionBackendAvailable, false, reason, "%s", message)
	t.o.unapplied = true
	return true
}

// step reports how far a switch is, if there is one: while anything of another backend is there.
func (t *reconciliation) step(reason, format string, args ...any) {
	if t.leaving == nil {
		return
	}
	from, message := t.leaving.is, strings.TrimSpace(fmt.Sprintf(format, args...))
	t.o.Condition(operatorv1alpha1.ConditionSwitching, true, reason, "%s", message)
	t.o.Switch = &operatorv1alpha1.Switch{
		From: from, To: t.target, Step: reason, Since: t.w.Since(from, t.target), Message: message, Pending: t.leaving.pending(t.w),
	}
}

// await is step, and a warning if the switch has taken longer than a limit.
func (t *reconciliation) await(reason string, limit time.Duration, format string, args ...any) {
	if t.leaving == nil {
		return
	}
	if left := limit - t.w.Now.Sub(t.w.Since(t.leaving.is, t.target).Time); left > 0 {
		t.o.look(left)
	} else {
		reason = operatorv1alpha1.ReasonBlocked
		t.o.AtLeast(operatorv1alpha1.StateWarning)
	}
	t.step(reason, format, args...)
}

// repeatReport repeats the last report if this look has something to do and nothing to say. Without
// it, the next one would give the switch another beginning, from which its limits count, and which
// the annotation names that was printed for people.
func (t *reconciliation) repeatReport() {
	last := t.w.Eventing.Status.Switch
	if t.o.Switch == nil && last != nil && t.leaving != nil && last.From == t.leaving.is && last.To == t.target {
		t.o.Switch = last.DeepCopy()
	}
}

// unavailable says that the wanted backend takes no events yet.
func (t *reconciliation) unavailable(format string, args ...any) {
	t.o.Condition(operatorv1alpha1.ConditionBackendAvailable, false, t.wanted.unavailable, format, args...)
}

// down says why the wanted backend takes no event. After a limit somebody has to know.
func (t *reconciliation) down(limit time.Duration) {
	worst := operatorv1alpha1.StateError
	if t.leaving != nil { // events are taken and delivered as before
		worst = operatorv1alpha1.StateWarning
	}
	if left := limit - t.o.wrongFor(operatorv1alpha1.ConditionBackendAvailable); left > 0 {
		t.o.AtLeast(operatorv1alpha1.StateProcessing)
		t.o.look(left)
	} else {
		t.o.AtLeast(worst)
	}
	problem := t.wanted.problem(t.Rules, t.w)
	if problem == "" {
		problem = "The servers are starting."
	}
	t.unavailable("%s", problem)
}
