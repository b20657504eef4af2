//go:build e2e && slow

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/samplecluster"
	"github.com/kyma-project/eventmesh-migration/test/standin"
	versions "github.com/kyma-project/eventmesh-migration/test/upgrade"
)

const (
	releasedVersion = "9.9.9"
	// nodeRegistry begins the names of images on the node. This machine reaches the same registry
	// at another address.
	nodeRegistry = "127.0.0.1:5000"
	released     = nodeRegistry + "/released"
)

// release is what somebody has who has downloaded the files of a version: a folder, a key, and
// tools. No Go, and no clone.
type release struct {
	dir, path, home string
}

// makeRelease makes a version, pushes it to the registry of the node, and leaves nothing but its
// files.
func makeRelease(t *testing.T, registry string) *release {
	t.Helper()
	l, err := net.Listen("tcp", nodeRegistry)
	if err != nil {
		t.Fatalf("the registry of the node cannot be served here: %v", err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{ReadHeaderTimeout: time.Minute, Handler: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: registry})
		r.Out.Host = r.In.Host // addresses that the registry answers are those of this one
	}}}}
	server.Start()
	t.Cleanup(server.Close)

	work := t.TempDir()
	clone := filepath.Join(work, "clone")
	versions.Tagged(t, clone, releasedVersion)
	script := func(text string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", text)
		cmd.Dir = clone
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", text, err, out)
		}
	}
	key := filepath.Join(work, "release.key")
	script("openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out " + key + " && openssl pkey -in " + key + " -pubout -out " + work + "/release.pub")
	began := time.Now()
	script(fmt.Sprintf("make release VERSION=%s KEY=%s REPOSITORY=%s PLATFORMS=linux/amd64 PUSH=1", releasedVersion, key, released))
	script(fmt.Sprintf("go -C build/release run . verify -key %s/release.pub bin/release/%s && go -C build/release run . verify -key %s/release.pub %s:%s", work, releasedVersion, work, released, releasedVersion))
	t.Logf("made, pushed and verified in %.0f s", time.Since(began).Seconds())
	for _, images := range []string{"bin/release/" + releasedVersion + "/oci", "-"} { // as docs/eventing/module.md makes the module of a version
		script(fmt.Sprintf("make module MODULE_IMAGES=%s REPOSITORY=%s && diff -r dist/%s bin/release/%s/dist", images, released, releasedVersion, releasedVersion))
	}

	r := &release{dir: filepath.Join(work, "downloads"), path: filepath.Join(work, "tools"), home: t.TempDir()}
	if err := os.CopyFS(r.dir, os.DirFS(filepath.Join(clone, "bin", "release", releasedVersion))); err != nil {
		t.Fatal(err)
	}
	public, err := os.ReadFile(filepath.Join(work, "release.pub"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "release.pub"), public, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, not := range []string{clone, filepath.Join(r.dir, "oci"), filepath.Join(r.dir, "dist")} {
		if err := os.RemoveAll(not); err != nil {
			t.Fatal(err)
		}
	}
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	h, err := helm.New(t.Context(), root, 4)
	if err != nil {
		t.Fatal(err)
	}
	tools := map[string]string{"helm": h.Binary()}
	for _, tool := range []string{"bash", "cat", "curl", "gzip", "kubectl", "openssl", "sed", "sha256sum", "sleep", "tar"} {
		if tools[tool], err = exec.LookPath(tool); err != nil {
			t.Skipf("%v: docs/releases.md needs it", err)
		}
	}
	if err := os.Mkdir(r.path, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, at := range tools {
		if err := os.Symlink(at, filepath.Join(r.path, name)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// run runs commands in the folder of the files, with the tools alone, and returns what they wrote
// and the exit code.
func (r *release) run(t *testing.T, kubeconfig, text string) (out string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(r.path, "bash"), "-euo", "pipefail", "-c", text)
	cmd.Dir, cmd.Env, cmd.WaitDelay = r.dir, []string{"PATH=" + r.path, "HOME=" + r.home, "KUBECONFIG=" + kubeconfig}, 10*time.Second
	raw, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatalf("%s: %v", text, err)
	}
	return string(raw), cmd.ProcessState.ExitCode()
}

// do is run for commands that have to succeed.
func (r *release) do(t *testing.T, kubeconfig, text string) string {
	t.Helper()
	out, code := r.run(t, kubeconfig, text)
	if code != 0 {
		t.Fatalf("exit code %d of\n%s\n%s", code, text, out)
	}
	return out
}

// blocks are the commands of a document, for the version and the registry of the test.
func blocks(t *testing.T, document string) (all []string) {
	t.Helper()
	_, scripts := scriptsOf(t, document)
	for _, script := range scripts {
		all = append(all, strings.NewReplacer("0.1.0", releasedVersion, "eu.gcr.io/kyma-project/eventmesh-migration", released).Replace(script))
	}
	return all
}

// TestReleased has nothing but the files of a version and its registry. It verifies them as
// docs/releases.md says, migrates the sample cluster with the command line, installs the chart by
// its digest, and then the module, which delivers an event.
func TestReleased(t *testing.T) {
	e := eventingCluster(t, kubernetes.Node())
	r := makeRelease(t, e.Registry)
	if out, code := r.run(t, "", "command -v go git"); code == 0 {
		t.Fatalf("there is a tool that a user needs not have: %s", out)
	}
	doc := blocks(t, "docs/releases.md")
	r.do(t, "", doc[0])
	r.do(t, "", doc[3])
	t.Run("Migration", func(t *testing.T) { r.migrates(t) })

	// Registries of others speak HTTPS.
	r.do(t, e.Kubeconfig, strings.Replace(doc[4], "helm upgrade", "helm upgrade --plain-http --wait", 1))
	e.rolledOut(t, eventingNamespace, "eventing-manager")
	r.do(t, e.Kubeconfig, "helm uninstall eventing-manager --namespace kyma-system --wait\nkubectl delete crd eventings.operator.kyma-project.io subscriptions.eventing.kyma-project.io")

	module := blocks(t, "docs/eventing/module.md")
	r.do(t, e.Kubeconfig, strings.Replace(module[0], "kubectl create namespace kyma-system\n", "", 1)) // it is there
	e.ready(t, 5*time.Minute)
	got := make(chan *http.Request, 1)
	sink := e.serveHere(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case got <- r:
		default:
		}
	}))
	r.do(t, e.Kubeconfig, "kubectl create namespace shop\ntar -xzf eventing-manager-"+releasedVersion+".tgz\nkubectl apply -f eventing-manager/samples/subscription.yaml\n"+
		"kubectl -n shop wait --for=jsonpath='{.status.ready}'=true --timeout=60s subscriptions.eventing.kyma-project.io/orders")
	e.relay(t, "shop", "orders", 8080, sink)
	e.rolledOut(t, "shop", "orders")
	answer := r.do(t, e.Kubeconfig, blocks(t, "docs/eventing/subscriptions.md")[1])
	select {
	case event := <-got:
		if id := event.Header.Get("Ce-Id"); !strings.Contains(answer, " 204 ") || id != "1" {
			t.Errorf("answer %s; the sink got %v", answer, event.Header)
		}
	case <-time.After(time.Minute):
		t.Errorf("the sink got no event within a minute; the answer was %s", answer)
	}
	for _, image := range e.imagesOf(t) {
		if !strings.HasPrefix(image, released+"/") || !strings.Contains(image, "@sha256:") {
			t.Errorf("image %s is not one of the version by digest", image)
		}
	}
	r.do(t, e.Kubeconfig, "kubectl -n shop delete subscriptions.eventing.kyma-project.io orders --timeout=30s\n"+module[1])
}

// TestReleasedCharts migrates Kyma 1.10 on a node with the chart of a version, which is installed
// by its digest, as docs/releases.md says. Kyma's own charts have no hooks.
func TestReleasedCharts(t *testing.T) {
	u := newUpgrade(t, 4)
	r := makeRelease(t, u.Registry)
	for _, component := range standard.components() {
		u.must(t, component, "1.10")
	}
	u.load(t)
	const connector = "application-connector"
	if err := helm.WriteChart(filepath.Join(u.charts, "1.11", connector), map[string]string{
		"Chart.yaml":               "apiVersion: v1\nname: " + connector + "\nversion: 1.11.0\n",
		"templates/configmap.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + connector + ", namespace: " + namespaceOf(connector) + "}\ndata: {version: \"1.11\"}\n",
	}); err != nil {
		t.Fatal(err)
	}
	doc := blocks(t, "docs/releases.md")
	r.do(t, "", doc[0])
	installed := func(block string) {
		t.Helper()
		began := time.Now()
		r.do(t, u.Kubeconfig, strings.NewReplacer("helm upgrade", "helm upgrade --plain-http", "standalone=true", "standalone=true,leaseSeconds=5").Replace(block))
		u.progress(t, "the chart by its digest, in %.0f s", time.Since(began).Seconds())
	}
	installed(doc[5])
	u.expect(t, "before the switch", state{HTTPSources: 2, Triggers: 2, Subscriptions: 2, Publisher: 2, Controller: 1, Definition: true}, nil)
	u.must(t, connector, "1.11")
	installed(doc[6])
	u.expect(t, "after the switch", state{HTTPSources: 2, Triggers: 2, Definition: true}, []string{
		"pre-httpsource-sync: nothing-to-do", "pre-serviceinstance-recreate: nothing-to-do", "pre-trigger-sync: succeeded",
		"post-eventservice-verify: nothing-to-do", "post-trigger-sync: nothing-to-do", "post-eventbus-scaledown: succeeded",
	})
}

// imagesOf are the images of the pods of eventing.
func (e *eventing) imagesOf(t *testing.T) (images []string) {
	t.Helper()
	pods, err := e.client.CoreV1().Pods(eventingNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("%d pods, %v", len(pods.Items), err)
	}
	for i := range pods.Items {
		images = append(images, pods.Items[i].Spec.Containers[0].Image)
	}
	return images
}

// migrates lets the command line migrate the sample of a Kyma 1.10 cluster.
func (r *release) migrates(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var sample samplecluster.Cluster
	t.Cleanup(func() {
		if err := sample.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := sample.Start(ctx, samplecluster.Options{}); err != nil {
		t.Fatal(err)
	}
	step := func(args string, want int) {
		t.Helper()
		if out, code := r.run(t, sample.Kubeconfig, "./eventmesh-migrate "+args); code != want {
			t.Fatalf("eventmesh-migrate %s: exit code %d, want %d\n%s", args, code, want, out)
		}
	}
	const problems = 6
	step("check", 0)
	step("verify", problems)
	step("run --phase pre -y", 0)
	if n, err := sample.Switch(ctx); err != nil || n == 0 {
		t.Fatalf("%d releases were upgraded, %v", n, err)
	}
	if err := sample.Controllers.WaitReady(ctx, sample.Sample.In(standin.InPlace, standin.FrozenInPlace)...); err != nil {
		t.Fatal(err)
	}
	step("run --phase post -y", 0)
	step("status", 0)
}
