package eventingmanager_test

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/test/allobjects"
)

// deployed is what a release of each tool writes on its objects. The release is called as the
// Eventing: names that a chart of ours uses, too, are the likeliest to collide.
const deployed = `
  labels:
    app.kubernetes.io/instance: eventing
    kustomize.toolkit.fluxcd.io/name: eventing
    kustomize.toolkit.fluxcd.io/namespace: default
    kapp.k14s.io/app: "1700000000000000000"
    objectset.rio.cattle.io/hash: 9a5a1f0f1d8a2f2c0a0f1c5d6e7f8a9b0c1d2e3f
    applyset.kubernetes.io/part-of: applyset-eventing-v1
    app: eventing
  annotations:
    argocd.argoproj.io/tracking-id: eventing:operator.kyma-project.io/Eventing:NAMESPACE/eventing
    objectset.rio.cattle.io/id: eventing
    kubectl.kubernetes.io/last-applied-configuration: "{}"
`

// pruners are how each tool finds what it has deployed: what it finds, and does not have in its
// source, it deletes.
var pruners = map[string]func(u *unstructured.Unstructured) bool{
	// Argo CD before 3.0, and with tracking by label; objects with an owner are not its own.
	// https://argo-cd.readthedocs.io/en/stable/user-guide/resource_tracking/
	"Argo CD, by label": func(u *unstructured.Unstructured) bool {
		return u.GetLabels()["app.kubernetes.io/instance"] == "eventing" && len(u.GetOwnerReferences()) == 0
	},
	// Argo CD looks at the name of the application only, for an object that names itself.
	"Argo CD, by annotation": func(u *unstructured.Unstructured) bool {
		return strings.HasPrefix(u.GetAnnotations()["argocd.argoproj.io/tracking-id"], "eventing:") && len(u.GetOwnerReferences()) == 0
	},
	// Flux deletes what was in its inventory and still has its labels.
	// https://fluxcd.io/flux/components/kustomize/kustomizations/#prune
	"Flux": func(u *unstructured.Unstructured) bool {
		return u.GetLabels()["kustomize.toolkit.fluxcd.io/name"] == "eventing"
	},
	// https://carvel.dev/kapp/docs/latest/diff/: all that has the label of the application.
	"kapp": func(u *unstructured.Unstructured) bool { return u.GetLabels()["kapp.k14s.io/app"] != "" },
	// Fleet, and k3s: wrangler's object sets.
	"Rancher": func(u *unstructured.Unstructured) bool {
		return u.GetLabels()["objectset.rio.cattle.io/hash"] != "" || u.GetAnnotations()["objectset.rio.cattle.io/id"] != ""
	},
	// https://kubernetes.io/docs/tasks/manage-kubernetes-objects/declarative-config/
	"kubectl apply --prune -l app=eventing": func(u *unstructured.Unstructured) bool {
		_, applied := u.GetAnnotations()["kubectl.kubernetes.io/last-applied-configuration"]
		return applied && u.GetLabels()["app"] == "eventing"
	},
	"kubectl apply --prune --applyset": func(u *unstructured.Unstructured) bool {
		return u.GetLabels()["applyset.kubernetes.io/part-of"] != ""
	},
}

// TestPruned: the Eventing and a Subscription carry what each tool for deployments writes on its
// objects, and then each tool prunes: it deletes what it finds, but for these two, which are its
// source. It finds nothing that operator or controller has made, in the namespace or outside, and
// events arrive as before.
func TestPruned(t *testing.T) {
	s := newSite(t, "pruned")
	to := s.withSinks()
	installed := map[types.UID]bool{} // by a chart, with the labels of its release
	s.each(func(_ schema.GroupVersionResource, u *unstructured.Unstructured) { installed[u.GetUID()] = true })
	marks := strings.ReplaceAll(deployed, "NAMESPACE", s.namespace)
	s.create(eventings, strings.Replace(one, "metadata: {name: eventing}", "metadata:\n  name: eventing"+marks, 1))
	s.start()
	s.await(90*time.Second, operatorv1alpha1.StateReady, operatorv1alpha1.ConditionSpecApplied, operatorv1alpha1.ReasonApplied)
	s.subscribe(to, "orders", "source: commerce, types: [order.created.v1]")
	merge, err := yaml.YAMLToJSON([]byte("metadata:" + marks))
	s.check(err)
	s.patch(subscriptions, "orders", string(merge))
	s.awaitSubscription("orders")
	to.Await(t, "orders", time.Minute, s.post("before", 3)...)

	looked, found := 0, map[string]int{}
	s.each(func(gvr schema.GroupVersionResource, u *unstructured.Unstructured) {
		if installed[u.GetUID()] {
			return
		}
		looked++
		for tool, finds := range pruners {
			if !finds(u) {
				continue
			}
			if found[tool]++; u.GetKind() != "Eventing" && u.GetKind() != "Subscription" {
				t.Errorf("%s deletes %s %s/%s", tool, u.GetKind(), u.GetNamespace(), u.GetName())
				if err := s.client.Resource(gvr).Namespace(u.GetNamespace()).Delete(t.Context(), u.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
					t.Error(err)
				}
			}
		}
	})
	for tool := range pruners {
		if found[tool] != 2 {
			t.Errorf("%s finds %d of the %d objects that were made since, want its own two", tool, found[tool], looked)
		}
	}
	to.Await(t, "orders", time.Minute, s.post("after", 3)...)
}

// each visits all objects of the cluster.
func (s *site) each(visit func(schema.GroupVersionResource, *unstructured.Unstructured)) {
	s.t.Helper()
	s.check(allobjects.Each(s.t.Context(), cluster.Config(), func(schema.GroupResource) bool { return true }, visit))
}
