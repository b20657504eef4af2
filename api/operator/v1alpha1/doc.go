// Package v1alpha1 is the API of the eventing operator: the kind Eventing. One Eventing says which
// backend carries events and how large its parts are. The operator reports in the status which
// state it has reached.
//
// The spec is a superset of the one that Kyma's own eventing-manager reads, so that its objects are
// accepted. The package imports nothing but Kubernetes' API machinery, so that its importers get no
// client.
//
// +kubebuilder:object:generate=true
// +groupName=operator.kyma-project.io
package v1alpha1
