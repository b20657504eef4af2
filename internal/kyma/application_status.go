package kyma

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// InstallationFailed returns what application-operator says about an Application
// whose Helm release has failed; false if it has not.
func InstallationFailed(application *unstructured.Unstructured) (description string, failed bool) {
	status := MapAt(application.Object, "status", "installationStatus")
	if Text(status["status"]) != "FAILED" {
		return "", false
	}
	if description = Text(status["description"]); description == "" {
		description = "without a description"
	}
	return description, true
}
