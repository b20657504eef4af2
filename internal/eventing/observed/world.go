package observed

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/dependency"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/drift"
)

// World is what one reconcile has read, live. decide sees nothing else.
type World struct {
	Now time.Time
	// NewEpoch is one that was never used.
	NewEpoch string
	// Eventing is the one that is served.
	Eventing *operatorv1alpha1.Eventing
	// Ours are all objects with our labels but Pods and volume claims, by kind and name.
	Ours map[Key]*unstructured.Unstructured
	// Kept is what something makes of Ours at each write.
	Kept drift.Kept
	// Claims are the volume claims of NATS, sorted by name.
	Claims []corev1.PersistentVolumeClaim
	// Pods are those with our labels, terminating ones included, and without those that have ended.
	Pods []corev1.Pod
	// Accounts are the ServiceAccounts of the programs, by name.
	Accounts map[string]*metav1.PartialObjectMetadata
	// Scaled are the autoscalers of somebody else, by the name of the Deployment of ours whose
	// number of pods each decides.
	Scaled map[string]string
	// Triggers are names of those that the controller has created.
	Triggers []string
	// Foreign are objects that have a name of ours without our labels.
	Foreign []string
	// Dependencies say which APIs and objects of others are there.
	Dependencies []dependency.Dependency
	// Subscriptions are all in the cluster; nil if the kind is not served.
	Subscriptions []Subscription
	NATS          NATS
}

// Autoscaler is the kind that scales Deployments.
var Autoscaler = schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"}

// Kinds are what the operator creates in its namespace. Optional ones are read and written only
// where they are served.
var Kinds = []schema.GroupVersionKind{
	{Group: "apps", Version: "v1", Kind: "StatefulSet"},
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	Autoscaler,
	{Version: "v1", Kind: "Service"},
	{Version: "v1", Kind: "ConfigMap"},
	{Version: "v1", Kind: "Secret"},
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
}

// Key names an object in the operator's namespace.
type Key struct {
	Kind, Name string
}

// KeyOf is the key of an object.
func KeyOf(u *unstructured.Unstructured) Key { return Key{u.GetKind(), u.GetName()} }

// Keys are those of Ours, sorted.
func (w *World) Keys() []Key {
	return slices.SortedFunc(maps.Keys(w.Ours), func(a, b Key) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
}

// Object is one of Ours; nil if there is none.
func (w *World) Object(kind, name string) *unstructured.Unstructured {
	return w.Ours[Key{kind, name}]
}

// Has tells whether there is an object of ours of a kind.
func (w *World) Has(kind string) bool {
	return slices.ContainsFunc(w.Keys(), func(k Key) bool { return k.Kind == kind })
}

// StartedWith is an object that pods need when they start; nil if there is none.
func (w *World) StartedWith(kind, name string) metav1.Object {
	if account := w.Accounts[name]; kind == "ServiceAccount" && account != nil {
		return account
	}
	if u := w.Object(kind, name); u != nil {
		return u
	}
	return nil
}
