package eventing_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/internal/registry"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// TestJobsLeaveSubscriptionsAlone: the kind Subscription has the name of one that the migration deletes. On a cluster with ours, no job of the
// migration has anything to do, the one that deletes included.
func TestJobsLeaveSubscriptionsAlone(t *testing.T) {
	if err := cluster.Lacks("CustomResourceDefinitions with CEL", 30); err != nil {
		t.Skip(err)
	}
	definition := "subscriptions." + eventingv1alpha2.GroupVersion.Group
	if err := cluster.InstallCRDs(t.Context(), kubernetes.KnativeV1, kubernetes.Except(definition)); err != nil {
		t.Fatal(err)
	}
	c := client(t)
	before := map[string]string{}
	for i, more := range []string{"", ", config: {maxInFlightMessages: '1'}", ", typeMatching: exact"} {
		s := object(t, subscriptionHead+"{"+sink+", source: commerce, types: [order.created.v1]"+more+"}}")
		s.SetName(fmt.Sprintf("legacy-%d", i))
		s.SetFinalizers([]string{eventingv1alpha2.Finalizer})
		created, err := c.Resource(subscriptions).Namespace("default").Create(t.Context(), s, strict)
		if err != nil {
			t.Fatal(err)
		}
		before[created.GetName()] = created.GetResourceVersion()
	}
	t.Cleanup((&rig{t: t, client: c}).clear)
	program := suite.Build(t, "./cmd/eventmesh-migrate")
	mark, markErr := cluster.Mark(t.Context())
	for _, entry := range registry.All() {
		name := entry.Job.Name()
		for _, command := range []string{"plan", "run"} {
			args := []string{"job", name, command, "--kubeconfig=" + cluster.Kubeconfig, "--output=json", "--log-format=json"}
			if name == "eventbus-purge" && command == "run" {
				args = append(args, "--yes")
			}
			report, code := suite.Run(t, suite.Program{Binary: program, Args: args}).Report()
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
	for name, version := range before {
		s, err := c.Resource(subscriptions).Namespace("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || s.GetResourceVersion() != version {
			t.Errorf("Subscription %s was changed: %v", name, err)
		}
	}
}
