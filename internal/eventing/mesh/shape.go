package mesh

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
)

// The kinds of the mesh, in the version that eventing needs.
var (
	triggers = schema.GroupVersionResource{Group: knative.Trigger.Group, Version: "v1", Resource: "triggers"}
	brokers  = schema.GroupVersionResource{Group: knative.Broker.Group, Version: "v1", Resource: "brokers"}
)

const (
	// triggerQuery is before what tells a Trigger from an earlier one, in the URI of its
	// subscriber.
	triggerQuery = backend.EventsPath + "?" + backend.TriggerParameter + "="
	// brokerAnnotation has the UID of the Broker that a Trigger was created for.
	brokerAnnotation = "eventing.kyma-project.io/broker"
	// longestValue is how much of a value a difference shows, in bytes.
	longestValue = 200
	// reachedAnnotation has the UID of the Trigger once a probe has come through it.
	reachedAnnotation = "eventing.kyma-project.io/reached"
)

// Broker is the Broker that the Trigger is for, and the epoch in which it is wanted.
type Broker struct {
	Name  string
	UID   types.UID
	Epoch string
	// URL is where it takes events.
	URL string
}

// wanted is the Trigger for a Broker. It has no filter: it takes all events. Its delivery is its
// own, and never changed: for another one Knative recreates its Subscription, and a Channel without
// subscribers answers with success and drops the event.
func (t *Trigger) wanted(b Broker, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": triggers.GroupVersion().String(), "kind": knative.Trigger.Kind,
		"spec": map[string]any{"broker": b.Name, "delivery": map[string]any{
			"retry": int64(backend.MeshRetries), "backoffPolicy": "exponential", "backoffDelay": "PT0.2S", "timeout": fmt.Sprintf("PT%dS", backend.MeshWait/time.Second),
		}, "subscriber": map[string]any{
			"ref": map[string]any{"apiVersion": "v1", "kind": "Service", "namespace": t.namespace, "name": t.names.Controller()},
			// A probe that came through an earlier one says nothing about this one.
			"uri": triggerQuery + uuid.NewString(),
		}},
	}}
	u.SetName(name)
	u.SetNamespace(t.namespace)
	u.SetLabels(t.names.Labels(backend.PlaneMesh, "trigger", t.version, nil))
	u.SetAnnotations(map[string]string{backend.EpochAnnotation: b.Epoch, brokerAnnotation: string(b.UID)})
	u.SetFinalizers([]string{backend.TriggerFinalizer})
	return u
}

func text(u *unstructured.Unstructured, fields ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, fields...)
	return s
}

// creationOf is what tells a Trigger from an earlier one; "" if it does not lead to EventsPath.
func creationOf(trigger *unstructured.Unstructured) string {
	creation, ok := strings.CutPrefix(text(trigger, "spec", "subscriber", "uri"), triggerQuery)
	if !ok {
		return ""
	}
	return creation
}

// differs tells whether a Trigger does something else than is wanted. What Knative's webhook adds
// is no difference.
func differs(is, want *unstructured.Unstructured) bool { return len(differences(is, want)) > 0 }

// differences are the fields in which it does, with both values.
func differences(is, want *unstructured.Unstructured) (found []string) {
	note := func(differs bool, fields ...string) {
		if !differs {
			return
		}
		got, _, _ := unstructured.NestedFieldNoCopy(is.Object, fields...)
		wanted, _, _ := unstructured.NestedFieldNoCopy(want.Object, fields...)
		found = append(found, fmt.Sprintf("%s is %s, and not %s", strings.Join(fields, "."), redact.Short(got, longestValue), redact.Short(wanted, longestValue)))
	}
	for _, fields := range [][]string{
		{"spec", "broker"},
		{"spec", "subscriber", "ref", "apiVersion"},
		{"spec", "subscriber", "ref", "kind"},
		{"spec", "subscriber", "ref", "namespace"},
		{"spec", "subscriber", "ref", "name"},
		{"metadata", "annotations", brokerAnnotation},
	} {
		note(text(is, fields...) != text(want, fields...), fields...)
	}
	if creationOf(is) == "" { // what is wanted has another end each time
		found = append(found, fmt.Sprintf("spec.subscriber.uri is %q, and does not begin with %s", text(is, "spec", "subscriber", "uri"), triggerQuery))
	}
	filters, _, _ := unstructured.NestedSlice(is.Object, "spec", "filters")
	note(len(filters) > 0, "spec", "filters")
	attributes, _, _ := unstructured.NestedMap(is.Object, "spec", "filter", "attributes")
	note(len(attributes) > 0, "spec", "filter")
	note(!equality.Semantic.DeepEqual(delivery(is), delivery(want)), "spec", "delivery")
	return found
}

func delivery(trigger *unstructured.Unstructured) map[string]any {
	m, _, _ := unstructured.NestedMap(trigger.Object, "spec", "delivery")
	return m
}

// held tells whether a Trigger stays when somebody deletes it.
func held(trigger *unstructured.Unstructured) bool {
	return slices.Contains(trigger.GetFinalizers(), backend.TriggerFinalizer)
}

// marked tells whether a Trigger has the labels, the epoch and the finalizer that are wanted.
func marked(is, want *unstructured.Unstructured) bool {
	if !held(is) {
		return false
	}
	for key, value := range want.GetLabels() {
		if is.GetLabels()[key] != value {
			return false
		}
	}
	return is.GetAnnotations()[backend.EpochAnnotation] == want.GetAnnotations()[backend.EpochAnnotation]
}

func reached(trigger *unstructured.Unstructured) bool {
	return trigger.GetAnnotations()[reachedAnnotation] == string(trigger.GetUID())
}
