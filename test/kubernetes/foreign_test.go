package kubernetes

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// lent is a cluster of somebody else as far as Start asks it: it answers the list of Applications,
// and keeps what it was asked.
func lent(t *testing.T, serve bool, applications ...map[string]string) (kubeconfig string, requests func() []string) {
	t.Helper()
	var mu sync.Mutex
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.Method+" "+r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/version" {
			_, _ = w.Write([]byte(`{"major": "1", "minor": "36+", "gitVersion": "v1.36.3"}`))
			return
		}
		if !serve || !strings.HasSuffix(r.URL.Path, "/applications") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		matches, err := labels.Parse(r.URL.Query().Get("labelSelector"))
		if err != nil {
			t.Error(err)
			return
		}
		list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "applicationconnector.kyma-project.io/v1alpha1", "kind": "ApplicationList"}}
		for _, l := range applications {
			if u := (unstructured.Unstructured{Object: map[string]any{"apiVersion": list.GetAPIVersion(), "kind": "Application"}}); matches.Matches(labels.Set(l)) {
				u.SetName("commerce")
				list.Items = append(list.Items, u)
			}
		}
		if err := json.NewEncoder(w).Encode(list); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return kubeconfig, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return asked
	}
}

// TestStartRefusesAClusterInUse fails on the commit before: any cluster was taken, and its
// Applications were deleted by the first test that cleared it, if its Namespace kyma-system had
// once been made by a test.
func TestStartRefusesAClusterInUse(t *testing.T) {
	ours := map[string]string{MadeForTests: "true"}
	for name, tc := range map[string]struct {
		reason  string
		serves  bool
		labels  []map[string]string
		refused bool
	}{
		"Empty":  {reason: "nothing is lost", serves: true},
		"NoKind": {reason: "a cluster without Kyma", serves: false},
		"Ours":   {reason: "an earlier test was killed, and left its own", serves: true, labels: []map[string]string{ours, ours}},
		"Theirs": {reason: "a cluster in use", serves: true, labels: []map[string]string{nil}, refused: true},
		"Both":   {reason: "somebody has installed Kyma since", serves: true, labels: []map[string]string{ours, {"a": "b"}}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			kubeconfig, requests := lent(t, tc.serves, tc.labels...)
			t.Setenv(KubeconfigEnv, kubeconfig)
			c, err := Start(t.Context())
			if c != nil {
				t.Cleanup(func() { _ = c.Stop() })
			}
			if (err != nil) != tc.refused {
				t.Errorf("%s: %v", tc.reason, err)
			}
			if err != nil && !strings.Contains(err.Error(), "commerce lacks the label "+MadeForTests) {
				t.Errorf("the message names neither the Application nor the label: %v", err)
			}
			want := []string{"GET /version", "GET /apis/applicationconnector.kyma-project.io/v1alpha1/applications"}
			if diff := cmp.Diff(want, requests()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStartIgnoresKUBECONFIG fails on the commit before: the tests took that cluster.
func TestStartIgnoresKUBECONFIG(t *testing.T) {
	kubeconfig, requests := lent(t, true)
	t.Setenv(clientcmd.RecommendedConfigPathEnvVar, kubeconfig)
	t.Setenv(KubeconfigEnv, "")
	ended, cancel := context.WithCancel(t.Context())
	cancel() // an own control plane begins to be built, and is not
	if c, err := Start(ended); err == nil {
		_ = c.Stop()
		t.Error("it connected to the cluster of KUBECONFIG")
	}
	if got := requests(); len(got) > 0 {
		t.Errorf("the cluster of KUBECONFIG was asked: %q", got)
	}
}
