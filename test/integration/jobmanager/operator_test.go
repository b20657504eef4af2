package jobmanager

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// withoutWrites runs something, of which the audit log then knows requests of the
// program, and no write among them.
func withoutWrites(t *testing.T, what string, do func()) {
	t.Helper()
	if !cluster.Own() {
		do()
		return
	}
	mark, err := cluster.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	do()
	requests, err := cluster.Requests(t.Context(), mark, kubernetes.By("eventmesh-migrate/"))
	if err != nil {
		t.Fatal(err)
	}
	if len(requests) == 0 {
		t.Errorf("%s: the audit log knows of no request", what)
	}
	for _, q := range requests {
		if kubernetes.IsWrite(q) {
			t.Errorf("%s wrote: %s", what, q)
		}
	}
}

// TestSampleClusterTwice runs all jobs on the sample of a Kyma 1.10 cluster before
// its upgrade, and once more: the second run takes no time and writes nothing.
func TestSampleClusterTwice(t *testing.T) {
	outlives := context.WithoutCancel(t.Context())
	forget(t)
	controllers, err := standin.Start(outlives, cluster.Config(), standin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(controllers.Stop)
	t.Cleanup(func() {
		if err := standin.Clear(outlives, cluster.Config()); err != nil {
			t.Error(err)
		}
		for _, ns := range []string{standin.SystemNamespace, standin.IntegrationNamespace, standin.TillerNamespace} {
			if err := resource("Deployment", ns).DeleteCollection(outlives, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
				t.Error(err)
			}
		}
		forget(t)
	})
	sample, err := standin.LoadSample(t.Context(), cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	limit, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := controllers.WaitReady(limit, sample.In(standin.InPlace, standin.FrozenInPlace, standin.Starting)...); err != nil {
		t.Fatal(err)
	}
	first := tool(t, "run", "--lease-duration=1s", "-o", "json")
	first.want(t, 0)
	if made := first.report(t).Requests.Writes; made == 0 {
		t.Error("the first run had nothing to do")
	}
	withoutWrites(t, "the second run", func() {
		second := tool(t, "run", "-o", "json")
		second.want(t, 0)
		r := second.report(t)
		for _, j := range r.Jobs {
			if j.Seconds != 0 || j.Report != nil {
				t.Errorf("%s %s: %s, ran for %f s: %s", j.Job, j.Phase, j.Result, j.Seconds, j.Reason)
			}
		}
		if r.RunSeconds != 0 || r.Requests.Writes != 0 {
			t.Errorf("in total: %f s running, %d writes", r.RunSeconds, r.Requests.Writes)
		}
		t.Logf("%d Applications: first run %.2f s, second %.3f s", len(sample), first.report(t).Seconds, r.Seconds)
		// A tenth of a second on an idle machine.
		if r.Seconds > 20 {
			t.Errorf("the second run took %f s", r.Seconds)
		}
	})
}

// TestForms asks every command for every form that it has: none writes anything.
func TestForms(t *testing.T) {
	finished(t)
	withoutWrites(t, "looking", func() {
		for command, forms := range map[string][]string{
			"jobs":   {"table", "wide", "json", "yaml", "name"},
			"check":  {"text", "wide", "json", "yaml", "name"},
			"plan":   {"table", "wide", "json", "yaml", "name"},
			"status": {"table", "wide", "json", "yaml", "name"},
			"verify": {"table", "wide", "json", "yaml", "name"},
			"map":    {"table", "wide", "mermaid", "html", "json", "yaml", "name"},
		} {
			for _, form := range forms {
				out := tool(t, command, "-o", form)
				out.want(t, 0)
				if human := form == "table" || form == "text" || form == "wide"; human && !strings.Contains(out.stdout, cluster.Config().Host) {
					t.Errorf("%s -o %s does not name the cluster:\n%s", command, form, out.stdout)
				}
				var v map[string]any
				switch form {
				case "json":
					if err := json.Unmarshal([]byte(out.stdout), &v); err != nil {
						t.Errorf("%s: %v in\n%s", command, err, out.stdout)
					}
				case "yaml":
					if err := yaml.UnmarshalStrict([]byte(out.stdout), &v); err != nil {
						t.Errorf("%s: %v in\n%s", command, err, out.stdout)
					}
				}
				if structured := form == "json" || form == "yaml"; structured && (v["server"] != cluster.Config().Host || v["context"] == nil) {
					t.Errorf("%s -o %s: server %v, context %v", command, form, v["server"], v["context"])
				}
				// Nothing has run, is planned or is wrong, so there are no names.
				if nothing := form == "name" && command != "jobs" && command != "map"; (strings.TrimSpace(out.stdout) == "") != nothing {
					t.Errorf("%s -o %s prints %q", command, form, out.stdout)
				}
				if strings.Contains(out.stdout+out.stderr, "\x1b") {
					t.Errorf("%s -o %s: control characters, and no terminal:\n%q", command, form, out.stdout+out.stderr)
				}
			}
		}
		tool(t, "verify", "-A").want(t, 0, "Nothing is wrong.")
		tool(t, "plan", "--context", "eventmesh", "--kubeconfig", cluster.Kubeconfig).want(t, 0)
	})
	tool(t, "plan", "--context", "another").want(t, migration.ExitUsage, "another")
	// The remaining work is listed by name, in the form of kubectl.
	for _, kind := range []string{"HTTPSource", "Channel", "Adapter"} {
		remove(t, kind, standin.IntegrationNamespace, "commerce")
	}
	tool(t, "plan", "-o", "name").want(t, 0, "httpsource.sources.kyma-project.io/commerce --namespace=kyma-integration\n")
	tool(t, "verify", "-o", "name").want(t, migration.ExitFindings, "application.applicationconnector.kyma-project.io/commerce\n")
	tool(t, "map", "-o", "name").want(t, 0, "trigger.eventing.knative.dev/on-commerce --namespace=shop\n")
}

// TestOneNamespace: a run that is limited to a namespace changes nothing in another, and does not
// say that all is done.
func TestOneNamespace(t *testing.T) {
	finished(t)
	for _, ns := range []string{"shop", "crm"} {
		old := sub("old", "billing", "order.paid", "http://old."+ns+"/")
		old.SetNamespace(ns)
		put(t, "KymaSubscription", old)
		t.Cleanup(func() { remove(t, "KymaSubscription", ns, "old") })
	}
	triggers := func(ns string) int {
		list, err := resource("Trigger", ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	shop, crm := triggers("shop"), triggers("crm")
	t.Cleanup(func() {
		if err := resource("Trigger", "shop").DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
		forget(t)
	})
	limited := []string{"--job=trigger-sync", "--namespace=shop", "--trigger-sync.ready-timeout=1s", "--lease-duration=1s"}
	tool(t, append([]string{"plan"}, limited...)...).want(t, 0, "create Trigger", "is the only namespace of this run", "\n  eventmesh-migrate run --job=trigger-sync --namespace=shop --trigger-sync.ready-timeout=1s")
	out := tool(t, append([]string{"run", "--on-failure=leave"}, limited...)...) // nothing makes the Trigger ready
	if after := triggers("shop"); after != shop+1 {
		t.Errorf("%d Triggers in the namespace, before %d\n%s", after, shop, out.stdout)
	}
	if after := triggers("crm"); after != crm {
		t.Errorf("%d Triggers in the other namespace, before %d\n%s", after, crm, out.stdout)
	}
	tool(t, "verify").want(t, migration.ExitFindings, "subscription-without-trigger")
	tool(t, "run", "--job=trigger-sync", "-n", "nowhere").want(t, migration.ExitUsage, `"nowhere": the cluster has no such namespace`)
}

// TestKubectl calls the program as kubectl does.
func TestKubectl(t *testing.T) {
	dir := t.TempDir()
	plugin := filepath.Join(dir, "kubectl-eventmesh_migrate")
	if err := os.Symlink(process.Build(t, binary), plugin); err != nil {
		t.Fatal(err)
	}
	called(t, plugin, "", "--help").want(t, 0, "\n  kubectl eventmesh-migrate plan\n")
	called(t, plugin, "", "jobs", "-o", "name").want(t, 0, "job/trigger-sync\n")
	called(t, plugin, "", "__complete", "verify", "-n", "").want(t, 0, "kube-system\n")
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("no kubectl is installed: its part is left out")
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	called(t, kubectl, "", "eventmesh-migrate", "jobs", "-o", "name").want(t, 0, "job/trigger-sync\n")
	called(t, kubectl, "", "eventmesh-migrate", "undo", "nobody").want(t, migration.ExitUsage, "unknown job")
}

// TestStatus shows runs that were interrupted, who holds the lock, and what is
// deferred and why. Of a run whose process is at work, it fails on the commit before:
// status, jobs and verify called it interrupted, to be run again or undone.
func TestStatus(t *testing.T) {
	forget(t)
	t.Cleanup(func() { forget(t) })
	put(t, "Secret", object(t, `{apiVersion: v1, kind: Secret, metadata: {namespace: `+kyma.StateNamespace+`, name: eventmesh-migration-trigger-sync-r1-0000,
  labels: {eventmesh-migration.kyma-project.io/job: trigger-sync, eventmesh-migration.kyma-project.io/run: r1, eventmesh-migration.kyma-project.io/phase: rollback}},
  stringData: {run: '{"format":1,"job":"trigger-sync","run":"r1","version":"v9","startedAt":"2020-04-01T22:15:00Z"}'}}`))
	put(t, "ConfigMap", object(t, `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: `+kyma.StateNamespace+`, name: eventmesh-migration-trigger-sync, labels: {eventmesh-migration.kyma-project.io/job: trigger-sync}},
  data: {report.json: '{"job":"trigger-sync","command":"run","result":"deferred","message":"1 is left","startedAt":"2020-04-01T22:15:00Z","findings":[{"severity":"deferred","object":"Subscription shop/orders","problem":"its Trigger is not ready","hint":"wait"}]}'}}`))
	put(t, "ConfigMap", object(t, `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: `+kyma.StateNamespace+`, name: eventmesh-migration-former-job, labels: {eventmesh-migration.kyma-project.io/job: former-job}},
  data: {report.json: '{"job":"former-job","command":"run","result":"failed","message":"no room","startedAt":"2020-04-01T22:15:00Z","findings":[{"severity":"error","object":"Thing x","problem":"is odd"}]}'}}`))
	now := metav1.NewMicroTime(time.Now())
	if _, err := typed.CoordinationV1().Leases(kyma.StateNamespace).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "eventmesh-migration"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("laptop_42_x"), LeaseDurationSeconds: new(int32(3600)), RenewTime: &now, AcquireTime: &now},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	tool(t, "status").want(t, 0,
		"Run r1 of trigger-sync, begun 2020-04-01T22:15:00Z by version v9: open (rollback), and seems to be running: \"laptop_42_x\" holds the lock since ",
		`The lock is held by "laptop_42_x"`, "it is in use", "Last report of trigger-sync:\n\nDeferred to a later run (1):\n  Subscription shop/orders: its Trigger is not ready",
		"Last report of former-job:\n\nErrors (1):\n  Thing x: is odd", "never run")
	if names := tool(t, "status", "-o", "name"); names.code != 0 || names.stdout != "job/trigger-sync\njob/former-job\n" {
		t.Errorf("status -o name: exit code %d\n%s", names.code, names.stdout)
	}
	tool(t, "status", "-o", "wide").want(t, 0, "Deferred:\n  trigger-sync: Subscription shop/orders: its Trigger is not ready", "Errors:\n  former-job: Thing x: is odd")
	tool(t, "jobs").want(t, 0, "run r1 is open (rollback), and seems to be running: ")
	if got := ids(look(t)); !slices.Contains(got, "run-running") || slices.Contains(got, "run-open") {
		t.Errorf("verify finds %q", got)
	}
	check := tool(t, "check")
	check.want(t, migration.ExitFindings, "run-running (Lease "+kyma.StateNamespace+"/eventmesh-migration):", `"laptop_42_x"`, "eventmesh-migrate status\n",
		"Next: Another run is working. Wait until it ends: ", "Then:\n  eventmesh-migrate check\n")
	if strings.Contains(check.stdout, "run-open") {
		t.Errorf("a run that works is not interrupted:\n%s", check.stdout)
	}
	tool(t, "check", "-o", "name").want(t, migration.ExitFindings, "lease/eventmesh-migration --namespace="+kyma.StateNamespace+"\n")
	// The lock is another's: a run that has something to write ends with its code.
	tool(t, "run", "--job=trigger-sync", "--lock-wait=1s").want(t, migration.ExitLocked, "laptop_42_x")

	// Its process was killed, an hour ago.
	patch(t, "Lease", kyma.StateNamespace, "eventmesh-migration", fmt.Sprintf(`{"spec":{"leaseDurationSeconds":30,"renewTime":%q}}`, now.Add(-time.Hour).UTC().Format(metav1.RFC3339Micro)))
	tool(t, "status").want(t, 0, "open (rollback): run again to finish it, or undo", "its process is gone, and the next run takes the lock")
	tool(t, "jobs").want(t, 0, "run r1 was interrupted, and is open (rollback)")
	tool(t, "check").want(t, 0, "run-open (job trigger-sync): run r1 was interrupted, and is open (rollback)", "eventmesh-migrate undo trigger-sync",
		"Next: An interrupted run is open. Continue it:\n  eventmesh-migrate run\n")
	// An account that may not read journals is told by the Lease. Fails on the commit before:
	// it was refused.
	patch(t, "Lease", kyma.StateNamespace, "eventmesh-migration", `{"metadata":{"annotations":{"eventmesh-migration.kyma-project.io/open-trigger-sync":"2020-04-01T22:15:00Z"}}}`)
	blind, err := cluster.User(t.Context(), "blind",
		rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	tool(t, "status", "--kubeconfig", blind).want(t, 0, "A run of trigger-sync, begun 2020-04-01T22:15:00Z: open (its journal cannot be read): run again to finish it, or undo")
	tool(t, "check", "--kubeconfig", blind).want(t, migration.ExitFindings, "run-open (job trigger-sync): a run begun at 2020-04-01T22:15:00Z")
	if got := ids(look(t)); !slices.Contains(got, "run-open") || slices.Contains(got, "run-running") {
		t.Errorf("verify finds %q", got)
	}
}

// TestWithoutItsAPI: a job whose API the server lacks is not needed or blocked, as
// it says itself, and in neither case asked.
func TestWithoutItsAPI(t *testing.T) {
	thing := schema.GroupKind{Group: "example.com", Kind: "Thing"}
	for name, tc := range map[string]struct {
		verdict jobmanager.Verdict
		result  migration.Result
		code    int
	}{
		"NotNeeded": {jobmanager.NotNeeded, jobmanager.ResultNotNeeded, 0},
		"Blocked":   {jobmanager.Blocked, migration.Refused, migration.ExitRefused},
	} {
		t.Run(name, func(t *testing.T) {
			stamps(t)
			without := &stampJob{name: "without", before: func() { t.Error("the job was asked") }}
			job := without.at(jobmanager.Before(jobmanager.Global))
			job.Requires = []jobmanager.Requirement{{Kind: thing, IfMissing: tc.verdict, Hint: "install things"}}
			m := newManager(t, nil, job, (&stampJob{name: "beside"}).at(jobmanager.Before(jobmanager.Global)))
			needs, err := m.Needs(t.Context())
			if err != nil || needs[0].Verdict != tc.verdict || needs[0].Reason != "the API server serves no kind Thing.example.com (install things)" {
				t.Errorf("%v %+v", err, needs)
			}
			report, err := m.Run(t.Context(), jobmanager.Selection{})
			if (err != nil) != (tc.code != 0) || report.ExitCode != tc.code || report.Jobs[0].Result != tc.result {
				t.Errorf("exit code %d, %+v: %v", report.ExitCode, report.Jobs[0], err)
			}
			if report.Jobs[1].Result != migration.Succeeded {
				t.Errorf("the job at its side: %s", report.Jobs[1].Result)
			}
		})
	}
}

// TestKindMissing takes a kind away that is part of the event path.
func TestKindMissing(t *testing.T) {
	finished(t)
	const name = "httpsources.sources.kyma-project.io"
	t.Cleanup(func() {
		if err := cluster.InstallCRDs(context.WithoutCancel(t.Context()), kubernetes.KnativeV1alpha1); err != nil {
			t.Error(err)
		}
	})
	if err := cluster.RemoveCRD(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	tool(t, "verify").want(t, migration.ExitFindings, "kind-missing: the API server serves no kind HTTPSource", "Next: ")
	out := tool(t, "verify", "-o", "wide")
	out.want(t, migration.ExitFindings, "kind-missing", "the API server serves no kind HTTPSource (sources.kyma-project.io), which component event-sources installs", "eventmesh-migrate explain kind-missing")
	tool(t, "map").want(t, 0, "no HTTPSource")
	tool(t, "jobs").want(t, 0, "httpsource-sync")
	tool(t, "run", "--job=httpsource-sync").want(t, migration.ExitRefused, "event-sources")
}
