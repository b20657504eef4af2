package decide

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/dependency"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
)

// mesh is Knative Eventing as a backend: a Broker, which Knative serves, and a Trigger, which the
// controller creates. A controller of an earlier version has one for each type of a Subscription.
type mesh struct{ plain }

const (
	// openedAnnotation is on a Broker that events were published to, or are about to be: an epoch.
	openedAnnotation = "eventing.kyma-project.io/opened"
	// leftAnnotation is on a Broker that nobody publishes to any more: <epoch> <time as RFC 3339>.
	leftAnnotation = "eventing.kyma-project.io/left-at"
	// kindAnnotation is in the status of a Broker: the kind of its Channels.
	kindAnnotation = "knative.dev/channelKind"
	// synchronous is the kind with which an accepted event was delivered:
	// docs/decisions/1201-the-mesh.md.
	synchronous = "InMemoryChannel"
)

// unsupported: what the spec calls EventMesh was once a service of SAP. What carries events stays
// then: nothing else would take them.
func (mesh) unsupported(config operatorv1alpha1.BackendConfig) string {
	if config.EventMeshSecret == "" {
		return ""
	}
	return "SAP Event Mesh is not supported. What is installed is left as it is. Remove spec.backend.config.eventMeshSecret, or set spec.backend.type to NATS."
}

func (mesh) planned(n backend.Names, _ operatorv1alpha1.BackendConfig) []observed.Key {
	return []observed.Key{brokerKey(n), {Kind: "ConfigMap", Name: n.ControllerRoster()}}
}

// again: a new Broker has no Trigger that is ready, whatever was said about the former one.
func (mesh) again(t *reconciliation) Action {
	broker := t.w.Object("Broker", t.Names.Broker())
	switch {
	case broker == nil && t.backends.Serving.Has(t.target):
		return t.Rules.backends(t.w, t.fresh(), "begin an epoch")
	case broker != nil && broker.GetAnnotations()[leftAnnotation] != "":
		return Patch{broker, annotations(map[string]any{leftAnnotation: nil}), "remove the mark that nobody publishes"}
	}
	return nil
}

// keepDelivery leaves the delivery of a Broker that exists as it is: for another one, Knative
// deletes the Subscription of each Trigger that has none of its own, and creates it again. Until
// then, its Channel drops events and answers with success.
func keepDelivery(want, is *unstructured.Unstructured) {
	if is == nil || is.GetKind() != "Broker" {
		return
	}
	unstructured.RemoveNestedField(want.Object, "spec", "delivery")
	if delivery, found, _ := unstructured.NestedMap(is.Object, "spec", "delivery"); found {
		_ = unstructured.SetNestedMap(want.Object, delivery, "spec", "delivery") // spec is a map, as it is rendered
	}
}

func (mesh) values(*Rules, *operatorv1alpha1.EventingSpec, map[string]string, []byte) (map[string]any, error) {
	return map[string]any{}, nil
}

// brokerKey is all of the mesh that the operator creates where no kinds of others are served.
func brokerKey(n backend.Names) observed.Key { return observed.Key{Kind: "Broker", Name: n.Broker()} }

// prepared waits for the Broker.
func (m mesh) prepared(t *reconciliation) bool {
	if !m.takes(t.Rules, t.w) {
		t.down(downLimit)
		return false
	}
	return true
}

func (mesh) takes(d *Rules, w *observed.World) bool {
	url, _ := dependency.BrokerURL(w.Object("Broker", d.Names.Broker()))
	return url != ""
}

func (mesh) marks(t *reconciliation) []Action {
	broker := t.w.Object("Broker", t.Names.Broker())
	if broker.GetAnnotations()[openedAnnotation] != "" {
		return nil
	}
	return []Action{Patch{broker, annotations(map[string]any{openedAnnotation: t.backends.Epoch}), "write that events are published"}}
}

// warnings: the mesh stores nothing, so a client is told what a sink answers.
func (mesh) warnings(w *observed.World) []Action {
	refused := w.Refused()
	if len(refused) == 0 {
		return nil
	}
	return []Action{Tell{"Warning", "SinksRefuse", "The sinks of these Subscriptions do not take events now: " + observed.Names(refused) + ". On EventMesh clients cannot publish events of their types until they do."}}
}

func (mesh) report(t *reconciliation) {
	if refuses(t.Rules, t.w) != "" {
		t.down(downLimit)
		return
	}
	t.o.Condition(operatorv1alpha1.ConditionBackendAvailable, true, operatorv1alpha1.ReasonMeshAvailable, "")
	meta.RemoveStatusCondition(&t.o.Conditions, operatorv1alpha1.ConditionStreamSize)
}

func (mesh) address(t *reconciliation, b *backend.Backends) {
	broker := t.w.Object("Broker", t.Names.Broker())
	if url, _ := dependency.BrokerURL(broker); url != "" {
		b.Mesh = &backend.MeshAddress{Broker: t.Names.Broker(), URL: url}
	} else if broker != nil {
		b.Mesh = t.backends.Mesh // it is not ready now
	} else {
		b.Mesh = nil
	}
}

func (mesh) problem(d *Rules, w *observed.World) string {
	_, problem := dependency.BrokerURL(w.Object("Broker", d.Names.Broker()))
	return cmp.Or(problem, refuses(d, w))
}

// refuses is why the mesh takes no event although Knative says that the Broker is ready.
func refuses(d *Rules, w *observed.World) string {
	why := w.ControllerState(d.Names).MeshRefuses
	if why == "" || !w.Followed(d.Names) {
		return ""
	}
	return fmt.Sprintf(`%s. Next: kubectl -n %s patch eventings.operator.kyma-project.io %s --type=merge -p '{"spec":{"backend":{"type":"NATS"}}}', and when that is Ready, the same with EventMesh`,
		why, w.Eventing.Namespace, w.Eventing.Name)
}

func (m mesh) exists(d *Rules, w *observed.World) bool {
	return len(w.Triggers) > 0 || w.Exists(d.Names, operatorv1alpha1.EventMesh)
}

// finished: the Broker is deleted when the last pod that publishes to it is gone. One that was
// never opened has nothing in it.
func (mesh) finished(d *Rules, w *observed.World) bool {
	broker := w.Object("Broker", d.Names.Broker())
	return broker == nil || broker.GetAnnotations()[openedAnnotation] == ""
}

// leave deletes the Broker when nothing can be in its Channels any more. The Trigger stays until
// then: a Channel without subscribers answers with success, and delivers nothing.
func (mesh) leave(t *reconciliation) {
	broker := t.w.Object("Broker", t.Names.Broker())
	if broker.GetDeletionTimestamp() != nil {
		t.step(operatorv1alpha1.ReasonRemoving, "The Broker is being deleted.")
		return
	}
	kind, _, _ := unstructured.NestedString(broker.Object, "status", "annotations", kindAnnotation)
	if kind == synchronous || t.forced() {
		t.step(operatorv1alpha1.ReasonRemoving, "Nobody publishes to the Broker any more, and all events are delivered.")
		t.o.do(Remove{broker})
		return
	}
	epoch := broker.GetAnnotations()[backend.EpochAnnotation]
	mark, when, _ := strings.Cut(broker.GetAnnotations()[leftAnnotation], " ")
	at, err := time.Parse(time.RFC3339, when)
	if err != nil || mark != epoch {
		t.o.do(Patch{broker, annotations(map[string]any{leftAnnotation: epoch + " " + t.w.Now.UTC().Format(time.RFC3339)}), "write that nobody publishes"})
		t.step(operatorv1alpha1.ReasonDraining, "Nobody publishes to the Broker any more.")
		return
	}
	if left := t.MeshDelay - t.w.Now.Sub(at); left > 0 {
		t.step(operatorv1alpha1.ReasonDraining, "What is in Channels of the kind %q cannot be seen. The Broker is deleted %s after the last event.", kind, t.MeshDelay)
		t.o.look(left)
		return
	}
	t.o.do(Remove{broker})
}

func (mesh) remove(t *reconciliation) {
	t.step(operatorv1alpha1.ReasonRemoving, "The controller deletes its Trigger.")
	for _, key := range t.w.Keys() {
		if u := t.w.Ours[key]; u.GetLabels()[backend.PlaneLabel] == string(backend.PlaneMesh) {
			t.o.delete(u)
		}
	}
}

// withdrawn: the Trigger is deleted after the Broker, by the controller. A Channel without
// subscribers drops events.
func (mesh) withdrawn(d *Rules, w *observed.World, o *Decision) bool {
	broker := w.Object("Broker", d.Names.Broker())
	if broker != nil {
		o.delete(broker)
	}
	return broker == nil
}

// removed deletes the Triggers of a controller that did not work.
func (mesh) removed(_ *Rules, w *observed.World, o *Decision, _ bool) bool {
	for _, name := range w.Triggers {
		o.do(RemoveTrigger{name})
	}
	return len(w.Triggers) == 0
}

func (m mesh) breaks(d *Rules, w *observed.World, a Action) string {
	if a, ok := a.(Remove); ok && a.Observed.GetKind() == "Broker" {
		return d.published(w, operatorv1alpha1.EventMesh)
	}
	return ""
}
