package eventing_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/chart"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// TestIstio: what docs/eventing/istio.md says of pods, ports and objects is what is rendered.
func TestIstio(t *testing.T) {
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/eventing/istio.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	example, _, _ := strings.Cut(rest, "```")
	var want map[string]any
	if err := yaml.UnmarshalStrict([]byte(example), &want); err != nil {
		t.Fatal(err)
	}
	objects, err := loaded(t).Render(chart.Release{Name: "eventing", Namespace: "kyma-system"}, map[string]any{
		"nats": map[string]any{"enabled": true}, "controller": map[string]any{"enabled": true}, "publisher": map[string]any{"enabled": true, "backend": "NATS"},
		"peerAuthentication": map[string]any{"enabled": true},
	})
	if err != nil {
		t.Fatal(err)
	}
	protocol, found := regexp.MustCompile(`^(tcp|http)-`), map[string]bool{}
	for _, u := range objects {
		found[u.GetKind()+" "+u.GetName()] = true
		switch u.GetKind() {
		case "Service":
			ports, _, _ := unstructured.NestedSlice(u.Object, "spec", "ports")
			for _, port := range ports {
				if name, _ := port.(map[string]any)["name"].(string); !protocol.MatchString(name) {
					t.Errorf("Service %s has a port %q, of which Istio would have to guess the protocol", u.GetName(), name)
				}
			}
		case "Deployment", "StatefulSet":
			injected, ok, _ := unstructured.NestedString(u.Object, "spec", "template", "metadata", "labels", "sidecar.istio.io/inject")
			controller := u.GetName() == "eventing-controller"
			if controller == ok || !controller && injected != "false" {
				t.Errorf("%s has the label for injection %q", u.GetName(), injected)
			}
			config, _, _ := unstructured.NestedString(u.Object, "spec", "template", "metadata", "annotations", "proxy.istio.io/config")
			var proxy struct {
				HoldApplicationUntilProxyStarts bool
				ProxyMetadata                   map[string]string
			}
			if err := yaml.UnmarshalStrict([]byte(config), &proxy); err != nil || controller != proxy.HoldApplicationUntilProxyStarts || controller != (proxy.ProxyMetadata["EXIT_ON_ZERO_ACTIVE_CONNECTIONS"] == "true") {
				t.Errorf("%s has the configuration %q of a sidecar: %v", u.GetName(), config, err)
			}
		case "PeerAuthentication":
			if u.GetName() != "eventing-controller" {
				continue
			}
			is := plain(t, u)
			delete(is["metadata"].(map[string]any), "labels")
			if diff := cmp.Diff(want, is); diff != "" {
				t.Errorf("the example of the page (-page +rendered):\n%s", diff)
			}
		}
	}
	for _, name := range []string{"PeerAuthentication eventing-nats", "PeerAuthentication eventing-controller", "Deployment eventing-publisher-proxy", "StatefulSet eventing-nats"} {
		if !found[name] {
			t.Errorf("there is no %s", name)
		}
	}
}
