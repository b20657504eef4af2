package rollout

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// TestRenew: pods that are older than their ServiceAccount or a Secret are replaced, once.
func TestRenew(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 29, 22, 0, 0, 0, time.UTC)
	created := func(uid string, after time.Duration) *metav1.PartialObjectMetadata {
		o := &metav1.PartialObjectMetadata{}
		o.UID, o.CreationTimestamp = types.UID(uid), metav1.NewTime(at.Add(after))
		return o
	}
	deployment := func(mark string) *unstructured.Unstructured {
		template := map[string]any{"spec": map[string]any{
			"serviceAccountName": "eventing-controller",
			"volumes": []any{
				map[string]any{"name": "user", "secret": map[string]any{"secretName": "eventing-nats-users"}},
				map[string]any{"name": "tmp", "emptyDir": map[string]any{}},
				map[string]any{"name": "ca", "secret": map[string]any{"secretName": "eventing-nats-ca"}},
			},
		}}
		if mark != "" {
			template["metadata"] = map[string]any{"annotations": map[string]any{RenewedAnnotation: mark}}
		}
		return &unstructured.Unstructured{Object: map[string]any{"kind": "Deployment", "spec": map[string]any{"template": template}}}
	}
	const account, users, authority = "ServiceAccount eventing-controller", "Secret eventing-nats-users", "Secret eventing-nats-ca"
	type objects = map[string]*metav1.PartialObjectMetadata
	for reason, tc := range map[string]struct {
		is      *unstructured.Unstructured
		objects objects
		want    string
	}{
		"the pod is older than its account":  {deployment(""), objects{account: created("second", time.Minute), users: created("users", -time.Hour)}, "second"},
		"the pod is older than a Secret":     {deployment(""), objects{account: created("first", -time.Hour), users: created("users", time.Minute)}, "users"},
		"the pod is older than both Secrets": {deployment(""), objects{users: created("users", time.Minute), authority: created("ca", 2*time.Minute)}, "ca"},
		"the pod is younger than all":        {deployment(""), objects{account: created("first", -time.Minute), users: created("users", 0)}, ""},
		"the pod was replaced":               {deployment("second"), objects{account: created("second", -time.Minute)}, "second"},
		"the account was replaced again":     {deployment("second"), objects{account: created("third", time.Minute)}, "third"},
		"a Secret goes after the account":    {deployment("second"), objects{account: created("second", -time.Minute), users: created("users", time.Minute)}, "users"},
		"the account is gone":                {deployment("second"), nil, "second"},
		"another Secret is younger":          {deployment(""), objects{"Secret eventing-nats-tls": created("tls", time.Minute)}, ""},
		"there is no Deployment yet":         {nil, objects{account: created("second", time.Minute)}, ""},
	} {
		pod := corev1.Pod{Spec: corev1.PodSpec{ServiceAccountName: "eventing-controller"}}
		pod.CreationTimestamp = metav1.NewTime(at)
		others := corev1.Pod{Spec: corev1.PodSpec{ServiceAccountName: "eventing-publisher-proxy"}}
		others.CreationTimestamp = metav1.NewTime(at.Add(-2 * time.Hour))
		want := deployment("")
		Renew(want, tc.is, []corev1.Pod{others, pod}, func(kind, name string) metav1.Object {
			if o := tc.objects[kind+" "+name]; o != nil {
				return o
			}
			return nil
		})
		got, _, _ := unstructured.NestedString(want.Object, "spec", "template", "metadata", "annotations", RenewedAnnotation)
		if got != tc.want {
			t.Errorf("%s: the template has %q, want %q", reason, got, tc.want)
		}
	}
}
