package kubectleventing_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kyma-project/eventmesh-migration/test/process"
)

// TestStatus: one screen, the worst first, each with its next command; and the exit code.
func TestStatus(t *testing.T) {
	install(t, "Ready", "")
	subscription(t, "good", good)
	run(t, "status").want(t, 0, "Eventing kyma-system/eventing: Ready, backend NATS", "1,204 events, 12 MiB of 700 MiB (1 %); servers 1/1", "publisher 1/1", "1 Subscription: no problem is known.", "All is well.")
	for i := range 30 {
		subscription(t, fmt.Sprintf("bad-%02d", i), fmt.Sprintf(`{type: Sink delivering, status: "False", reason: Retrying, message: "the sink answers 503. Events wait, and are sent again", lastTransitionTime: %q}`, ago(time.Hour+time.Duration(i)*time.Minute)))
	}
	subscription(t, "invalid", `{type: Subscription spec valid, status: "False", reason: Subscription spec has validation errors, message: "sink is in namespace other"}`)
	out := run(t, "status")
	out.want(t, 6, "Subscriptions with a problem (31):", "shop/invalid", "sink is in namespace other", "kubectl -n shop edit subscriptions.eventing.kyma-project.io invalid", "more: kubectl eventing subscriptions", "No problem is known of 1 other Subscription.")
	lines := strings.Split(strings.TrimSuffix(out.stdout, "\n"), "\n")
	if len(lines) > 23 {
		t.Errorf("%d lines do not fit into a screen:\n%s", len(lines), out.stdout)
	}
	for _, line := range lines[1:] { // the first one names the cluster
		if utf8.RuneCountInString(line) > 80 && !strings.Contains(line, "kubectl") {
			t.Errorf("more than 80 columns: %s", line)
		}
	}
	if invalid, bad := strings.Index(out.stdout, "shop/invalid"), strings.Index(out.stdout, "shop/bad-29"); invalid < 0 || bad < invalid {
		t.Errorf("the worst is not first:\n%s", out.stdout)
	}
	var printed struct {
		Well          bool
		Subscriptions []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(run(t, "status", "-o", "json").stdout), &printed); err != nil || printed.Well || len(printed.Subscriptions) != 31 {
		t.Errorf("JSON: %v, %+v", err, printed)
	}
	run(t, "status", "-o", "name").want(t, 6, "subscription.eventing.kyma-project.io/bad-00 --namespace=shop\n")
}

func TestStatusOfTrouble(t *testing.T) {
	install(t, "Error", `
  - {type: BackendAvailable, status: "False", reason: StorageFull, message: "NATS refuses events of more than 12 KiB: the stream is 99 % full.", lastTransitionTime: "2026-01-31T11:00:00Z"}`)
	run(t, "status").want(t, 6, "Error, backend NATS", "BackendAvailable (StorageFull) for", "the stream is 99 % full", "kubectl eventing explain StorageFull")
}

func TestNotInstalled(t *testing.T) {
	for _, command := range []string{"status", "send --type=a.b --source=c", "dead-letters list"} {
		o := run(t, strings.Fields(command)...)
		o.want(t, 6, "there is no Eventing in the cluster", "kubectl eventing check")
	}
}

// TestMissingPermissions: what is missing is named with the command that shows it.
func TestMissingPermissions(t *testing.T) {
	install(t, "Ready", "")
	nobody, err := cluster.User(t.Context(), "nobody")
	if err != nil {
		t.Fatal(err)
	}
	called(t, nobody, "status").want(t, 7, "cannot list eventings.operator.kyma-project.io in all namespaces", "kubectl auth can-i list eventings.operator.kyma-project.io --all-namespaces")
	called(t, nobody, "subscriptions", "-n", "shop").want(t, 7, "kubectl auth can-i list subscriptions.eventing.kyma-project.io --namespace=shop")
	some, err := cluster.User(t.Context(), "some", rbacv1.PolicyRule{APIGroups: []string{"operator.kyma-project.io"}, Resources: []string{"eventings"}, Verbs: []string{"list"}})
	if err != nil {
		t.Fatal(err)
	}
	called(t, some, "status").want(t, 7, "Not read: cannot get deployments.apps eventing-manager in namespace kyma-system", "Ready, backend NATS", "What could be read is well.")
	// Who may not list Eventings is led to where they usually are.
	called(t, nobody, "dead-letters", "list", "-n", "shop").want(t, 7, "eventing-controller-state in namespace kyma-system")
	called(t, nobody, "dead-letters", "list", "-n", "shop", "--operator-namespace=eventing").want(t, 7, "eventing-controller-state in namespace eventing")
	called(t, nobody, "send", "--type=a.b", "--source=c").want(t, 1, "pods in namespace kyma-system")
	called(t, nobody, "trace", "--type=a.b", "--source=c", "--operator-namespace=eventing").want(t, 1, "eventing-controller-state in namespace eventing")
}

func TestSubscriptions(t *testing.T) {
	install(t, "Ready", "")
	subscription(t, "orders", `{type: Sink delivering, status: "False", reason: Retrying, message: "the sink answers 503. Events wait, and are sent again"}`)
	subscription(t, "users", good)
	out := run(t, "subscriptions")
	out.want(t, 0, "NAMESPACE", "LAST ANSWER", "the sink answers 503", "Next: kubectl eventing subscriptions shop/orders")
	if strings.Index(out.stdout, "orders") > strings.Index(out.stdout, "users") {
		t.Errorf("the one in trouble is not first:\n%s", out.stdout)
	}
	run(t, "subscriptions", "orders", "-n", "shop").want(t, 0, "Sink delivering (Retrying)", "Next: kubectl -n shop get endpointslices -l kubernetes.io/service-name=orders", "explain Retrying")
	run(t, "subscriptions", "shop/none").want(t, 2, "there is no Subscription shop/none")
	run(t, "subscriptions", "orders").want(t, 2, "name the namespace, too")
	run(t, "subscriptions", "-n", "nowhere").want(t, 2, "the cluster has no such namespace")
	run(t, "subscriptions", "-o", "name").want(t, 0, "subscription.eventing.kyma-project.io/users --namespace=shop")
}

// TestSend: the answer, who wants it, and that nobody does.
func TestSend(t *testing.T) {
	install(t, "Ready", "")
	subscription(t, "orders", good)
	var refuses atomic.Bool
	publisher := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		raw, _ := io.ReadAll(q.Body)
		if q.Header.Get("Ce-Id") != "4711" || string(raw) != `{"order": 7}` {
			t.Errorf("got the event %q: %s", q.Header.Get("Ce-Id"), raw)
		}
		if !refuses.Load() {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.WriteHeader(http.StatusInsufficientStorage)
		fmt.Fprint(w, `{"message":"The backend has no room for the event"}`)
	}))
	defer publisher.Close()
	send := func(source string) outcome {
		return run(t, "send", "--publisher", publisher.URL, "--type=orders.created.v1", "--source="+source, "--id=4711", "--data", `{"order": 7}`)
	}
	send("commerce").want(t, 0, "204, the publisher has taken it", "It is wanted by 1 Subscription", "shop/orders")
	send("elsewhere").want(t, 0, "Nobody wants it")
	run(t, "send", "-n", "default", "--publisher", publisher.URL, "--type=orders.created.v1", "--source=commerce", "--id=4711", "--data", `{"order": 7}`).want(t, 0, "No Subscription in namespace default asks for this", "were not looked at")
	refuses.Store(true)
	send("commerce").want(t, 1, "507, the publisher has not taken it", "no room for the event", "kubectl eventing explain 507", "It would be wanted by 1 Subscription")
	run(t, "send", "--type=a.b").want(t, 2, "--source: is needed")
}

// TestDeadLetters: list, show, redeliver and delete, with what is left.
func TestDeadLetters(t *testing.T) {
	var asked atomic.Value
	flags := played(t, func(w http.ResponseWriter, q *http.Request) {
		switch {
		case q.Method == http.MethodGet && strings.HasSuffix(q.URL.Path, "/17"):
			fmt.Fprint(w, `{"sequence":17,"namespace":"shop","subscription":"orders","id":"a","answer":"400","problem":"the sink answers 400","tries":3,"bytes":2,"headers":{"ce-id":"a"},"data":"e30="}`)
		case q.Method == http.MethodGet && strings.HasSuffix(q.URL.Path, "/99"):
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error":"there is no dead letter 99"}`)
		case q.Method == http.MethodGet && q.URL.Query().Get("namespace") == "forbidden":
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"error":"jane may not list subscriptions.eventing.kyma-project.io/deadletters in namespace forbidden"}`)
		case q.Method == http.MethodGet:
			fmt.Fprintf(w, `{"items":[{"sequence":17,"namespace":"shop","subscription":"orders","id":"a","type":"order.created.v1","answer":"400","problem":"the sink answers 400","tries":3,"stored":%q}],"continue":"","total":2}`, ago(time.Hour))
		default:
			raw, _ := io.ReadAll(q.Body)
			asked.Store(q.URL.Path + " " + string(raw))
			result, sum := "delivered", `"delivered":1,"refused":1,"left":1`
			if strings.HasSuffix(q.URL.Path, "delete") {
				result, sum = "deleted", `"deleted":2,"left":0`
			}
			fmt.Fprintf(w, `{"sequence":17,"namespace":"shop","subscription":"orders","id":"a","result":%q}`+"\n", result)
			if result == "delivered" {
				fmt.Fprintln(w, `{"sequence":18,"namespace":"shop","subscription":"orders","id":"b","result":"refused","answer":"400","problem":"the sink answers 400"}`)
			}
			fmt.Fprintf(w, `{"done":true,"total":2,%s}`+"\n", sum)
		}
	})
	with := func(args ...string) outcome {
		return run(t, append(append([]string{"dead-letters"}, args...), flags...)...)
	}
	with("list", "-n", "shop").want(t, 0, "SEQUENCE", "shop/orders", "the sink answers 400", "1 of 2 are shown", "kubectl eventing dead-letters redeliver --namespace=shop --all")
	with("list", "-o", "name").want(t, 0, "17\n")
	with("list", "-n", "forbidden").want(t, 7, "jane may not list")
	with("show", "17").want(t, 0, "Dead letter 17 of Subscription shop/orders: the sink answers 400.", "kubectl eventing dead-letters redeliver 17 --namespace=shop")
	with("show", "99").want(t, 2, "there is no dead letter 99")
	with("show", "17", "--payload").want(t, 0, "ce-id: a", "{}")
	with("redeliver", "-n", "shop", "--subscription", "orders").want(t, 1, "2 dead letters: 1 delivered, 1 refused by their sinks.", "1 × shop/orders: the sink answers 400", "Next: When that is repaired, go on:", "kubectl eventing dead-letters redeliver --namespace=shop --subscription=orders")
	if want := `/v1/dead-letters/redeliver {"namespace":"shop","subscription":"orders"}`; asked.Load() != want {
		t.Errorf("asked %v, want %s", asked.Load(), want)
	}
	with("redeliver", "-n", "shop").want(t, 2, "choose dead letters")
	with("delete", "17", "18").want(t, 2, "nobody is there to answer: use --yes")
	with("delete", "17", "18", "--yes").want(t, 0, "2 dead letters: 2 deleted.")
	if want := `/v1/dead-letters/delete {"sequences":[17,18]}`; asked.Load() != want {
		t.Errorf("asked %v, want %s", asked.Load(), want)
	}
	flags[1] = "--controller-certificate=" + strings.Repeat("0", 64)
	with("list").want(t, 7, "who answers is not the controller that leads")
}

// TestInterruptedWork: what is left is told with the same command.
func TestInterruptedWork(t *testing.T) {
	for _, tc := range []struct {
		reason, lines string
		status, code  int
		want          []string
	}{
		{"the controller ends", `{"sequence":17,"id":"a","result":"delivered"}` + "\n", 200, 1, []string{"The work was interrupted; 1 are left.", "Next: Go on:", "dead-letters redeliver --namespace=shop --all", "the controller has ended the work"}},
		{"somebody else works", `{"error":"dead letters are being delivered again by somebody else"}`, 409, 5, []string{"by somebody else"}},
	} {
		flags := played(t, func(w http.ResponseWriter, q *http.Request) {
			if q.Method == http.MethodGet {
				fmt.Fprint(w, `{"items":[{"sequence":17}],"total":2,"continue":""}`)
				return
			}
			w.WriteHeader(tc.status)
			fmt.Fprint(w, tc.lines)
		})
		t.Log(tc.reason)
		run(t, append([]string{"dead-letters", "redeliver", "-n", "shop", "--all"}, flags...)...).want(t, tc.code, tc.want...)
	}
}

// TestCheck: what an installation needs.
func TestCheck(t *testing.T) {
	run(t, "check", "-n", "nowhere").want(t, 6, "error: namespace: Namespace nowhere does not exist", "kubectl create namespace nowhere", "error: storage-class: there is no StorageClass", "the kinds of this eventing are installed already")
	put(t, `{apiVersion: v1, kind: Namespace, metadata: {name: kyma-system}}`)
	put(t, `{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: slow}, provisioner: example.com/x}`)
	run(t, "check").want(t, 0, "warning: storage-class", "storageClassName=slow", "this account may do everything", "Eventing can be installed")
	run(t, "check", "--backend", "EventMesh").want(t, 6, "error: knative")
	nobody, err := cluster.User(t.Context(), "nobody")
	if err != nil {
		t.Fatal(err)
	}
	called(t, nobody, "check").want(t, 6, "this account may not do this in the whole cluster: create customresourcedefinitions.apiextensions.k8s.io", "escalate clusterroles.rbac.authorization.k8s.io", "kubectl auth can-i create customresourcedefinitions.apiextensions.k8s.io --all-namespaces")
}

// TestDiagnose: the archive has the objects, and no secret.
func TestDiagnose(t *testing.T) {
	install(t, "Ready", "")
	subscription(t, "orders", good)
	put(t, `{apiVersion: v1, kind: Secret, metadata: {namespace: kyma-system, name: eventing-nats-users, labels: {app.kubernetes.io/part-of: eventing-manager}}, stringData: {seed: hunter2}}`)
	file := filepath.Join(t.TempDir(), "ticket.tar.gz")
	run(t, "diagnose", "--file", file, "-o", "wide").want(t, 0, "wrote "+file, "not collected: brokers.eventing.knative.dev")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
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
		files[name] = string(content)
		if strings.Contains(string(content), "hunter2") {
			t.Errorf("%s holds a secret", name)
		}
	}
	for name, want := range map[string]string{
		"status.json": `"state": "Ready"`, "objects/subscriptions.eventing.kyma-project.io.yaml": "name: orders", "objects/deployments.apps.yaml": "name: eventing-controller",
		"objects/eventings.operator.kyma-project.io.yaml": "name: eventing", "missing.txt": "triggers.eventing.knative.dev",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s has no %q:\n%.300s", name, want, files[name])
		}
	}
}

// TestWithoutACluster: what needs none works without, and the connection is explained.
func TestWithoutACluster(t *testing.T) {
	called(t, "/nonexistent", "explain", "StorageFull").want(t, 0, "StorageFull (BackendAvailable)", "NATS refuses events")
	called(t, "/nonexistent", "explain", "StorageFul").want(t, 2, "similar: StorageFull")
	called(t, "/nonexistent", "version", "-o", "json").want(t, 0, `"version"`)
	called(t, "/nonexistent", "status").want(t, 2, "does not exist", "--kubeconfig")
	called(t, "/nonexistent", "sttaus").want(t, 2, "sttaus")
	called(t, "/nonexistent", "status", "--outptu=json").want(t, 2, "did you mean --output")
	called(t, "/nonexistent", "status", "-o", "csv").want(t, 2, "must be one of text, wide, json, yaml, name")
}

// TestExamples: what documents and help show can be typed.
func TestExamples(t *testing.T) {
	install(t, "Ready", "")
	found := map[string]string{}
	for _, name := range []string{"docs/eventing/kubectl-eventing.md", "docs/eventing/troubleshooting.md", "docs/eventing/dead-letters.md", "docs/eventing/page.md"} {
		raw, err := os.ReadFile(filepath.Join("..", "..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(string(raw), "```bash\n")[1:] {
			block, _, _ := strings.Cut(block, "```")
			for line := range strings.Lines(block) {
				if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "kubectl eventing "); ok {
					found[rest] = name
				}
			}
		}
	}
	if len(found) < 8 {
		t.Errorf("only %d examples in the documents", len(found))
	}
	for _, command := range []string{"status", "subscriptions", "dead-letters list", "dead-letters show", "dead-letters redeliver", "dead-letters delete", "page", "send", "explain", "check", "diagnose", "version"} {
		help := run(t, append(strings.Fields(command), "--help")...)
		help.want(t, 0, "Usage:", "Examples:")
		_, examples, _ := strings.Cut(help.stdout, "Examples:\n")
		for line := range strings.Lines(examples) {
			rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "  kubectl eventing ")
			if !ok {
				break
			}
			found[rest] = command + " --help"
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "order.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for example, from := range found {
		p := process.Run(t, process.Program{
			Binary: "/bin/sh", Args: []string{"-c", process.BuildPlain(t, program) + " " + example}, Dir: dir,
			Env: []string{"KUBECONFIG=" + cluster.Kubeconfig, "PATH=" + os.Getenv("PATH")},
		})
		// What a command finds is its own affair; how it was called is ours. A Subscription of the
		// documents is not there.
		if code := p.Wait(); code < 0 || code == 2 && !strings.Contains(p.Stderr(), "there is no Subscription") && !strings.Contains(p.Stderr(), "no such namespace") {
			t.Errorf("%s: %q: exit code %d\n%s", from, example, code, p.Stderr())
		}
	}
}
