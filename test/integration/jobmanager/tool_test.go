package jobmanager

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/node"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// upgraded is a cluster whose event-services are upgraded, and whose HTTPSources
// are missing: all that is left is for the jobs.
func upgraded(t *testing.T, n int) []string {
	t.Helper()
	ctx := t.Context()
	outlives := context.WithoutCancel(ctx)
	controllers, err := standin.Start(outlives, cluster.Config(), standin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(controllers.Stop)
	kubelet, err := node.StartKubelet(outlives, cluster.Config(), standin.IntegrationNamespace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kubelet.Stop)
	t.Cleanup(func() {
		if err := standin.Clear(outlives, cluster.Config()); err != nil {
			t.Error(err)
		}
		for _, d := range standin.EventBus() {
			remove(t, "Deployment", standin.SystemNamespace, d.GetName())
		}
		forget(t)
	})
	forget(t)
	names, err := standin.Reset(ctx, cluster.Config(), n)
	if err != nil {
		t.Fatal(err)
	}
	limit, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := standin.ResetEventBus(limit, cluster.Config()); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		put(t, "Deployment", standin.EventService(name, true))
	}
	for _, name := range names {
		if err := kubelet.WaitRolledOut(limit, name+"-event-service"); err != nil {
			t.Fatal(err)
		}
	}
	return names
}

func (o outcome) report(t *testing.T) *jobmanager.Report {
	t.Helper()
	r := &jobmanager.Report{}
	if err := json.Unmarshal([]byte(o.stdout), r); err != nil {
		t.Fatalf("%v in\n%s\n%s", err, o.stdout, o.stderr)
	}
	return r
}

// TestTool is the program as an operator uses it, from the first look to undo.
func TestTool(t *testing.T) {
	apps := upgraded(t, 5)
	count := func() int {
		list, err := resource("HTTPSource", standin.IntegrationNamespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	tool(t, "jobs").want(t, 0, "NAME", "httpsource-sync", "core,application-connector", "5 changes left to make", "eventbus-purge", "it deletes, so it runs only if asked to")
	tool(t, "plan").want(t, 0, "5 create HTTPSource", "eventbus-scaledown", "Next: ", "\n  eventmesh-migrate run")
	tool(t, "plan", "-o", "wide").want(t, 0, "create HTTPSource kyma-integration/"+apps[0], "eventbus-scaledown")
	if n := count(); n != 0 {
		t.Fatalf("a plan wrote: %d HTTPSources", n)
	}
	tool(t, "status").want(t, 0, "never run", "No run is open.", "Nobody holds the lock.")

	first := tool(t, "run", "--lease-duration=1s", "-o", "json")
	first.want(t, 0)
	if n := count(); n != len(apps) {
		t.Errorf("%d HTTPSources, want %d", n, len(apps))
	}
	tool(t, "status").want(t, 0, "httpsource-sync", "succeeded")

	// Once more: it costs reads only, and the jobs no time.
	var mark kubernetes.Mark
	if cluster.Own() {
		var err error
		if mark, err = cluster.Mark(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	second := tool(t, "run", "-o", "json")
	second.want(t, 0)
	r := second.report(t)
	t.Logf("first run %.2f s, second %.3f s of which looking %.3f s", first.report(t).Seconds, r.Seconds, r.NeededSeconds)
	for _, j := range r.Jobs {
		if j.Seconds != 0 || j.Result != jobmanager.ResultNotNeeded {
			t.Errorf("%s %s: %s, ran for %f s: %s", j.Job, j.Phase, j.Result, j.Seconds, j.Reason)
		}
	}
	if r.RunSeconds != 0 || r.Seconds > 10 {
		t.Errorf("the second run took %f s, its jobs %f s", r.Seconds, r.RunSeconds)
	}
	if cluster.Own() {
		requests, err := cluster.Requests(t.Context(), mark, kubernetes.By("eventmesh-migrate/"))
		if err != nil {
			t.Fatal(err)
		}
		if len(requests) == 0 {
			t.Error("the audit log knows of no request")
		}
		for _, q := range requests {
			if kubernetes.IsWrite(q) {
				t.Errorf("the second run wrote: %s", q)
			}
		}
	}

	tool(t, "undo", "eventbus-scaledown").want(t, migration.ExitUsage, "nobody is there to answer")
	tool(t, "undo", "eventbus-scaledown", "--yes", "--lease-duration=1s").want(t, 0, "succeeded")
	tool(t, "undo", "eventservice-verify", "--yes").want(t, 0, "It changes nothing")
	tool(t, "undo", "--phase=post", "--job=httpsource-sync", "--yes").want(t, migration.ExitUsage, "not in the selected components or phases")
	undone := tool(t, "undo", "--phase=pre", "--yes", "--lease-duration=1s", "-o", "json")
	undone.want(t, migration.ExitPartlyRestored, "carries live events") // the event-services post to the HTTPSources
	var order []string
	for _, j := range undone.report(t).Jobs {
		order = append(order, j.Job)
	}
	if want := []string{"trigger-sync", "serviceinstance-recreate", "httpsource-sync", "adopt-by-helm", "grow-pvc"}; !slices.Equal(order, want) {
		t.Errorf("undone were %q, want %q", order, want)
	}
	tool(t, "jobs", "-o", "name").want(t, 0, "job/trigger-sync\n")
	tool(t, "lint", "--release", "9.9.9").want(t, migration.ExitFailed, "job httpsource-sync must be gone")
	tool(t, "lint").want(t, 0)
	tool(t, "version", "-o", "json").want(t, 0, `"kyma": "1.11.0"`)
	tool(t, "completion", "bash").want(t, 0, "bash completion")
	for _, args := range [][]string{{"run", "--phase=mid"}, {"run", "--job=nobody"}, {"run", "--component=cora"}, {"undo"}, {"verify", "-o", "xml"}, {"jobs", "x"}, {"run", "--trigger-sync.ready-timeout=-1s"}} {
		tool(t, args...).want(t, migration.ExitUsage)
	}
	tool(t, "run", "--component", "core", "--kubeconfig", filepath.Join(t.TempDir(), "none")).want(t, migration.ExitUsage)
}

// TestUndoOfAnOlderBuild undoes a run from the record that the build of commit
// cf4bc4e wrote (testdata/older-journal.json).
func TestUndoOfAnOlderBuild(t *testing.T) {
	forget(t)
	t.Cleanup(func() { forget(t) })
	raw, err := os.ReadFile(filepath.Join("testdata", "older-journal.json"))
	if err != nil {
		t.Fatal(err)
	}
	var record struct{ Secrets, Objects []map[string]any }
	if err := json.Unmarshal(raw, &record); err != nil {
		t.Fatal(err)
	}
	for _, s := range record.Secrets {
		u := &unstructured.Unstructured{Object: s}
		u.SetNamespace(kyma.StateNamespace) // as --state-namespace
		put(t, "Secret", u)
	}
	for _, o := range record.Objects {
		u := &unstructured.Unstructured{Object: o}
		put(t, "HTTPSource", u)
		t.Cleanup(func() { remove(t, "HTTPSource", u.GetNamespace(), u.GetName()) })
	}
	tool(t, "status", "-o", "wide").want(t, 0, "by version cf4bc4e: done")
	tool(t, "undo", "httpsource-sync", "--yes", "--lease-duration=1s").want(t, 0, "succeeded")
	for _, o := range record.Objects {
		u := &unstructured.Unstructured{Object: o}
		if _, err := resource("HTTPSource", u.GetNamespace()).Get(t.Context(), u.GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("HTTPSource %s is still there: %v", u.GetName(), err)
		}
	}
}

// TestAdoptByHelm sets Helm's metadata where it differs, and puts it back.
func TestAdoptByHelm(t *testing.T) {
	forget(t)
	t.Cleanup(func() { forget(t) })
	namespace(t, "shop")
	for name, metadata := range map[string]string{
		"bare":    ``,
		"half":    `, labels: {app.kubernetes.io/managed-by: Tiller, keep: me}, annotations: {meta.helm.sh/release-name: shop}`,
		"whole":   `, labels: {app.kubernetes.io/managed-by: Helm}, annotations: {meta.helm.sh/release-name: shop, meta.helm.sh/release-namespace: shop}`,
		"foreign": `, labels: {app.kubernetes.io/managed-by: Helm}, annotations: {meta.helm.sh/release-name: other, meta.helm.sh/release-namespace: shop}`,
	} {
		put(t, "ConfigMap", object(t, `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: shop, name: `+name+metadata+`}}`))
		t.Cleanup(func() { remove(t, "ConfigMap", "shop", name) })
	}
	adopt := func(command string, objects ...string) outcome {
		return called(t, link(t, "adopt-by-helm"), "", command, "--release=shop", "--release-namespace=shop", "--objects="+strings.Join(objects, ","), "--lease-duration=1s", "--output=json")
	}
	metadata := func(name string) (map[string]string, map[string]string) {
		u, err := resource("ConfigMap", "shop").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return u.GetLabels(), u.GetAnnotations()
	}
	adopt("run", "ConfigMap/shop/bare", "ConfigMap/shop/foreign").want(t, migration.ExitRefused, "belongs to the Helm release shop/other")
	adopt("run", "Thing.example.com/shop/x").want(t, migration.ExitRefused, "serves no kind")
	mine := []string{"ConfigMap/shop/bare", "ConfigMap/shop/half", "ConfigMap/shop/whole", "ConfigMap/shop/absent"}
	_, before := metadata("whole")
	adopt("run", mine...).want(t, 0, "2 changes made")
	for _, name := range []string{"bare", "half", "whole"} {
		labels, annotations := metadata(name)
		if labels["app.kubernetes.io/managed-by"] != "Helm" || annotations["meta.helm.sh/release-name"] != "shop" || annotations["meta.helm.sh/release-namespace"] != "shop" {
			t.Errorf("%s: %v %v", name, labels, annotations)
		}
	}
	adopt("run", mine...).want(t, 0, `"nothing-to-do"`, `"writes": 0`)
	adopt("undo", mine...).want(t, 0)
	if labels, annotations := metadata("half"); labels["app.kubernetes.io/managed-by"] != "Tiller" || labels["keep"] != "me" || annotations["meta.helm.sh/release-namespace"] != "" {
		t.Errorf("not put back: %v %v", labels, annotations)
	}
	if _, after := metadata("whole"); len(after) != len(before) {
		t.Errorf("what was right was touched: %v", after)
	}
}

// TestDiagnose puts secrets where people put them, and looks for them in the
// archive.
func TestDiagnose(t *testing.T) {
	finished(t)
	const secret = "s3cr3t-Pa55word"
	app := standin.Application("commerce", false)
	app.Object["spec"].(map[string]any)["services"] = []any{map[string]any{
		"id": "1", "name": "api", "displayName": "a", "providerDisplayName": "p", "description": "postgres://me:" + secret + "@db/x?token=" + secret,
		"entries": []any{map[string]any{"type": "API", "accessLabel": "a", "gatewayUrl": "http://g", "targetUrl": "https://me:" + secret + "@api"}},
	}}
	put(t, "Application", app)
	deployment := standin.EventService("commerce", true)
	containers := deployment.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)
	container := containers[0].(map[string]any)
	container["env"] = []any{map[string]any{"name": "DB", "value": secret}}
	container["args"] = append(container["args"].([]any), "--password="+secret, "--header=Authorization: Bearer "+secret, "--db-password", secret)
	put(t, "Deployment", deployment)
	patch(t, "ServiceInstance", "shop", "commerce", `{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"`+secret+`","copy":"{\"db\":{\"url\":\"`+secret+`\"}}"}},"spec":{"parameters":{"name":"`+secret+`"}}}`)
	put(t, "Secret", object(t, `{apiVersion: v1, kind: Secret, metadata: {namespace: kyma-system, name: private}, stringData: {key: `+secret+`}}`))
	t.Cleanup(func() { remove(t, "Secret", standin.SystemNamespace, "private") })

	file := filepath.Join(t.TempDir(), "ticket.tar.gz")
	tool(t, "diagnose", "--file", file).want(t, 0, "wrote "+file)
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	all := ""
	for reader := tar.NewReader(unzipped); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(header.Name, "/")
		names = append(names, name)
		all += string(content)
		for _, s := range []string{secret, "hunter2"} {
			if i := strings.Index(string(content), s); i >= 0 {
				t.Errorf("%s holds a secret: …%s…", name, content[max(0, i-80):i])
			}
		}
	}
	for _, name := range []string{"version.json", "status.json", "reports.json", "jobs.json", "verify.json", "map.json", "missing.txt", "objects/triggers.eventing.knative.dev.yaml"} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is missing; there is %q", name, names)
		}
	}
	for _, kept := range []string{"--eventMeshURL=http://commerce.kyma-integration", "commerce-event-service", "default-broker.shop"} {
		if !strings.Contains(all, kept) {
			t.Errorf("%q was left out, and is no secret", kept)
		}
	}
}

// TestMap asks for each form.
func TestMap(t *testing.T) {
	finished(t)
	put(t, "KymaSubscription", sub("old", "billing", "order.paid", "http://old.shop/"))
	t.Cleanup(func() { remove(t, "KymaSubscription", "shop", "old") })
	tool(t, "map").want(t, 0, "APPLICATION", "on-commerce", "old (the Event Bus is down)")
	if out := tool(t, "map", "-n", "crm"); strings.Contains(out.stdout, "on-commerce") {
		t.Errorf("another namespace's:\n%s", out.stdout)
	}
	tool(t, "map", "-o", "mermaid").want(t, 0, "flowchart LR", `-- "order.created.v1, after" -->`, "-. ")
	tool(t, "map", "-o", "json").want(t, 0, `"path": "mesh"`)
	page := tool(t, "map", "-o", "html")
	page.want(t, 0, "<svg", "default-src 'none'", "</html>")
	// Links lead to rows of the page, and the script is part of it.
	if out := regexp.MustCompile(`(?i)src\s*=|href\s*=\s*"?[^"#]|url\(|@import|<script[^>]|fetch\(|XMLHttp`).FindString(page.stdout); out != "" {
		t.Errorf("the page asks for something: %q", out)
	}

	// The name of a file chooses the form, and no file is overwritten unasked.
	dir := t.TempDir()
	for _, tc := range []struct{ name, begins string }{
		{"map.html", "<!DOCTYPE html>"}, {"map.mmd", "flowchart LR"}, {"map.md", "```mermaid\nflowchart LR"}, {"map.json", "{"}, {"map.yaml", "applications:"}, {"map.txt", "Cluster http"},
	} {
		file := filepath.Join(dir, tc.name)
		tool(t, "map", "--file", file).want(t, 0)
		if raw, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(raw), tc.begins) {
			t.Errorf("%s begins with %.40q, want %q (%v)", tc.name, raw, tc.begins, err)
		}
	}
	file := filepath.Join(dir, "map.html")
	tool(t, "map", "--file", file, "-o", "json").want(t, migration.ExitUsage, "the file exists", "--force")
	tool(t, "map", "--file", file, "-o", "json", "--force").want(t, 0)
	if raw, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(raw), "{") {
		t.Errorf("--force and -o json wrote %.40q (%v)", raw, err)
	}
}

// TestExamples runs what README, the runbook and the guides show, and the examples of every
// command's help: none may be refused for how it is written.
func TestExamples(t *testing.T) {
	finished(t)
	upgraded(t, 1)
	// One of the examples is the purge, which takes a kind along.
	t.Cleanup(func() {
		if err := cluster.InstallCRDs(context.WithoutCancel(t.Context()), kubernetes.KnativeV1alpha1); err != nil {
			t.Error(err)
		}
	})
	found := map[string]string{}
	// Fails on the commit before for the guides: they had no such block.
	for _, name := range []string{"README.md", "docs/migration/README.md", "docs/migration/runbook.md", "docs/migration/eventmesh-migrate.md", "docs/migration/prerequisites.md", "docs/migration/migration-guide-1.11.md", "docs/migration/migration-guide-1.12.md"} {
		raw, err := os.ReadFile(filepath.Join("..", "..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(string(raw), "```bash\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			for _, line := range strings.Split(block, "\n") {
				line, _, _ = strings.Cut(line, "  #")
				line = strings.TrimPrefix(strings.TrimSpace(line), "bin/")
				if rest, ok := strings.CutPrefix(line, "eventmesh-migrate "); ok {
					found[rest] = name
				}
			}
		}
	}
	if len(found) < 8 {
		t.Errorf("only %d examples in the documents", len(found))
	}
	for _, name := range []string{"docs/migration/migration-guide-1.11.md", "docs/migration/migration-guide-1.12.md"} {
		if !slices.Contains(slices.Collect(maps.Values(found)), name) {
			t.Errorf("%s has no example", name)
		}
	}
	for _, command := range []string{"check", "explain", "jobs", "plan", "run", "status", "undo", "verify", "map", "diagnose", "lint", "job", "version"} {
		help := tool(t, command, "--help")
		help.want(t, 0, "Usage:", "Examples:")
		_, examples, _ := strings.Cut(help.stdout, "Examples:\n")
		for _, line := range strings.Split(examples, "\n") {
			rest, ok := strings.CutPrefix(line, "  eventmesh-migrate ")
			if !ok {
				break
			}
			found[rest] = command + " --help"
		}
	}
	dir := t.TempDir()
	// In an order that is always the same, what undoes last.
	examples := slices.SortedFunc(maps.Keys(found), func(a, b string) int {
		undoes := func(s string) int { return len(strings.TrimPrefix(s, "undo")) - len(s) }
		return cmp.Or(cmp.Compare(undoes(b), undoes(a)), strings.Compare(a, b))
	})
	for _, example := range examples {
		command, _, _ := strings.Cut(example, " > ")
		from, args := found[example], strings.Fields(command)
		if slices.Contains(args, "--context") {
			args = slices.Replace(args, slices.Index(args, "--context")+1, slices.Index(args, "--context")+2, "eventmesh")
		}
		if args[0] == "undo" && !slices.Contains(args, "--yes") && !slices.Contains(args, "--plan") {
			args = append(args, "--yes")
		}
		if args[0] == "run" || args[0] == "undo" || args[0] == "job" {
			args = append(args, "--lease-duration=1s")
			if !strings.Contains(example, "--timeout") {
				args = append(args, "--timeout=20s") // for what an example waits in vain
			}
		}
		began := time.Now()
		out := called(t, process.BuildPlain(t, binary), dir, args...)
		// What a command finds is its own affair; how it was called is ours.
		if out.code == migration.ExitUsage || out.code < 0 {
			t.Errorf("%s: %q: exit code %d\n%s", from, example, out.code, out.stderr)
		}
		t.Logf("%s: exit code %d after %s", example, out.code, time.Since(began).Round(time.Millisecond))
	}
}
