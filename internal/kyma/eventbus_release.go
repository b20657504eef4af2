package kyma

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The Event Bus of Kyma 1.10 and 1.11 is a Helm release in SystemNamespace.
const (
	EventBusRelease = "event-bus"
	// EventPublishService is the Deployment that takes legacy events.
	EventPublishService = "event-bus-event-publish-service"
	// EventActivationFinalizer is on EventActivations; SubscriptionController puts
	// it there, and nothing else removes it.
	EventActivationFinalizer = "eventactivation.finalizers.kyma-project.io"
)

// meshMigration is the sub-chart of the stock event-bus chart of Kyma 1.11 whose
// pre-upgrade Job migrates in its own way.
const meshMigration = "mesh-namespaces-migration"

// MeshMigrationRuns says whether an object is the Job of Kyma's own migration,
// and has not ended. The chart calls it
// event-bus-mesh-namespaces-migration-mesh-namespaces-migration.
func MeshMigrationRuns(job *unstructured.Unstructured) bool {
	labels := MapAt(job.Object, "metadata", "labels")
	if !strings.Contains(job.GetName(), meshMigration) && Text(labels["app.kubernetes.io/name"]) != meshMigration {
		return false
	}
	conditions, _ := MapAt(job.Object, "status")["conditions"].([]any)
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		ended := Text(condition["type"]) == "Complete" || Text(condition["type"]) == "Failed"
		if ended && Text(condition["status"]) == "True" {
			return false
		}
	}
	return true
}

// LegacySubscription says whether an object of the kind Subscription is one of
// the Event Bus. Later versions of Kyma use the same group and kind for something
// else, which has none of these fields.
func LegacySubscription(obj *unstructured.Unstructured) bool {
	spec := MapAt(obj.Object, "spec")
	return Text(spec["source_id"]) != "" || Text(spec["event_type"]) != ""
}
