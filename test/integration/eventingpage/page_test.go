// Package eventingpage_test proves the live page on a real API server: the operator shows it with
// the permissions of its chart, and kubectl eventing to a person who may see one namespace.
package eventingpage_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	eventingmanager "github.com/kyma-project/eventmesh-migration/charts/eventing-manager"
	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/manifest"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

const limit = time.Minute

var cluster *kubernetes.ControlPlane

func TestMain(m *testing.M) {
	kubernetes.Main(m, kubernetes.Shared(&cluster), kubernetes.Before(func(ctx context.Context) error {
		return cluster.InstallCRDFiles(ctx, eventingmanager.CRDs, "crds")
	}))
}

var (
	namespaces    = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	configMaps    = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	bindings      = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}
	roles         = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	eventings     = schema.GroupVersionResource{Group: "operator.kyma-project.io", Version: "v1alpha1", Resource: "eventings"}
	subscriptions = schema.GroupVersionResource{Group: "eventing.kyma-project.io", Version: "v1alpha2", Resource: "subscriptions"}
)

// put creates an object, and writes its status.
func put(t *testing.T, of schema.GroupVersionResource, text string) {
	t.Helper()
	client := administrator(t).Resource(of)
	u := manifest.Object(t, text)
	var in dynamic.ResourceInterface = client
	if u.GetNamespace() != "" {
		in = client.Namespace(u.GetNamespace())
	}
	status, has := u.Object["status"]
	made, err := in.Create(t.Context(), u, metav1.CreateOptions{})
	if err == nil && has {
		made.Object["status"] = status
		_, err = in.UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func administrator(t *testing.T) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func subscription(t *testing.T, namespace, name, status string) {
	t.Helper()
	put(t, subscriptions, fmt.Sprintf(`
apiVersion: eventing.kyma-project.io/v1alpha2
kind: Subscription
metadata: {namespace: %s, name: %s}
spec: {source: commerce, types: [order.created.v1], sink: "http://%s.%s.svc.cluster.local"}
status: {ready: true, types: [], %s}`, namespace, name, name, namespace, status))
}

// chart is the operator's chart with the page: what its Roles allow, and the ConfigMap of the page.
func chart(t *testing.T) (rules []rbacv1.PolicyRule, config *unstructured.Unstructured) {
	t.Helper()
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	h, err := helm.New(t.Context(), root, 4)
	if err != nil {
		t.Fatal(err)
	}
	text, err := h.Run(t.Context(), append(documented(t, root), "--kube-version", "1.36.0", "--set", "image.tag=test")...)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		if !strings.Contains("\n"+document, "\nkind: ") || strings.Contains(document, "kind: CustomResourceDefinition") {
			continue
		}
		u := manifest.Object(t, document)
		switch {
		case u.GetKind() == "ConfigMap" && u.GetName() == "eventing-manager-page":
			config = u
		case strings.HasSuffix(u.GetKind(), "Role") && strings.HasSuffix(":"+u.GetName(), ":eventing-manager"):
			var role rbacv1.ClusterRole
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &role); err != nil {
				t.Fatal(err)
			}
			rules = append(rules, role.Rules...)
		}
	}
	if len(rules) == 0 || config == nil {
		t.Fatal("the chart has no Roles of the operator, or no ConfigMap of the page")
	}
	return rules, config
}

// documented are the words of the command in the documents that turns the page on.
func documented(t *testing.T, root string) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "docs/eventing/page.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(raw), "\nhelm ")
	line, _, found := strings.Cut(line, " > eventing-manager.yaml\n")
	if !found {
		t.Fatal("docs/eventing/page.md has no command for helm")
	}
	return strings.Fields(line)
}

// operator starts the operator with the page, and returns how it is reached.
func operator(t *testing.T) (flags []string) {
	t.Helper()
	rules, config := chart(t)
	kubeconfig, err := cluster.User(t.Context(), "operator", rules...)
	if err != nil {
		t.Fatal(err)
	}
	in := administrator(t).Resource(configMaps).Namespace("kyma-system")
	if _, err := in.Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ports, err := process.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	address := "127.0.0.1:" + strconv.Itoa(ports[0])
	process.Start(t, process.Program{Binary: process.Build(t, "./cmd/eventing-manager"), Args: []string{
		"--kubeconfig", kubeconfig, "--namespace", "kyma-system", "--nats-image=x:y", "--publisher-image=x:y", "--controller-image=x:y", "--nats-url=nats://127.0.0.1:1",
		"--metrics-bind-address=0", "--health-probe-bind-address=0", "--page-bind-address", address,
	}})
	certificate := ""
	poll.Until(t, limit, "the operator says where its page is", func(ctx context.Context) error {
		u, err := in.Get(ctx, "eventing-manager-page", metav1.GetOptions{})
		if err != nil {
			return err
		}
		certificate, _, _ = unstructured.NestedString(u.Object, "data", "certificate")
		if pod, _, _ := unstructured.NestedString(u.Object, "data", "pod"); pod == "" || certificate == "" {
			return errors.New("the ConfigMap names no pod or no certificate")
		}
		return nil
	})
	return []string{"--operator=https://" + address, "--operator-certificate=" + certificate}
}

// person is somebody who may list the Subscriptions of a namespace, and nothing else.
func person(t *testing.T, namespace string) (kubeconfig string) {
	t.Helper()
	kubeconfig, err := cluster.User(t.Context(), "person")
	if err != nil {
		t.Fatal(err)
	}
	account := strings.TrimSuffix(filepath.Base(kubeconfig), ".kubeconfig")
	put(t, bindings, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: %s, name: page}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: page-reader}
subjects: [{kind: ServiceAccount, name: %s, namespace: default}]`, namespace, account))
	return kubeconfig
}

var addressed = regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+/[A-Za-z0-9_-]{43}/`)

// page starts kubectl eventing page, and returns the address that it prints.
func page(t *testing.T, kubeconfig string, flags []string) (string, *process.Process) {
	t.Helper()
	screen, err := os.Create(filepath.Join(t.TempDir(), "stdout")) // what it has written so far can be read
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = screen.Close() })
	p := process.Start(t, process.Program{
		Binary: process.BuildPlain(t, "./cmd/kubectl-eventing"), Args: append([]string{"page", "--no-browser"}, flags...), Dir: t.TempDir(), Stdout: screen,
		Env: []string{"KUBECONFIG=" + kubeconfig, "PATH=" + os.Getenv("PATH")},
	})
	address := ""
	poll.Until(t, limit, "the address is printed", func(context.Context) error {
		text, err := os.ReadFile(screen.Name())
		if address = addressed.FindString(string(text)); err == nil && address == "" {
			err = fmt.Errorf("stdout: %s", text)
		}
		return err
	})
	return address, p
}

// answered is an answer without its body.
type answered struct {
	Status     string
	StatusCode int
	Header     http.Header
}

// ask asks as a browser does, or somebody who plays one.
func ask(t *testing.T, method, address string, headers ...string) (answered, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			q.Host = headers[i+1]
		}
		q.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answered{res.Status, res.StatusCode, res.Header}, string(raw)
}

// TestPage: a person who may see one namespace sees it, and what happens there; somebody who may
// see everything does; and nobody else gets in.
func TestPage(t *testing.T) {
	for _, name := range []string{"kyma-system", "shop", "office"} {
		put(t, namespaces, fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s}}`, name))
	}
	put(t, roles, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: page-reader}
rules: [{apiGroups: [eventing.kyma-project.io], resources: [subscriptions], verbs: [list]}]`)
	put(t, eventings, `
apiVersion: operator.kyma-project.io/v1alpha1
kind: Eventing
metadata: {namespace: kyma-system, name: eventing}
spec: {backend: {type: NATS, config: {natsStreamReplicas: 1}}}`)
	subscription(t, "shop", "orders", `conditions: [{type: Sink delivering, status: "False", reason: Retrying, message: "the sink answers 503. Events wait, and are sent again"}], delivery: {backlog: 1204, repeating: 50}`)
	subscription(t, "office", "bills", `conditions: [], delivery: {backlog: 7777, repeating: 0}`)
	flags := operator(t)
	kubeconfig := person(t, "shop")

	t.Run("one namespace", func(t *testing.T) {
		address, p := page(t, kubeconfig, flags)
		res, text := ask(t, "GET", address)
		if res.StatusCode != http.StatusOK || !strings.Contains(res.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s, headers %v", res.Status, res.Header)
		}
		for _, want := range []string{"shop/orders", "1,204", "the sink answers 503", "kubectl auth can-i list subscriptions", "kubectl auth can-i get eventings.operator.kyma-project.io --namespace=kyma-system"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q", want)
			}
		}
		for _, never := range []string{"office", "bills", "7,777", "eventing-manager 1/1"} {
			if strings.Contains(text, never) {
				t.Errorf("the page has %q, which the person may not see", never)
			}
		}
		t.Run("refused", func(t *testing.T) { refused(t, address) })
		t.Run("live", func(t *testing.T) { changes(t, address) })
		p.Signal(syscall.SIGINT)
		if code := p.Wait(); code != 0 {
			t.Errorf("exit code %d after Ctrl-C: %s", code, p.Stderr())
		}
	})
	t.Run("everything", func(t *testing.T) {
		address, _ := page(t, cluster.Kubeconfig, flags)
		_, text := ask(t, "GET", address+"?q=bills")
		for _, want := range []string{"office/bills", "kyma-system/eventing", "1 of 2 Subscriptions"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q", want)
			}
		}
		if strings.Contains(text, "shop/orders") {
			t.Error("the search has found another one")
		}
	})
	t.Run("wrong certificate", func(t *testing.T) {
		p := process.Run(t, process.Program{Binary: process.BuildPlain(t, "./cmd/kubectl-eventing"), Args: []string{"page", "--no-browser", flags[0], "--operator-certificate=00"}, Env: []string{"KUBECONFIG=" + kubeconfig}})
		if code := p.Wait(); code != 7 || !strings.Contains(p.Stderr(), "who answers is not the operator that leads") {
			t.Errorf("exit code %d: %s", code, p.Stderr())
		}
	})
}

// refused: without the secret, by another name, from another site or with another method, nobody is
// answered.
func refused(t *testing.T, address string) {
	t.Helper()
	secret := strings.Split(address, "/")[3]
	for _, tc := range []struct {
		reason, method, address string
		headers                 []string
		want                    int
	}{
		{"no secret", "GET", strings.Replace(address, secret+"/", "", 1), nil, http.StatusNotFound},
		{"another secret", "GET", strings.Replace(address, secret, strings.Repeat("A", len(secret)), 1), nil, http.StatusNotFound},
		{"a name of somebody else that points here", "GET", address, []string{"Host", "evil.example.com"}, http.StatusMisdirectedRequest},
		{"a form of another site", "POST", address, nil, http.StatusMethodNotAllowed},
		{"a script of another site", "GET", address + "state", []string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{"a script of another port", "GET", address + "state", []string{"Sec-Fetch-Site", "same-site"}, http.StatusForbidden},
		{"the API of the controller", "GET", address + "v1/dead-letters", nil, http.StatusNotFound},
	} {
		if res, text := ask(t, tc.method, tc.address, tc.headers...); res.StatusCode != tc.want || strings.Contains(text, "orders") {
			t.Errorf("%s: %s, want %d: %s", tc.reason, res.Status, tc.want, text)
		}
	}
}

// changes: what changes in the cluster comes anew, and what does not costs nothing.
func changes(t *testing.T, address string) {
	t.Helper()
	res, _ := ask(t, "GET", address+"state")
	tag := res.Header.Get("ETag")
	if res, text := ask(t, "GET", address+"state", "If-None-Match", tag); tag == "" || res.StatusCode != http.StatusNotModified || text != "" {
		t.Errorf("tag %s: %s %s", tag, res.Status, text)
	}
	in := administrator(t).Resource(subscriptions).Namespace("shop")
	if _, err := in.Patch(t.Context(), "orders", "application/merge-patch+json", []byte(`{"status":{"delivery":{"backlog":1999}}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, limit, "the new number is there", func(context.Context) error {
		res, text := ask(t, "GET", address+"state", "If-None-Match", tag)
		var answer struct{ Parts []struct{ Name, HTML string } }
		if res.StatusCode == http.StatusOK {
			if err := json.Unmarshal([]byte(text), &answer); err != nil {
				return err
			}
		}
		for _, p := range answer.Parts {
			if p.Name == "subscriptions" && strings.Contains(p.HTML, "1,999") {
				return nil
			}
		}
		return errors.New(res.Status)
	})
}
