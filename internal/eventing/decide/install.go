package decide

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/chart"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/dependency"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/drift"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/rollout"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/values"
)

// installer is what the installation asks a backend.
type installer interface {
	// unsupported says what of the spec it cannot do, and what to do; "" if it can do all.
	unsupported(operatorv1alpha1.BackendConfig) string
	// unfit says what an earlier installation has left that this one cannot use; "" if nothing.
	unfit(*Rules, *observed.World) string
	// planned are its objects in the operator's namespace, without Secrets that outlive it.
	planned(backend.Names, operatorv1alpha1.BackendConfig) []observed.Key
	// secrets are those that it has and that the chart does not render.
	secrets(backend.Names) []observed.Key
	// credentials creates or completes those that are missing.
	credentials(*reconciliation) []Action
	// again is what goes before anything else when it is wanted: it removes what says that the
	// backend was outgoing. nil if nothing does.
	again(*reconciliation) Action
	// values are its values, as the spec asks for them.
	values(d *Rules, spec *operatorv1alpha1.EventingSpec, keys map[string]string, authority []byte) (map[string]any, error)
}

// Planned are the objects that the wanted backend needs, in the operator's namespace, without
// volume claims. Optional kinds of others are not among them.
func (d *Rules) Planned(spec *operatorv1alpha1.EventingSpec) []observed.Key {
	n := d.Names
	planned := []observed.Key{{Kind: "ConfigMap", Name: n.Backends()}, {Kind: "ConfigMap", Name: n.ControllerState()}, {Kind: "Secret", Name: n.NATSUsers()}, {Kind: "Secret", Name: n.NATSCA()}}
	if c := d.carrier(spec.Backend.Type.Canonical()); c != nil {
		planned = append(planned, c.planned(n, spec.Backend.Config)...)
	}
	program := func(name string, pods operatorv1alpha1.Replicas) {
		planned = append(planned, observed.Key{Kind: "Deployment", Name: name}, observed.Key{Kind: "Service", Name: name}, observed.Key{Kind: "Service", Name: name + "-metrics"})
		if pods.Max > 1 {
			planned = append(planned, observed.Key{Kind: "PodDisruptionBudget", Name: name})
		}
		if pods.Min != pods.Max {
			planned = append(planned, observed.Key{Kind: observed.Autoscaler.Kind, Name: name})
		}
	}
	program(n.Controller(), spec.Controller.Bounds())
	program(n.Publisher(), spec.Publisher.Replicas)
	return planned
}

// installed adds the actions that make all objects as they are wanted. It is true if there are
// none.
func (t *reconciliation) installed() bool {
	w, o := t.w, t.o
	before := len(o.Actions)
	if o.do(t.relabel(w)...); len(o.Actions) > before {
		return false
	}
	if again := t.wanted.again(t); again != nil {
		o.do(again)
		return false
	}
	t.keys = t.Keys(w)
	for _, c := range t.known() {
		o.do(c.credentials(t)...)
	}
	if len(o.Actions) > before {
		return false
	}
	wanted, err := t.render()
	if err != nil {
		// What is installed is not what fails: it goes on.
		o.AtLeast(operatorv1alpha1.StateWarning)
		o.Condition(operatorv1alpha1.ConditionSpecApplied, false, operatorv1alpha1.ReasonSpecInvalid, "Cannot render the chart: %v", err)
		o.unapplied = true
		return false
	}
	want := map[observed.Key]bool{}
	for _, u := range wanted {
		want[observed.KeyOf(u)] = true
		t.install(u)
	}
	o.do(t.prune(want)...)
	return len(o.Actions) == before
}

// install adds the action that makes one object as it is rendered.
func (t *reconciliation) install(u *unstructured.Unstructured) {
	is := t.w.Ours[observed.KeyOf(u)]
	epoch := t.backends.Epoch
	if t.outgoing(u) {
		// Its epoch says whether it was drained, so it is kept. What is gone of it stays so.
		if is == nil {
			return
		}
		epoch = is.GetAnnotations()[backend.EpochAnnotation]
	}
	keepDelivery(u, is)
	rollout.Renew(u, is, t.w.Pods, t.w.StartedWith)
	least := t.w.Eventing.Spec.Publisher.Replicas.Min
	if u.GetName() == t.Names.Controller() {
		least = t.w.Eventing.Spec.Controller.Replicas
	}
	rollout.Awake(u, is, least)
	drift.Seal(u, epoch)
	switch {
	case is == nil:
		t.o.do(Create{u})
	case is.GetDeletionTimestamp() != nil:
		// It is on its way out. Its end is watched.
	case !drift.Drifted(u, is):
	case t.o.keep(u, t.w.Kept.Of(u, is, t.w.Now)):
	case len(replaced(u, is, t.w.Now)) > 0:
		// It is created again when it is gone, and takes the pods over. Its template is the same or
		// not, which says whether they restart.
		t.o.do(Orphan{is, strings.Join(replaced(u, is, t.w.Now), ", ")})
	default:
		t.o.do(Apply{u, is})
	}
}

// replaceAgain is how old a StatefulSet has to be before it is replaced. What changes each new one,
// such as a webhook, would have it replaced for ever; so the API server refuses the change instead,
// and names the field.
const replaceAgain = time.Minute

// replaced are the fields for which a StatefulSet is replaced; none if it is not.
func replaced(want, is *unstructured.Unstructured, now time.Time) []string {
	if now.Sub(is.GetCreationTimestamp().Time) < replaceAgain {
		return nil
	}
	return drift.Unchangeable(want, is)
}

// relabel moves the prefix to the label that no tool for deployments claims: on what an earlier
// version has created, and on volume claims, which a StatefulSet creates with the labels by which
// it selects pods.
func (d *Rules) relabel(w *observed.World) (actions []Action) {
	const why = "remove the label that tools for deployments claim"
	labels := map[string]any{"metadata": map[string]any{"labels": map[string]any{backend.PodInstanceLabel: nil, backend.InstanceLabel: string(d.Names)}}}
	for _, key := range w.Keys() {
		if u := w.Ours[key]; d.Names.Former(u.GetLabels()) && u.GetDeletionTimestamp() == nil {
			actions = append(actions, Patch{u, runtime.DeepCopyJSON(labels), why})
		}
	}
	for i := range w.Claims {
		if c := &w.Claims[i]; d.Names.Former(c.Labels) && c.DeletionTimestamp == nil {
			actions = append(actions, Patch{observed.Claim(c), runtime.DeepCopyJSON(labels), why})
		}
	}
	return actions
}

// outgoing tells whether an object is one of an outgoing backend.
func (t *reconciliation) outgoing(u *unstructured.Unstructured) bool {
	for _, c := range t.known() {
		if u.GetLabels()[backend.PlaneLabel] == string(backend.PlaneOf(c.is)) {
			return c.is != t.target
		}
	}
	return false
}

// prune are the deletions of objects that an older version, or other values, have left. What is of
// an outgoing backend has rules of its own.
func (t *reconciliation) prune(want map[observed.Key]bool) (actions []Action) {
	stay := map[observed.Key]bool{{Kind: "ConfigMap", Name: t.Names.Backends()}: true, {Kind: "ConfigMap", Name: t.Names.ControllerState()}: true}
	for _, c := range t.known() {
		for _, key := range c.secrets(t.Names) {
			stay[key] = true
		}
	}
	for _, key := range t.w.Keys() {
		if u := t.w.Ours[key]; !want[key] && !stay[key] && u.GetDeletionTimestamp() == nil && !t.outgoing(u) {
			actions = append(actions, Remove{u})
		}
	}
	return actions
}

// render renders everything: the backend that is wanted from the spec, and each other one, while it
// is there, from the values that it was last rendered with.
func (t *reconciliation) render() ([]*unstructured.Unstructured, error) {
	optional := map[string]bool{}
	for _, dep := range t.w.Dependencies {
		if dep.Feature != "" {
			optional[dep.Kind.Kind] = dep.Presence == dependency.Served
		}
	}
	all, err := t.Values(&t.w.Eventing.Spec, t.keys, t.Authority(t.w).Certificate, optional, t.w.Scaled, t.publishes())
	if err != nil {
		return nil, err
	}
	for _, c := range t.others() {
		if all[c.section], err = values.Recorded(t.w.Ours[c.record(t.Names)]); err != nil {
			return nil, err
		}
	}
	t.o.Values = all
	objects, err := t.Chart.Render(chart.Release{Name: string(t.Names), Namespace: t.Namespace}, all)
	for _, u := range objects {
		for _, c := range t.known() {
			if observed.KeyOf(u) == c.record(t.Names) {
				if err := values.Keep(u, all[c.section]); err != nil {
					return nil, err
				}
			}
		}
	}
	return objects, err
}

// Values are those of the chart, as the spec asks for them. scaled are the Deployments whose number
// of pods somebody else's autoscaler decides.
func (d *Rules) Values(spec *operatorv1alpha1.EventingSpec, keys map[string]string, authority []byte, optional map[string]bool, scaled map[string]string, publishes operatorv1alpha1.BackendType) (map[string]any, error) {
	all, err := values.Shared(values.Operator{
		Names: d.Names, Version: d.Version, PublisherImage: d.PublisherImage, ControllerImage: d.ControllerImage, PullSecrets: d.PullSecrets, Optional: optional, Scaled: scaled,
	}, spec, publishes)
	if err != nil {
		return nil, err
	}
	for _, c := range d.known() {
		of, err := c.values(d, spec, keys, authority)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.section, err)
		}
		of["enabled"] = spec.Backend.Type.Canonical() == c.is
		all[c.section] = of
	}
	return all, nil
}
