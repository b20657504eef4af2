package kyma

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
)

// Addressed says whether others can send to the object: v1alpha1 fills in
// status.address.hostname, every version status.address.url.
func Addressed(obj *unstructured.Unstructured) bool {
	address := k8sobject.MapAt(obj.Object, "status", "address")
	return k8sobject.Text(address["url"]) != "" || k8sobject.Text(address["hostname"]) != ""
}

// Owner is the controller of an object.
type Owner struct {
	schema.GroupKind
	Name string
	UID  types.UID
}

// ControllerOf returns the owner reference that is marked as the controller,
// false if there is none.
func ControllerOf(obj *unstructured.Unstructured) (Owner, bool) {
	references, _ := k8sobject.MapAt(obj.Object, "metadata")["ownerReferences"].([]any)
	for _, r := range references {
		reference, _ := r.(map[string]any)
		if controller, _ := reference["controller"].(bool); !controller {
			continue
		}
		gv, err := schema.ParseGroupVersion(k8sobject.Text(reference["apiVersion"]))
		if err != nil {
			continue // the API server does not store such a reference
		}
		return Owner{
			GroupKind: schema.GroupKind{Group: gv.Group, Kind: k8sobject.Text(reference["kind"])},
			Name:      k8sobject.Text(reference["name"]),
			UID:       types.UID(k8sobject.Text(reference["uid"])),
		}, true
	}
	return Owner{}, false
}

// OptedOut says whether the object carries the opt-out label.
func OptedOut(obj *unstructured.Unstructured) bool {
	return k8sobject.Text(k8sobject.MapAt(obj.Object, "metadata", "labels")[OptOutLabel]) == "true"
}

// SourceOf returns spec.source of an HTTPSource.
func SourceOf(obj *unstructured.Unstructured) string {
	return k8sobject.Text(k8sobject.MapAt(obj.Object, "spec")["source"])
}

// SkipsInstallation returns spec.skipInstallation of an Application: the
// application-operator neither installs nor upgrades its release.
func SkipsInstallation(obj *unstructured.Unstructured) bool {
	skip, _ := k8sobject.MapAt(obj.Object, "spec")["skipInstallation"].(bool)
	return skip
}

// installationSkipped is what the application-operator reports of an
// Application that has no release because of spec.skipInstallation.
const installationSkipped = "INSTALLATION_SKIPPED"

// Installed says whether the application-operator reports a Helm release for an
// Application, in whatever state.
func Installed(obj *unstructured.Unstructured) bool {
	status := k8sobject.Text(k8sobject.MapAt(obj.Object, "status", "installationStatus")["status"])
	return status != "" && status != installationSkipped
}

// InstallationFailed returns what application-operator says about an Application
// whose Helm release has failed; false if it has not.
func InstallationFailed(application *unstructured.Unstructured) (description string, failed bool) {
	status := k8sobject.MapAt(application.Object, "status", "installationStatus")
	if k8sobject.Text(status["status"]) != "FAILED" {
		return "", false
	}
	if description = k8sobject.Text(status["description"]); description == "" {
		description = "without a description"
	}
	return description, true
}

// Ended says whether a Pod has run to its end, well or not: an evicted one stays
// for ever, and does nothing.
func Ended(pod *unstructured.Unstructured) bool {
	phase := k8sobject.MapAt(pod.Object, "status")["phase"]
	return phase == "Succeeded" || phase == "Failed"
}
