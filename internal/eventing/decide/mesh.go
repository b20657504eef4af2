package decide

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

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

// prepareMesh waits for the Broker.
func (t *turn) prepareMesh() bool {
	if url, _ := brokerURL(t.w.Object("Broker", t.Names.Broker())); url == "" {
		t.down(t.contract.Accept.Has(t.target))
		return false
	}
	return true
}

// brokerURL is where a Broker takes events; "" and the problem, in Knative's words, if it takes
// none.
func brokerURL(broker *unstructured.Unstructured) (url, problem string) {
	if broker == nil {
		return "", "The Broker does not exist yet."
	}
	problem = "The Broker is not ready yet. No controller of Knative Eventing has answered."
	observed, _, _ := unstructured.NestedInt64(broker.Object, "status", "observedGeneration")
	conditions, _, _ := unstructured.NestedSlice(broker.Object, "status", "conditions")
	for _, c := range conditions {
		is, _ := c.(map[string]any)
		if is["type"] != "Ready" {
			continue
		}
		if is["status"] == "True" && observed >= broker.GetGeneration() && broker.GetDeletionTimestamp() == nil {
			url, _, _ = unstructured.NestedString(broker.Object, "status", "address", "url")
			return url, ""
		}
		problem = strings.TrimSpace(fmt.Sprintf("The Broker is not ready. %v %v", text(is["reason"]), text(is["message"])))
	}
	return "", problem
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// leaveMesh deletes the Broker when nothing can be in its Channels any more. Triggers stay until
// then: a Channel without subscribers answers with success, and delivers nothing.
func (t *turn) leaveMesh() {
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

// keep writes the values that a backend is rendered with on an object of it.
func keep(u *unstructured.Unstructured, values any) error {
	raw, err := json.Marshal(values)
	if err != nil {
		return err
	}
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[backend.ValuesAnnotation] = string(raw)
	u.SetAnnotations(annotations)
	return nil
}

// recorded are the values that a backend was last rendered with; without a record, it is not
// rendered.
func recorded(u *unstructured.Unstructured) (map[string]any, error) {
	none := map[string]any{"enabled": false}
	if u == nil || u.GetDeletionTimestamp() != nil {
		return none, nil
	}
	kept := u.GetAnnotations()[backend.ValuesAnnotation]
	if kept == "" {
		return none, nil
	}
	values := map[string]any{}
	if err := json.Unmarshal([]byte(kept), &values); err != nil {
		return nil, fmt.Errorf("annotation %s of %s: %w", backend.ValuesAnnotation, title(u), err)
	}
	return values, nil
}
