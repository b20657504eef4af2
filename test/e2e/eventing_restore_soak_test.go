//go:build e2e && soak

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/test/velero"
)

// TestSoakRestored: the namespace of eventing is lost, and restored as Velero does it in another
// cluster, whose resource versions are far behind. Its volumes are empty. Once, the mesh carries
// the events, and once NATS. Before and after, an event is sent each 10 ms.
func TestSoakRestored(t *testing.T) {
	const document = "docs/eventing/README.md"
	s := startSwitching(t, full)
	s.moreVolumes(t, 4)
	root, scripts := scriptsOf(t, document)
	restart := ""
	for _, script := range scripts {
		if strings.Contains(script, " rollout restart ") {
			restart = script
		}
	}
	text, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "--exclude-resources=")
	exclude, _, _ := strings.Cut(after, "`")
	if restart == "" || exclude == "" {
		t.Fatal("the page does not say what is left out, or how eventing is started again")
	}
	for _, on := range []operatorv1alpha1.BackendType{operatorv1alpha1.EventMesh, operatorv1alpha1.NATS} {
		s.to(t, string(on))
		s.accepted(t, 500)
		s.stop()
		delivered, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := s.prober.Await(delivered); err != nil {
			t.Error(err)
		}
		cancel()
		saved, err := velero.Of(t.Context(), s.client.Discovery(), s.dynamic, eventingNamespace, strings.Split(exclude, ",")...)
		if err != nil {
			t.Fatal(err)
		}
		if err := velero.Lose(t.Context(), s.client, s.dynamic, eventingNamespace); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		saved.Restore(t.Context(), s.dynamic, func(gvr schema.GroupVersionResource, u *unstructured.Unstructured) {
			if asks, ok, _ := unstructured.NestedString(u.Object, "data", "_asks"); ok && gvr.Resource == "configmaps" {
				_, of, _ := strings.Cut(asks, " ")
				u.Object["data"].(map[string]any)["_asks"] = "999999999999 " + of
			}
		}, t.Logf)
		s.ready(t, 5*time.Minute)
		s.do(t, "", "-n", "shop", "wait", "--for=jsonpath={.status.ready}=true", "--timeout=5m", "subscriptions.eventing.kyma-project.io", "--all")
		t.Logf("%s: Ready %.0f s after the restore", on, time.Since(began).Seconds())
		s.prober.Step("restored on " + string(on))
		s.send(t)
		s.accepted(t, 1000)
		s.shell(t, root, restart)
		s.ready(t, 5*time.Minute)
		s.accepted(t, 1000)
	}
	s.nothingLost(t)
}
