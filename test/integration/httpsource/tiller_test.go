package httpsource

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// TestTiller holds with the real Tiller what TestHelm2 takes for granted: that the upgrade of an
// Application's release fails over an HTTPSource that the release does not know, and over no other.
// The job leaves the release such that it succeeds.
func TestTiller(t *testing.T) {
	p := on(t, kubernetes.KnativeV1alpha1)
	ctx := t.Context()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	h, err := helm.New(ctx, root, 2)
	if err != nil {
		t.Fatal(err)
	}
	stop, err := h.StartTiller(ctx, p.Kubeconfig, standin.TillerNamespace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	client, err := dynamic.NewForConfig(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	sources := client.Resource(standin.HTTPSources).Namespace(standin.IntegrationNamespace)
	app := standin.Names(1)[0]
	before, after := applicationChart(t, app, false), applicationChart(t, app, true)
	upgrade := func(chart string) error {
		_, err := h.Upgrade(ctx, app, chart, standin.IntegrationNamespace, time.Minute)
		return err
	}
	must := func(t *testing.T, chart string) {
		t.Helper()
		if err := upgrade(chart); err != nil {
			t.Fatal(err)
		}
	}
	// reset begins with an Application, without a release.
	reset := func(t *testing.T) {
		t.Helper()
		p.reset(t, 1)
		t.Cleanup(func() {
			if _, err := h.Run(context.WithoutCancel(ctx), "delete", "--purge", app); err != nil {
				t.Error(err)
			}
		})
	}
	exists := func(t *testing.T) {
		t.Helper()
		if _, err := sources.Get(ctx, app, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}

	t.Run("AReleaseWithoutIt", func(t *testing.T) {
		reset(t)
		must(t, before)
		r := run(t, p.Kubeconfig)
		r.want(t, 0, migration.NothingToDo)
		if len(r.Changes) > 0 || len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Problem, "lacks HTTPSource") {
			t.Errorf("it is not left to the operator: %+v, %+v", r.Changes, r.Findings)
		}
		must(t, after)
		exists(t)
	})

	t.Run("AReleaseWithoutItOverridden", func(t *testing.T) {
		reset(t)
		must(t, before)
		run(t, p.Kubeconfig, "--on-helm2-conflict=create").want(t, 0, migration.Succeeded)
		// In these words it is in the runbook.
		if err := upgrade(after); err == nil || !strings.Contains(err.Error(), "already exists in the cluster and wasn't defined in the previous release") {
			t.Fatalf("the upgrade: %v", err)
		}
		if err := sources.Delete(ctx, app, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		must(t, after)
		exists(t)
	})

	t.Run("AReleaseThatHadIt", func(t *testing.T) {
		reset(t)
		must(t, after)
		if err := sources.Delete(ctx, app, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r := run(t, p.Kubeconfig)
		r.want(t, 0, migration.Succeeded)
		if len(r.Changes) != 1 || r.Changes[0].Name != app {
			t.Errorf("%+v", r.Changes)
		}
		must(t, after)
		exists(t)
	})

	t.Run("TheStandInForItsRecords", func(t *testing.T) {
		reset(t)
		must(t, before)
		record, err := client.Resource(standin.ConfigMaps).Namespace(standin.TillerNamespace).Get(ctx, app+".v1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		standIn := standin.TillerRelease(app, standin.IntegrationNamespace, 1, "DEPLOYED", "")
		labels := record.GetLabels()
		labels["MODIFIED_AT"] = standIn.GetLabels()["MODIFIED_AT"] // a time
		if diff := cmp.Diff(standIn.GetLabels(), labels); diff != "" {
			t.Errorf("labels (-stand-in +Tiller's):\n%s", diff)
		}
		if diff := cmp.Diff(standIn.GetNamespace()+"/"+standIn.GetName(), record.GetNamespace()+"/"+record.GetName()); diff != "" {
			t.Errorf("name (-stand-in +Tiller's):\n%s", diff)
		}
	})
}

// applicationChart is the chart of an Application's release, abridged, and returns
// its folder: without the HTTPSource, as before Kyma 1.9, or with it.
func applicationChart(t *testing.T, app string, httpSource bool) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "application")
	files := map[string]string{
		"Chart.yaml": "apiVersion: v1\nname: application\nversion: 1.0.0\n",
		"templates/event-service.yaml": fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s-event-service, namespace: %s}\nspec: {ports: [{port: 8081}]}\n",
			app, standin.IntegrationNamespace),
	}
	if httpSource {
		files["templates/httpsource.yaml"] = fmt.Sprintf("apiVersion: %s\nkind: HTTPSource\nmetadata: {name: %s, namespace: %s}\nspec: {source: %[2]s}\n",
			standin.HTTPSources.GroupVersion(), app, standin.IntegrationNamespace)
	}
	if err := helm.WriteChart(dir, files); err != nil {
		t.Fatal(err)
	}
	return dir
}
