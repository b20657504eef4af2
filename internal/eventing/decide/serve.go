package decide

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/rollout"
)

// taker is what a backend is asked that is to take events.
type taker interface {
	// prepared makes it ready to be opened. It is false until that is done, and says why.
	prepared(*reconciliation) bool
	// takes tells whether it takes events.
	takes(*Rules, *observed.World) bool
	// away tells whether it was opened in this epoch, with all that delivers, and does not answer
	// now. The publisher may be there then.
	away(d *Rules, w *observed.World, epoch string) bool
	// marks write that it may hold events, before it can; none if that is written.
	marks(*reconciliation) []Action
	// warnings are what people are told before it takes events.
	warnings(*observed.World) []Action
	// open opens it after it was accepted; nil if that is all that it needs.
	open(*reconciliation) Action
	// report says how it is while it takes events.
	report(*reconciliation)
	// address writes where it is. A program that is given no address does not connect.
	address(*reconciliation, *backend.Backends)
	// problem is why it takes none; "" if nothing is known.
	problem(*Rules, *observed.World) string
	// degraded says which pods of it are not ready; "" if all are.
	degraded(*Rules, *observed.World) string
}

// fresh are the backends when there are none, or when what takes events is another one: what is
// there of the other backends goes on.
func (t *reconciliation) fresh() backend.Backends {
	b := backend.Backends{Epoch: t.w.NewEpoch}
	t.addresses(&b)
	for _, c := range t.others() {
		if !c.finished(t.Rules, t.w) {
			b.Serving = append(b.Serving, c.is)
			if t.published(t.w, c.is) != "" {
				b.Accept = append(b.Accept, c.is)
			}
		}
	}
	return b
}

// addresses writes where the backends are that are wanted, or that still hold events.
func (t *reconciliation) addresses(b *backend.Backends) {
	for _, c := range t.known() {
		c.address(t, b)
	}
}

// taking tells whether the wanted backend takes events.
func (t *reconciliation) taking() bool {
	c := t.carrier(t.target)
	return c != nil && c.takes(t.Rules, t.w)
}

// waiting are the Subscriptions that are not ready on the wanted backend in this epoch. Whether
// they are on another one does not matter.
func (t *reconciliation) waiting() (all []observed.Subscription) {
	state := t.w.ControllerState(t.Names)
	for _, s := range t.w.Subscriptions {
		ready := s.Epochs[t.target] == t.backends.Epoch || state.AllReady(t.backends, t.target, s.Version)
		if s.Valid && !s.Deleting && !s.Skipped && !ready {
			all = append(all, s)
		}
	}
	return all
}

// serve makes the controller follow the wanted backend, and each other one until that is finished.
func (t *reconciliation) serve() bool {
	serving := backend.Set{t.target}
	for _, c := range t.others() {
		if !c.finished(t.Rules, t.w) {
			serving = append(serving, c.is)
		}
	}
	next, why := t.backends, ""
	if t.addresses(&next); !maps.Equal(next.Data(), t.backends.Data()) {
		why = "write the address of " + string(t.target)
	}
	// A backend that is not served, or not any more, is not accepted: a Broker that somebody
	// deleted comes back without Triggers.
	next.Accept = slices.DeleteFunc(slices.Clone(next.Accept), func(b operatorv1alpha1.BackendType) bool { return !t.backends.Serving.Has(b) || !serving.Has(b) })
	if next.Accept.String() != t.backends.Accept.String() {
		why = "accept no more events for what is not served"
	}
	if next.Serving.String() != serving.String() {
		if len(next.Serving) > 0 { // what was said about another set does not hold for this one
			next.Epoch = t.w.NewEpoch
		}
		next.Serving, next.Removed, why = serving, false, "serve "+serving.String()
	}
	if why == "" {
		return true
	}
	t.o.do(t.Rules.backends(t.w, next, why))
	t.o.AtLeast(operatorv1alpha1.StateProcessing)
	reason := operatorv1alpha1.ReasonProvisioning
	if len(serving) == 1 || len(serving) < len(t.backends.Serving) {
		reason = operatorv1alpha1.ReasonRemoving // another backend holds nothing more
	}
	t.step(reason, "The controller is asked to serve %s.", serving)
	if !next.Accept.Has(t.target) {
		t.unavailable("The controller is asked to serve it.")
	}
	return false
}

// open lets the wanted backend take events, when each Subscription is ready there. What it intends
// is written before.
func (t *reconciliation) open() bool {
	w, o := t.w, t.o
	marks := t.wanted.marks(t)
	accepted := t.backends.Accept.Has(t.target)
	if accepted && t.taking() {
		o.do(marks...)
		t.wanted.report(t)
		return len(marks) == 0
	}
	o.AtLeast(operatorv1alpha1.StateProcessing)
	switch waiting := t.waiting(); {
	case !t.ready:
		t.unavailable("%s takes no events until all dependencies are available.", t.target)
		t.step(operatorv1alpha1.ReasonProvisioning, "A dependency is missing.")
	case !w.Followed(t.Names):
		message := fmt.Sprintf("%s takes events when the controller has read ConfigMap %s.", t.target, t.Names.Backends())
		t.unavailable("%s", message)
		t.await(operatorv1alpha1.ReasonAwaiting, awaitController, "%s", message)
	case len(waiting) > 0:
		message := fmt.Sprintf("%s takes events when each Subscription is ready there. Waiting for %s.", t.target, observed.Names(waiting))
		t.unavailable("%s", message)
		t.await(operatorv1alpha1.ReasonAwaiting, awaitSubscriptions, "%s", message)
	case len(marks) > 0:
		o.do(marks...)
	case !accepted:
		next := t.backends
		next.Accept = append(slices.Clone(next.Accept), t.target)
		o.do(t.wanted.warnings(w)...)
		o.do(t.Rules.backends(w, next, "accept events"))
	default:
		if opens := t.wanted.open(t); opens != nil {
			o.do(opens)
		}
	}
	return false
}

// publishes is the backend that the publisher is rendered for; "" if it is not rendered. It is
// created when the backend takes events and each Subscription is ready there. It moves to another
// backend under the same conditions, and stays otherwise: its pods refuse what cannot be stored.
func (t *reconciliation) publishes() operatorv1alpha1.BackendType {
	w := t.w
	is := observed.SendsTo(w.Object("Deployment", t.Names.Publisher()))
	accepted := t.backends.Accept.Has(t.target)
	switch {
	case is == t.target:
		return is
	case accepted && t.taking() && w.Followed(t.Names) && len(t.waiting()) == 0:
		return t.target
	case is != "":
		return is
	case accepted && t.wanted.away(t.Rules, w, t.backends.Epoch):
		return t.target // somebody deleted it while the backend is away
	}
	return ""
}

// moved is true when each pod of the publisher sends to the wanted backend. After that, no other
// backend is accepted.
func (t *reconciliation) moved() bool {
	deployment := t.w.Object("Deployment", t.Names.Publisher())
	publisher := rollout.As[appsv1.Deployment](deployment)
	if publisher == nil {
		return false // it is rendered now
	}
	elsewhere := slices.DeleteFunc(t.w.SendElsewhere(t.target), t.refused)
	r := rollout.Of(publisher)
	if t.leaving != nil && (observed.SendsTo(deployment) != t.target || !r.Updated || r.Available < r.Wanted || len(elsewhere) > 0) {
		message := fmt.Sprintf("%d of %d pods of the publisher are available.", r.Available, r.Wanted)
		if len(elsewhere) > 0 {
			message = t.stillSend(elsewhere)
		}
		t.step(operatorv1alpha1.ReasonRollingOut, "%s", message)
		return false
	}
	if t.backends.Accept.String() != (backend.Set{t.target}).String() {
		next := t.backends
		next.Accept = backend.Set{t.target}
		t.o.do(t.Rules.backends(t.w, next, "accept events for "+string(t.target)+" alone"))
		return false
	}
	return true
}

// refused tells whether nothing takes what a pod sends that hangs on a dead node. One that does not
// say where it sends may send to each backend.
func (t *reconciliation) refused(p corev1.Pod) bool {
	if !t.w.Lingers(p) {
		return false
	}
	if to := t.carrier(observed.Destination(p)); to != nil {
		return to.refusesLate
	}
	return !slices.ContainsFunc(t.others(), func(c *carrier) bool { return !c.refusesLate })
}

// stillSend names pods of the publisher, and the backends that they send to.
func (t *reconciliation) stillSend(pods []corev1.Pod) string {
	var to, names []string
	for _, c := range t.others() {
		if slices.ContainsFunc(pods, func(p corev1.Pod) bool { return observed.Destination(p) == c.is }) {
			to = append(to, string(c.is))
		}
	}
	if len(to) == 0 {
		to = append(to, string(t.leaving.is))
	}
	for _, p := range pods {
		names = append(names, p.Name)
	}
	return fmt.Sprintf("These pods still send to %s: %s.", strings.Join(to, " and "), strings.Join(names, ", "))
}

// backends writes the ConfigMap that controller and publisher follow.
func (d *Rules) backends(w *observed.World, b backend.Backends, why string) Action {
	content := map[string]any{}
	for key, value := range b.Data() {
		content[key] = value
	}
	is := w.Object("ConfigMap", d.Names.Backends())
	if is != nil {
		for key := range observed.Data(is) {
			if _, ok := content[key]; !ok {
				content[key] = nil
			}
		}
		return Patch{is, map[string]any{"data": content}, why}
	}
	u := d.configMap(w, d.Names.Backends(), backend.PlaneShared, "backends", content)
	u.SetAnnotations(w.Eventing.Spec.Annotations)
	return Create{u}
}

// configMap is one that the operator writes itself.
func (d *Rules) configMap(w *observed.World, name string, plane backend.Plane, component string, content map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": content}}
	u.SetNamespace(d.Namespace)
	u.SetName(name)
	u.SetLabels(d.Names.Labels(plane, component, d.Version, w.Eventing.Spec.Labels))
	return u
}
