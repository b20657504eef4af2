package trigger

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/standin"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// TestPodsAreReadAFewTimes: the Pods of the integration namespace are read once for many deletions,
// and for an undo, however many pages they are. On f3299ef 12 deletions read all Pods 13 times, and
// the undo of one Trigger did not end on a slow connection.
func TestPodsAreReadAFewTimes(t *testing.T) {
	p := on(t, versions[0])
	ctx := t.Context()
	var subs []*unstructured.Unstructured
	for i := range 12 {
		subs = append(subs, subscription([]string{"shop", "crm"}[i%2], fmt.Sprintf("sub-%02d", i), fmt.Sprintf("order.created%02d", i)))
	}
	p.load(ctx, t, true, subs...)
	p.scale(ctx, t, 0)
	const count, pages = 250, 3
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	all := p.client.Resource(pods).Namespace(standin.IntegrationNamespace)
	var group errgroup.Group
	group.SetLimit(16)
	for i := range count {
		group.Go(func() error {
			_, err := all.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": fmt.Sprintf("other-%03d", i), "labels": map[string]any{"pages": "test"}},
				"spec": map[string]any{"automountServiceAccountToken": false, "containers": []any{map[string]any{"name": "c", "image": "i"}}},
			}}, metav1.CreateOptions{})
			return err
		})
	}
	t.Cleanup(func() {
		now := int64(0)
		err := all.DeleteCollection(context.WithoutCancel(ctx), metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{LabelSelector: "pages=test"})
		if err != nil {
			t.Error(err)
		}
	})
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}

	// What was read is acted on for two seconds; a run that takes longer may read again.
	const fresh = 2 * time.Second
	read := func(command string, want migration.Result, atMost int) {
		t.Helper()
		proxy, kubeconfig := p.proxied(t)
		defer proxy.Close()
		proxy.Use(func(ctx context.Context, _ faultproxy.Request, next faultproxy.Next) (*http.Response, error) {
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
			return next()
		})
		program := process.Build(t, "./cmd/trigger-sync")
		began := time.Now()
		r, code := suite.Run(t, process.Program{Binary: program, Limit: p.patience, Args: []string{
			command, "--kubeconfig=" + kubeconfig, "--output=json", "--log-format=json", "--lease-duration=1s",
			"--nats-monitoring-url=" + p.nats.URL, "--observe-publishers=0s",
		}}).Report()
		if r.Result != want {
			t.Errorf("%s: %s, exit code %d: %s", command, r.Result, code, r.Message)
		}
		took := time.Since(began)
		n := 0
		for _, e := range proxy.Log() {
			if e.Verb == "list" && e.Resource == "pods" && e.Namespace == standin.IntegrationNamespace {
				n++
			}
		}
		t.Logf("%s: %d pages in %s", command, n, took)
		atMost += int(took / fresh)
		if n < pages || n > atMost*pages {
			t.Errorf("%s read %d pages of Pods; all Pods are %d pages, which may be read %d times", command, n, pages, atMost)
		}
	}
	read("run", migration.Succeeded, 2) // 13 without shared reads
	if got := p.names(ctx, t, standin.KymaSubscriptions, ""); len(got) != 0 {
		t.Errorf("Subscriptions: %q", got)
	}
	for _, name := range []string{app, otherApp} {
		p.eventService(ctx, t, name, false)
	}
	read("undo", migration.Succeeded, 2)
	journals, err := p.client.Resource(secrets).Namespace(kyma.StateNamespace).List(ctx, metav1.ListOptions{LabelSelector: "eventmesh-migration.kyma-project.io/phase=undo"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range journals.Items {
		t.Errorf("the undo has succeeded, and the journal is open: %s %v", journals.Items[i].GetName(), journals.Items[i].GetLabels())
	}
	if got := p.names(ctx, t, p.triggers(), ""); slices.ContainsFunc(got, func(name string) bool { return strings.Contains(name, "sub-") }) {
		t.Errorf("Triggers: %q", got)
	}
}
