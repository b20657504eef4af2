package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of Eventing.
var GroupVersion = schema.GroupVersion{Group: "operator.kyma-project.io", Version: "v1alpha1"}

// AddToScheme makes the kinds of this package known to a scheme. It returns no error: the signature
// is that of Kubernetes' own packages.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Eventing{}, &EventingList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
