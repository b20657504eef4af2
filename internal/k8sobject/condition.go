package k8sobject

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"knative.dev/pkg/apis"
)

// Condition is one of an object's status. Knative, Kyma, Service Catalog and Kubernetes
// write them in the same way.
type Condition struct{ apis.Condition }

// True says whether the condition holds.
func (c Condition) True() bool { return c.IsTrue() }

func (c Condition) String() string {
	switch {
	case c.Reason == "":
		return c.Message
	case c.Message == "":
		return c.Reason
	}
	return c.Reason + ": " + c.Message
}

// ConditionOf reads a condition, all empty if there is none. It reads field by field: the
// converter of unstructured objects refuses all of a status for one odd field, and takes
// memory for each (docs/decisions/0001-libraries.md).
func ConditionOf(obj *unstructured.Unstructured, name apis.ConditionType) Condition {
	conditions, _ := MapAt(obj.Object, "status")["conditions"].([]any)
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if apis.ConditionType(Text(condition["type"])) == name {
			return Condition{apis.Condition{
				Type: name, Status: corev1.ConditionStatus(Text(condition["status"])),
				Reason: Text(condition["reason"]), Message: Text(condition["message"]),
			}}
		}
	}
	return Condition{}
}

// Readiness is the condition Ready of an object in Knative's style.
type Readiness struct {
	Condition
	// Current says that the condition is about the object as it is now. A
	// controller that never sets status.observedGeneration (that of HTTPSources)
	// gives no sign of it, and is believed.
	Current bool
}

// ReadinessOf reads the condition Ready.
func ReadinessOf(obj *unstructured.Unstructured) Readiness {
	observed, _ := Integer(MapAt(obj.Object, "status")["observedGeneration"])
	return Readiness{ConditionOf(obj, apis.ConditionReady), observed == 0 || observed == obj.GetGeneration()}
}

// OK says whether the object is ready as it is now.
func (r Readiness) OK() bool { return r.True() && r.Current }

// Problem words a readiness that is not OK, as the end of a sentence.
func (r Readiness) Problem() string {
	switch because := r.String(); {
	case r.Status == "":
		return "has no status yet"
	case !r.Current:
		return "has changed, and its controller has not caught up"
	case because == "":
		return "is not ready"
	default:
		return fmt.Sprintf("is not ready: %s", because)
	}
}
