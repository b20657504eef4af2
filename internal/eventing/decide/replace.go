package decide

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/drift"
)

// replaceAgain is how old a StatefulSet has to be before it is replaced. What changes each new one,
// such as a webhook, would have it replaced for ever; so the API server refuses the change instead,
// and names the field.
const replaceAgain = time.Minute

// immutable are the fields of a StatefulSet that the API server does not change, and that a version
// of the operator may render in another way. The selector is none of them: pods with other labels
// would not be found again.
var immutable = [][]string{{"spec", "serviceName"}, {"spec", "podManagementPolicy"}, {"spec", "volumeClaimTemplates"}}

// unchangeable names the immutable fields in which a StatefulSet is not as it is wanted. It is
// empty if another StatefulSet could not take over the pods, or would give them other volumes: then
// nothing may be replaced.
func unchangeable(want, is *unstructured.Unstructured, now time.Time) (fields []string) {
	a, b := convert[appsv1.StatefulSet](want), convert[appsv1.StatefulSet](is)
	if want.GetKind() != "StatefulSet" || a == nil || b == nil || now.Sub(b.CreationTimestamp.Time) < replaceAgain {
		return nil
	}
	if differs(want, is, "spec", "selector") || !slices.Equal(volumes(a), volumes(b)) {
		return nil
	}
	for _, field := range immutable {
		if differs(want, is, field...) {
			fields = append(fields, strings.Join(field, "."))
		}
	}
	return fields
}

func volumes(s *appsv1.StatefulSet) (names []string) {
	for _, template := range s.Spec.VolumeClaimTemplates {
		names = append(names, template.Name)
	}
	slices.Sort(names)
	return names
}

// differs tells whether one field is not as it is wanted.
func differs(want, is *unstructured.Unstructured, path ...string) bool {
	field := func(u *unstructured.Unstructured) *unstructured.Unstructured {
		value, _, _ := unstructured.NestedFieldNoCopy(u.Object, path...)
		return &unstructured.Unstructured{Object: map[string]any{"field": value}}
	}
	return drift.Drifted(field(want), field(is))
}

// Orphans are pods of NATS without a StatefulSet: it was to be replaced, and the next one was not
// created yet.
func (w *World) Orphans() (pods []corev1.Pod) {
	for _, p := range w.podsOf(natsComponent) {
		if p.DeletionTimestamp == nil && metav1.GetControllerOf(&p) == nil {
			pods = append(pods, p)
		}
	}
	return pods
}

func pod(p *corev1.Pod) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod"}}
	u.SetNamespace(p.Namespace)
	u.SetName(p.Name)
	u.SetUID(p.UID)
	u.SetResourceVersion(p.ResourceVersion)
	return u
}
