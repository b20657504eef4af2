// Package v1alpha2 is the API for those who receive events: the kind Subscription. A Subscription
// says which types of which source go to which sink.
//
// The Event Bus of Kyma 1.16 and earlier has a kind of the same group and name at v1alpha1, with
// another shape. This package knows nothing of that one, and its definition serves v1alpha2 alone.
//
// +kubebuilder:object:generate=true
// +groupName=eventing.kyma-project.io
package v1alpha2
