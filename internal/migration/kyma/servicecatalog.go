package kyma

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
)

// AuthenticationPolicy is Istio's, which says what a workload accepts.
var AuthenticationPolicy = schema.GroupKind{Group: "authentication.istio.io", Kind: "Policy"}

const (
	// ApplicationBroker is the Deployment in IntegrationNamespace, and the
	// ServiceBroker in each namespace with an ApplicationMapping, that provisions
	// the services of Applications.
	ApplicationBroker = "application-broker"
	// ServiceCatalogFinalizer is on ServiceInstances and ServiceBindings.
	ServiceCatalogFinalizer = "kubernetes-incubator/service-catalog"
	// AccessLabel is on a namespace with an ApplicationMapping. application-broker
	// removes it whenever a ServiceInstance of the namespace is deleted, and sets it
	// again when it resyncs, every 30 minutes.
	AccessLabel = "accessLabel"
	// LinkPrefix begins the names of the Knative Subscriptions that
	// application-broker makes.
	LinkPrefix = "brokersub-"
)

// Labels that Service Catalog's webhooks keep on a ServiceInstance.
const (
	ServiceClassRefLabel = "servicecatalog.k8s.io/spec.serviceClassRef.name"
	ServicePlanRefLabel  = "servicecatalog.k8s.io/spec.servicePlanRef.name"
)

// Reasons of a ServiceInstance's condition Ready.
const (
	// ReasonBlocked is of a deletion that waits for ServiceBindings to go.
	ReasonBlocked = "DeprovisionBlockedByExistingCredentials"
	// ReasonPolling is of an operation that its broker does not answer for.
	ReasonPolling = "ErrorPollingLastOperation"
	// ReasonDeprovisionFailed is of a deprovisioning that its broker answers with an
	// error. Service Catalog asks again.
	ReasonDeprovisionFailed = "DeprovisionCallFailed"
)

// applicationBrokerImages are the tags of application-broker's image.
var applicationBrokerImages = map[string]string{"87fe96df": "1.10", "ea60970f": "1.11"}

// ApplicationBrokerVersion returns the Kyma version that a Deployment of
// application-broker is of, "" if its image is not known.
func ApplicationBrokerVersion(deployment *unstructured.Unstructured) string {
	if deployment == nil {
		return ""
	}
	containers, _ := k8sobject.MapAt(deployment.Object, "spec", "template", "spec")["containers"].([]any)
	for _, c := range containers {
		container, _ := c.(map[string]any)
		image := k8sobject.Text(container["image"])
		if version, ok := applicationBrokerImages[image[strings.LastIndex(image, ":")+1:]]; ok {
			return version
		}
	}
	return ""
}

// OfApplicationBroker says whether a pod belongs to the Deployment
// application-broker: to a ReplicaSet that has its name and a hash.
func OfApplicationBroker(pod *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != "ReplicaSet" {
		return false
	}
	hash, ok := strings.CutPrefix(owner.Name, ApplicationBroker+"-")
	return ok && hash != "" && !strings.Contains(hash, "-")
}

// AppService is a service of an Application.
type AppService struct {
	ID, DisplayName string
	// Events says that it has an entry of that type.
	Events bool
}

// ServicesOf returns spec.services of an Application.
func ServicesOf(application *unstructured.Unstructured) []AppService {
	services, _ := k8sobject.MapAt(application.Object, "spec")["services"].([]any)
	all := make([]AppService, 0, len(services))
	for _, s := range services {
		service, _ := s.(map[string]any)
		one := AppService{ID: k8sobject.Text(service["id"]), DisplayName: k8sobject.Text(service["displayName"])}
		entries, _ := service["entries"].([]any)
		for _, e := range entries {
			entry, _ := e.(map[string]any)
			one.Events = one.Events || k8sobject.Text(entry["type"]) == "Events"
		}
		all = append(all, one)
	}
	return all
}

// OddServices says which field of spec.services of an Application is of another type than it must
// be, so that ServicesOf does not tell all of them; "" if none is.
func OddServices(application *unstructured.Unstructured) string {
	spec := application.Object["spec"]
	services := k8sobject.MapAt(application.Object, "spec")["services"]
	if odd := cmp.Or(oddUnless[map[string]any]("spec", spec, "object"), oddUnless[[]any]("spec.services", services, "list")); odd != "" {
		return odd
	}
	list, _ := services.([]any)
	for i, s := range list {
		at := fmt.Sprintf("spec.services[%d]", i)
		service, _ := s.(map[string]any)
		odd := cmp.Or(oddUnless[map[string]any](at, s, "object"), oddUnless[string](at+".id", service["id"], "text"), oddUnless[[]any](at+".entries", service["entries"], "list"))
		if odd != "" {
			return odd
		}
		entries, _ := service["entries"].([]any)
		for n, e := range entries {
			at := fmt.Sprintf("%s.entries[%d]", at, n)
			entry, _ := e.(map[string]any)
			if odd := cmp.Or(oddUnless[map[string]any](at, e, "object"), oddUnless[string](at+".type", entry["type"], "text")); odd != "" {
				return odd
			}
		}
	}
	return ""
}

// oddUnless says that a field is not of a type, "" if it is, or is not there.
func oddUnless[T any](field string, v any, what string) string {
	if _, ok := v.(T); ok || v == nil {
		return ""
	}
	return field + " is no " + what
}

// CompassID is the ID by which API packages know an Application, "" if it has
// none: there it is that of the ServiceClass, and the service's is the plan's.
func CompassID(application *unstructured.Unstructured) string {
	return k8sobject.Text(k8sobject.MapAt(application.Object, "spec", "compassMetadata")["applicationId"])
}

// Enables says whether an ApplicationMapping enables a service: one without
// spec.services enables all.
func Enables(mapping *unstructured.Unstructured, service string) bool {
	services, ok := k8sobject.MapAt(mapping.Object, "spec")["services"].([]any)
	if !ok {
		return true
	}
	for _, s := range services {
		one, _ := s.(map[string]any)
		if k8sobject.Text(one["id"]) == service {
			return true
		}
	}
	return false
}

// LinkName is the name of the Knative Subscription that brings the events of an
// Application to a namespace, where application-broker generates one. It finds it
// by its labels, whatever it is called.
func LinkName(application, namespace string) string {
	sum := sha256.Sum256([]byte(application + "/" + namespace))
	return LinkPrefix + hex.EncodeToString(sum[:5])
}

// LinkURI is where that Subscription sends to.
func LinkURI(namespace string) string { return "http://" + DefaultBroker + "-broker." + namespace }

// BrokerPolicyName is the name of the Policy by which application-broker of 1.11
// lets the Broker of a namespace take events from outside of the service mesh.
func BrokerPolicyName(namespace string) string { return namespace + "-broker" }

// Instance is what the status of a ServiceInstance says.
type Instance struct {
	Ready, Failed k8sobject.Condition
	// Provisioned says that its broker has it, whatever became of later updates.
	Provisioned bool
	// Operation is under way: "Provision", "Update", "Deprovision"; Polling says
	// that its broker is asked for its outcome, and Since when it began. Service
	// Catalog deprovisions an instance also if the answer to its provisioning leaves
	// open what the broker did (orphan mitigation), and provisions it after that.
	Operation string
	Polling   bool
	Since     time.Time
	// Undeletable: its deprovisioning failed permanently, and Service Catalog does
	// nothing about it any more.
	Undeletable bool
	// Unknown: application-broker answers the deprovisioning of an instance that was
	// never provisioned with the error that it does not have the instance. It has an
	// operation of it then: without one, it answers that the instance is gone. It stores
	// the operation of a provisioning before it finds out that it does not know the
	// service. Only a restart changes that answer.
	Unknown bool
}

const (
	// Deprovision is the operation that removes an instance.
	Deprovision = "Deprovision"
	// notStored is in application-broker's answer to a deprovisioning if it does not
	// have the instance. Service Catalog copies the answer into the condition, and has
	// no field for it.
	notStored = "getting instance %s from storage"
)

// InstanceOf reads the status of a ServiceInstance.
func InstanceOf(obj *unstructured.Unstructured) Instance {
	status := k8sobject.MapAt(obj.Object, "status")
	polling, _ := status["asyncOpInProgress"].(bool)
	mitigating, _ := status["orphanMitigationInProgress"].(bool)
	i := Instance{
		Ready: k8sobject.ConditionOf(obj, "Ready"), Failed: k8sobject.ConditionOf(obj, "Failed"),
		Provisioned: k8sobject.Text(status["provisionStatus"]) == "Provisioned",
		Operation:   k8sobject.Text(status["currentOperation"]), Polling: polling,
		Undeletable: k8sobject.Text(status["deprovisionStatus"]) == "Failed",
	}
	if mitigating || i.Operation == "" && polling {
		i.Operation = Deprovision
	}
	i.Unknown = !i.Provisioned && !i.Failed.True() && i.Operation == Deprovision && i.Ready.Reason == ReasonDeprovisionFailed &&
		strings.Contains(i.Ready.Message, fmt.Sprintf(notStored, k8sobject.Text(k8sobject.MapAt(obj.Object, "spec")["externalID"])))
	if since, err := time.Parse(time.RFC3339, k8sobject.Text(status["operationStartTime"])); err == nil {
		i.Since = since
	}
	return i
}

// FailedForGood says that the instance was never provisioned, and never will be.
func (i Instance) FailedForGood() bool { return !i.Provisioned && i.Failed.True() }

// Lost says whether the operation under way was forgotten by its broker, which
// keeps operations in memory and began to run at the given time: Service Catalog
// asks for its outcome for seven days then.
func (i Instance) Lost(broker time.Time) bool {
	if !i.Polling || i.Operation == Deprovision || i.Since.IsZero() || broker.IsZero() {
		return false
	}
	return broker.After(i.Since) || i.Ready.Reason == ReasonPolling && !broker.Before(i.Since)
}

// ParameterSource is a key of a Secret that parameters come from.
type ParameterSource struct{ Secret, Key string }

// ParameterSources are those that spec.parametersFrom of a ServiceInstance names.
func ParameterSources(obj *unstructured.Unstructured) []ParameterSource {
	list, _ := k8sobject.MapAt(obj.Object, "spec")["parametersFrom"].([]any)
	var sources []ParameterSource
	for _, s := range list {
		source, _ := s.(map[string]any)
		ref := k8sobject.MapAt(source, "secretKeyRef")
		if name := k8sobject.Text(ref["name"]); name != "" {
			sources = append(sources, ParameterSource{name, k8sobject.Text(ref["key"])})
		}
	}
	return sources
}
