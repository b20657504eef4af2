package decide

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// TestRenewTokens: pods that are older than their ServiceAccount are replaced, once.
func TestRenewTokens(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 29, 22, 0, 0, 0, time.UTC)
	deployment := func(mark string) *unstructured.Unstructured {
		template := map[string]any{"spec": map[string]any{"serviceAccountName": "eventing-controller"}}
		if mark != "" {
			template["metadata"] = map[string]any{"annotations": map[string]any{accountAnnotation: mark}}
		}
		return &unstructured.Unstructured{Object: map[string]any{"kind": "Deployment", "spec": map[string]any{"template": template}}}
	}
	for reason, tc := range map[string]struct {
		is      *unstructured.Unstructured
		account string        // its UID
		pod     time.Duration // after the ServiceAccount
		want    string
	}{
		"the pod is older":               {deployment(""), "second", -time.Minute, "second"},
		"the pod is younger":             {deployment(""), "first", time.Minute, ""},
		"the pod was replaced":           {deployment("second"), "second", time.Minute, "second"},
		"the account was replaced again": {deployment("second"), "third", -time.Minute, "third"},
		"the account is gone":            {deployment("second"), "", -time.Minute, "second"},
		"there is no Deployment yet":     {nil, "second", -time.Minute, ""},
	} {
		pod := corev1.Pod{Spec: corev1.PodSpec{ServiceAccountName: "eventing-controller"}}
		pod.CreationTimestamp = metav1.NewTime(at.Add(tc.pod))
		others := corev1.Pod{Spec: corev1.PodSpec{ServiceAccountName: "eventing-publisher-proxy"}}
		others.CreationTimestamp = metav1.NewTime(at.Add(-time.Hour))
		w := &World{Pods: []corev1.Pod{others, pod}}
		if tc.account != "" {
			account := &metav1.PartialObjectMetadata{}
			account.UID, account.CreationTimestamp = types.UID(tc.account), metav1.NewTime(at)
			w.Accounts = map[string]*metav1.PartialObjectMetadata{"eventing-controller": account}
		}
		want := deployment("")
		w.renewTokens(want, tc.is)
		got, _, _ := unstructured.NestedString(want.Object, "spec", "template", "metadata", "annotations", accountAnnotation)
		if got != tc.want {
			t.Errorf("%s: the template has %q, want %q", reason, got, tc.want)
		}
	}
}
