package rollout

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// RenewedAnnotation is on the template of a Deployment whose pods were replaced by Renew. It is the
// UID of the object that came in the place of theirs.
const RenewedAnnotation = "eventing.kyma-project.io/renewed-for"

// Renew changes the template of a wanted Deployment, so that pods are replaced that are older than
// their ServiceAccount or than a Secret of their volumes. Somebody has deleted the one that they
// were created with. The API server accepts no tokens of a former ServiceAccount, and the kubelet
// gets others for a pod only when most of their time is over. What a new Secret has is in a running
// pod after up to 90 s, and in a new pod at once.
//
// The Deployment that exists, if there is one, says what its pods were replaced for before. find
// returns a ServiceAccount or a Secret by its kind and name; nil if there is none.
func Renew(wanted, existing *unstructured.Unstructured, pods []corev1.Pod, find func(kind, name string) metav1.Object) {
	if existing == nil || existing.GetKind() != "Deployment" {
		return
	}
	account, _, _ := unstructured.NestedString(wanted.Object, "spec", "template", "spec", "serviceAccountName")
	newest := find("ServiceAccount", account)
	volumes, _, _ := unstructured.NestedSlice(wanted.Object, "spec", "template", "spec", "volumes")
	for _, v := range volumes {
		volume, _ := v.(map[string]any)
		name, _, _ := unstructured.NestedString(volume, "secret", "secretName")
		if secret := find("Secret", name); secret != nil && (newest == nil || older(newest, secret)) {
			newest = secret
		}
	}
	mark := []string{"spec", "template", "metadata", "annotations", RenewedAnnotation}
	uid, _, _ := unstructured.NestedString(existing.Object, mark...)
	if newest != nil && slices.ContainsFunc(pods, func(p corev1.Pod) bool {
		return p.Spec.ServiceAccountName == account && older(&p, newest)
	}) {
		uid = string(newest.GetUID())
	}
	if uid != "" {
		_ = unstructured.SetNestedField(wanted.Object, uid, mark...) // a template is rendered as maps
	}
}

func older(o, than metav1.Object) bool {
	return o.GetCreationTimestamp().Time.Before(than.GetCreationTimestamp().Time)
}
