package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of Subscription.
var GroupVersion = schema.GroupVersion{Group: "eventing.kyma-project.io", Version: "v1alpha2"}

// AddToScheme makes the kinds of this package known to a scheme. It returns no error: the signature
// is that of Kubernetes' own packages.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Subscription{}, &SubscriptionList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
