// Package together proves that the migration and eventing leave each other alone on one cluster.
package together

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	eventingmanager "github.com/kyma-project/eventmesh-migration/charts/eventing-manager"
	"github.com/kyma-project/eventmesh-migration/internal/migration/registry"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

var cluster *kubernetes.ControlPlane

func TestMain(m *testing.M) {
	kubernetes.Main(m, kubernetes.Shared(&cluster), kubernetes.Before(func(ctx context.Context) error {
		if cluster.Lacks("CustomResourceDefinitions with CEL", 30) != nil {
			return nil
		}
		if err := cluster.InstallCRDFiles(ctx, eventingmanager.CRDs, "crds"); err != nil {
			return err
		}
		return cluster.InstallCRDs(ctx, kubernetes.KnativeV1, kubernetes.Except("subscriptions."+eventingv1alpha2.GroupVersion.Group))
	}))
}

// TestJobsLeaveSubscriptionsAlone: the kind Subscription has the name of one that the migration
// deletes. On a cluster with ours, no job of the migration has anything to do, the one that deletes
// included.
func TestJobsLeaveSubscriptionsAlone(t *testing.T) {
	if err := cluster.Lacks("CustomResourceDefinitions with CEL", 30); err != nil {
		t.Skip(err)
	}
	client, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	subscriptions := client.Resource(eventingv1alpha2.GroupVersion.WithResource("subscriptions")).Namespace("default")
	before := map[string]string{}
	for i, more := range []map[string]any{nil, {"config": map[string]any{"maxInFlightMessages": "1"}}, {"typeMatching": "exact", "types": []any{"commerce.order.created.v1"}}} {
		spec := map[string]any{"sink": "http://orders.default.svc.cluster.local:8080/events", "source": "commerce", "types": []any{"order.created.v1"}}
		for key, value := range more {
			spec[key] = value
		}
		s := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": eventingv1alpha2.GroupVersion.String(), "kind": "Subscription",
			"metadata": map[string]any{"name": fmt.Sprintf("legacy-%d", i), "finalizers": []any{eventingv1alpha2.Finalizer}}, "spec": spec,
		}}
		created, err := subscriptions.Create(t.Context(), s, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if err != nil {
			t.Fatal(err)
		}
		before[created.GetName()] = created.GetResourceVersion()
	}
	program := process.Build(t, "./cmd/eventmesh-migrate")
	mark, markErr := cluster.Mark(t.Context())
	for _, entry := range registry.All() {
		name := entry.Job.Name()
		for _, command := range []string{"plan", "run"} {
			args := []string{"job", name, command, "--kubeconfig=" + cluster.Kubeconfig, "--output=json", "--log-format=json"}
			if name == "eventbus-purge" && command == "run" {
				args = append(args, "--yes")
			}
			report, code := suite.Run(t, process.Program{Binary: program, Args: args}).Report()
			if code != 0 || len(report.Changes) > 0 || report.Requests.Writes > 0 {
				t.Errorf("%s %s: exit code %d, %q, %d writes, changes %+v", name, command, code, report.Message, report.Requests.Writes, report.Changes)
			}
		}
	}
	if markErr == nil {
		writes, err := cluster.Requests(t.Context(), mark, func(q kubernetes.Request) bool {
			return kubernetes.IsWrite(q) && strings.Contains(q.UserAgent, "eventmesh-migration") && !strings.HasPrefix(q.UserAgent, "eventing-")
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(writes) > 0 {
			t.Errorf("the jobs wrote: %v", writes)
		}
	}
	list, err := subscriptions.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != len(before) || slices.ContainsFunc(list.Items, func(s unstructured.Unstructured) bool { return s.GetResourceVersion() != before[s.GetName()] }) {
		t.Errorf("Subscriptions were changed: %v, before %v", list.Items, before)
	}
}
