package takeover

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Names and shapes of Kyma's eventing-manager and nats-manager. test/standin/kymaeventing/README.md
// says where each is written.
const (
	// Namespace is where Kyma's modules are.
	Namespace = "kyma-system"

	theirName      = "eventing"                 // of their Eventing
	theirOperator  = "eventing-manager"         // Deployment
	theirPublisher = "eventing-publisher-proxy" // Deployment and Service
	theirNATS      = "eventing-nats"            // NATS, StatefulSet and Service
	theirStream    = "sap"
	theirPlane     = "control-plane" // label of their operator, with its name
	theirSubjects  = "kyma."
	theirFinalizer = "eventing.operator.kyma-project.io/finalizer" // of the Eventing

	// monitorPort is that of the monitoring of nats-server, of both.
	monitorPort = 8222

	// ourOperatorName and ourComponent are labels of our operator, and prefixFlag is its flag.
	ourOperatorName = "eventing-manager"
	ourComponent    = "operator"
	prefixFlag      = "--resource-prefix="

	nameLabel      = "app.kubernetes.io/name"
	componentLabel = "app.kubernetes.io/component"

	// ReplicasAnnotation keeps on a Deployment how many replicas it had before a run stopped it.
	ReplicasAnnotation = "take-over.eventing.kyma-project.io/replicas"
	// BridgeLabel is on the pods of the bridge, and selects them.
	BridgeLabel = "take-over.eventing.kyma-project.io/bridge"
	// freezeName is that of the policy that freezes Subscriptions, and of its binding.
	freezeName = "eventing-take-over"
)

// The kinds.
var (
	deployments   = migration.CoreResource("apps", "deployments", "Deployment")
	replicaSets   = migration.CoreResource("apps", "replicasets", "ReplicaSet")
	statefulSets  = migration.CoreResource("apps", "statefulsets", "StatefulSet")
	pods          = migration.CoreResource("", "pods", "Pod")
	services      = migration.CoreResource("", "services", "Service")
	accounts      = migration.CoreResource("", "serviceaccounts", "ServiceAccount")
	configMaps    = migration.CoreResource("", "configmaps", "ConfigMap")
	networkRules  = migration.CoreResource("networking.k8s.io", "networkpolicies", "NetworkPolicy")
	policies      = migration.CoreResource("admissionregistration.k8s.io", "validatingadmissionpolicies", "ValidatingAdmissionPolicy")
	bindings      = migration.CoreResource("admissionregistration.k8s.io", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding")
	definitions   = migration.CoreResource("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition")
	eventings     = resource("operator.kyma-project.io", "v1alpha1", "eventings", "Eventing")
	subscriptions = resource("eventing.kyma-project.io", "v1alpha2", "subscriptions", "Subscription")
	natsKind      = schema.GroupKind{Group: "operator.kyma-project.io", Kind: "NATS"}
	kymaKind      = schema.GroupKind{Group: "operator.kyma-project.io", Kind: "Kyma"}
	manifestKind  = schema.GroupKind{Group: "operator.kyma-project.io", Kind: "Manifest"}
)

func resource(group, version, plural, kind string) migration.Resource {
	return migration.Resource{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: plural}, Kind: kind}
}

var (
	cleanSource = regexp.MustCompile(`[\s.>*/\\]`)
	cleanType   = regexp.MustCompile(`[\s>*/\\]`)
)

// theirConsumer is the name of the consumer that Kyma's operator has for a type of a Subscription.
func theirConsumer(namespace, name, source, eventType string, exact bool) string {
	subject := theirSubjects + eventType
	if !exact {
		subject = theirSubjects + cleanSource.ReplaceAllString(source, "") + "." + cleanType.ReplaceAllString(eventType, "")
	}
	sum := sha256.Sum256([]byte(namespace + "/" + name + "/" + subject))
	return hex.EncodeToString(sum[:])[:32]
}
