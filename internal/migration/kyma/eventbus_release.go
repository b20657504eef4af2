package kyma

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
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
	labels := k8sobject.MapAt(job.Object, "metadata", "labels")
	if !strings.Contains(job.GetName(), meshMigration) && k8sobject.Text(labels["app.kubernetes.io/name"]) != meshMigration {
		return false
	}
	conditions, _ := k8sobject.MapAt(job.Object, "status")["conditions"].([]any)
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		ended := k8sobject.Text(condition["type"]) == "Complete" || k8sobject.Text(condition["type"]) == "Failed"
		if ended && k8sobject.Text(condition["status"]) == "True" {
			return false
		}
	}
	return true
}

// LegacySubscription says whether an object of the kind Subscription is one of
// the Event Bus. Later versions of Kyma use the same group and kind for something
// else, which has none of these fields.
func LegacySubscription(obj *unstructured.Unstructured) bool {
	spec := k8sobject.MapAt(obj.Object, "spec")
	return k8sobject.Text(spec["source_id"]) != "" || k8sobject.Text(spec["event_type"]) != ""
}
