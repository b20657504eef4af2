package eventbus

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/eventservice"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/node"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// verify runs eventservice-verify with short limits.
func verify(t *testing.T, limit time.Duration, smoke bool) *migration.Report {
	t.Helper()
	e, err := engine.New(cluster.Config(), engine.Options{
		Names:          cli.Names,
		StateNamespace: kyma.StateNamespace,
		Identity:       fmt.Sprintf("test-%d", time.Now().UnixNano()), Timeout: 2 * time.Minute, Log: zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)),
	})
	if err != nil {
		t.Fatal(err)
	}
	job := eventservice.New()
	for _, s := range job.Settings() {
		switch s.Name {
		case "per-application-timeout":
			*s.Value.(*time.Duration) = time.Millisecond
		case "rollout-timeout":
			*s.Value.(*time.Duration) = limit
		case "smoke":
			*s.Value.(*bool) = smoke
		case "event-service-image":
			*s.Value.(*string) = "eu.gcr.io/kyma-project/event-service:cd9874af"
		}
	}
	return e.Run(t.Context(), job)
}

func TestEventServiceVerify(t *testing.T) {
	ctx := t.Context()
	// Outlive the test, for what is cleaned up after it.
	controllers, err := standin.Start(context.WithoutCancel(ctx), cluster.Config(), standin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(controllers.Stop)
	if err := standin.Clear(ctx, cluster.Config()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standin.Clear(context.WithoutCancel(ctx), cluster.Config()); err != nil {
			t.Error(err)
		}
	})
	kubelet, err := node.StartKubelet(ctx, cluster.Config(), standin.IntegrationNamespace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kubelet.Stop)
	client, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}

	// As the operator of Kyma 1.10 left them: nobody is on the mesh.
	apps := []string{"good", "crashing", "unpullable", "unschedulable", "slow", "missing", "conflict", "held"}
	if _, err := standin.Put(ctx, cluster.Config(), 0); err != nil {
		t.Fatal(err)
	}
	for _, app := range apps {
		if err := standin.Load(ctx, cluster.Config(), standin.Application(app, false)); err != nil {
			t.Fatal(err)
		}
		if app != "missing" {
			if err := standin.Load(ctx, cluster.Config(), standin.EventService(app, false)); err != nil {
				t.Fatal(err)
			}
			if err := kubelet.WaitRolledOut(ctx, app+"-event-service"); err != nil {
				t.Fatal(err)
			}
		}
		if app != "conflict" {
			if err := standin.PutHTTPSources(ctx, cluster.Config(), app); err != nil {
				t.Fatal(err)
			}
			if err := controllers.WaitReady(ctx, app); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := standin.Load(ctx, cluster.Config(), standin.Application("frozen", true), standin.EventService("frozen", false)); err != nil {
		t.Fatal(err)
	}

	// The operator comes along while the job waits: what it does to an Application.
	upgrade := func(app string) {
		fresh := standin.EventService(app, true)
		patch, err := json.Marshal(map[string]any{"spec": fresh.Object["spec"]})
		if err != nil {
			t.Error(err)
			return
		}
		_, err = client.Resource(standin.Deployments).Namespace(standin.IntegrationNamespace).
			Patch(ctx, app+"-event-service", types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			t.Error(err)
		}
	}
	// A former pod that does not end.
	core, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	pods, err := core.CoreV1().Pods(standin.IntegrationNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=held-event-service"})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d pods, %v", len(pods.Items), err)
	}
	hold := func(finalizers string) {
		_, err := core.CoreV1().Pods(standin.IntegrationNamespace).Patch(context.WithoutCancel(ctx), pods.Items[0].Name, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":`+finalizers+`}}`), metav1.PatchOptions{})
		if err != nil {
			t.Error(err)
		}
	}
	hold(`["example.com/hold"]`)
	kubelet.Break("crashing", node.CrashLooping)
	kubelet.Break("unpullable", node.Unpullable)
	kubelet.Break("unschedulable", node.Unschedulable)
	kubelet.Slow("slow", 1500*time.Millisecond)
	operator := make(chan struct{})
	go func() {
		defer close(operator)
		// Before the job looks, nothing has happened yet.
		time.Sleep(500 * time.Millisecond)
		for _, app := range []string{"good", "crashing", "unpullable", "unschedulable", "slow", "held"} {
			upgrade(app)
		}
		_, err := client.Resource(standin.Applications).Patch(ctx, "conflict", types.MergePatchType, []byte(
			`{"status":{"installationStatus":{"status":"FAILED","description":"kind HTTPSource with the name \"conflict\" already exists in the cluster and wasn't defined in the previous release"}}}`), metav1.PatchOptions{})
		if err != nil {
			t.Error(err)
		}
	}()

	r := verify(t, 20*time.Second, true)
	<-operator
	want(t, r, migration.FailedResult, migration.ExitFailed)
	said := problems(r)
	for _, part := range []string{
		"error: Deployment kyma-integration/crashing-event-service: waiting for it to be rolled out on the mesh cannot succeed: Pod kyma-integration/crashing-event-service-",
		`container crashing-event-service crashed 6 times, the last time with exit code 2 (Error), saying "panic: flag provided but not defined: -eventMeshURL"`,
		"error: Deployment kyma-integration/unpullable-event-service: gave up after",
		`the image of container unpullable-event-service cannot be pulled (ImagePullBackOff`,
		"it has no node (Unschedulable): 0/3 nodes are available: 3 Insufficient memory.",
		"error: Deployment kyma-integration/missing-event-service: gave up after",
		"it does not exist; application-operator has not upgraded the Application's release yet",
		"error: Deployment kyma-integration/conflict-event-service: waiting for it to be rolled out on the mesh cannot succeed: it does not carry --eventMeshURL",
		"After its deletion, restart StatefulSet application-operator, which creates it. To delete it: kubectl -n kyma-integration delete httpsource.sources.kyma-project.io/conflict",
		"error: HTTPSource kyma-integration/conflict: gave up after",
		"so it posts to the Event Bus; it is terminating, and posts until it has ended",
		"warning: Application frozen: spec.skipInstallation is true, so application-operator does not upgrade its release",
	} {
		if !strings.Contains(said, part) {
			t.Errorf("not said: %s", part)
		}
	}
	for _, f := range r.Findings {
		if f.Severity == migration.Error && (strings.Contains(f.Object, "/good-") || strings.Contains(f.Object, "/slow-") || strings.Contains(f.Object, "frozen")) {
			t.Errorf("nothing is wrong with it: %s", f)
		}
	}
	if t.Failed() {
		t.Logf("the report:\n%s", said)
	}

	// Everything is mended: the same job succeeds, without a write.
	hold("null")
	for _, app := range []string{"crashing", "unpullable", "unschedulable"} {
		kubelet.Break(app, "")
		if err := core.CoreV1().Pods(standin.IntegrationNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=" + app + "-event-service"}); err != nil {
			t.Fatal(err)
		}
	}
	upgrade("conflict")
	if err := standin.Load(ctx, cluster.Config(), standin.EventService("missing", true)); err != nil {
		t.Fatal(err)
	}
	if err := standin.PutHTTPSources(ctx, cluster.Config(), "conflict"); err != nil {
		t.Fatal(err)
	}
	r = verify(t, time.Minute, true)
	want(t, r, migration.NothingToDo, migration.ExitOK)
	// There is no pod network here, and so no answer: that is no failure.
	if !strings.Contains(problems(r), "info: 0 of 8 event-services answered a legacy request as they must") {
		t.Errorf("the smoke requests are not reported:\n%s", problems(r))
	}
	// The stored report is corrected once.
	want(t, verify(t, time.Minute, false), migration.NothingToDo, migration.ExitOK)
	r = verify(t, time.Minute, false)
	if r.Requests.Writes != 0 || r.Result != migration.NothingToDo {
		t.Errorf("a run where all is well: %s, %d writes", r.Result, r.Requests.Writes)
	}
	if t.Failed() {
		t.Log(problems(r))
	}
}
