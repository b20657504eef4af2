package charts

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/migration"
	"github.com/kyma-project/eventmesh-migration/test/helm"
)

// warnings keeps what the API server warns of.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

// restricted lets the namespaces enforce the restricted Pod Security Standard during
// the test.
func restricted(t *testing.T, config *rest.Config) {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	enforce := func(ctx context.Context, value string) {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":%s,"pod-security.kubernetes.io/warn":%[1]s}}}`, value)
		for _, name := range []string{systemNS, "kyma-integration", "knative-eventing", "natss", migration.DefaultStateNamespace} {
			if _, err := client.CoreV1().Namespaces().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		}
	}
	enforce(t.Context(), `"restricted"`)
	t.Cleanup(func() { enforce(context.WithoutCancel(t.Context()), "null") })
}

// What is rendered is created, to try, on a real API server, which knows every
// field, in a namespace that enforces the restricted Pod Security Standard.
func TestTheAPIServerTakesWhatTheChartsRender(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	config, warned := cluster(t).Config(), &warnings{}
	restricted(t, config)
	config.WarningHandler = warned
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	each(t, func(t *testing.T, h *helm.Helm) {
		for _, args := range []string{
			"component=core", "component=application-connector", "component=cluster-essentials",
			"component=core,hooks.enabled=false,phase=pre", "component=application-connector,hooks.enabled=false,phase=post",
		} {
			out, err := h.Template(ctx, "core", hooksChart, "--namespace", systemNS, "--kube-version", fmt.Sprintf("1.%d.0", plane.Minor),
				"--api-versions", "eventing.knative.dev/v1", "--set", "standalone=true,"+args)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for doc := range strings.SplitSeq(out, "\n---\n") {
				obj := &unstructured.Unstructured{}
				if err := yaml.Unmarshal([]byte(doc), &obj.Object); err != nil {
					t.Fatal(err)
				}
				if obj.GetKind() == "" {
					continue
				}
				n++
				resource := dynamic.ResourceInterface(objects.Resource(obj.GroupVersionKind().GroupVersion().WithResource(strings.ToLower(obj.GetKind()) + "s")))
				if obj.GetNamespace() != "" {
					resource = resource.(dynamic.NamespaceableResourceInterface).Namespace(obj.GetNamespace())
				}
				taken, err := resource.Create(ctx, obj, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
				if err != nil {
					t.Errorf("%s: %s %s/%s: %v", args, obj.GetKind(), obj.GetNamespace(), obj.GetName(), err)
					continue
				}
				// Before Kubernetes 1.25 an API server drops what it does not know, without a word.
				if lost := dropped(obj.Object, taken.Object, ""); len(lost) > 0 {
					t.Errorf("%s: %s %s/%s loses %q", args, obj.GetKind(), obj.GetNamespace(), obj.GetName(), lost)
				}
			}
			if n == 0 {
				t.Errorf("%s renders nothing", args)
			}
		}
	})
	if len(warned.all) > 0 {
		t.Errorf("the API server warns:\n%s", strings.Join(warned.all, "\n"))
	}
}

// dropped are the fields of what was sent that what came back does not have. What is
// empty may be left out.
func dropped(sent, back any, at string) []string {
	var lost []string
	switch sent := sent.(type) {
	case map[string]any:
		answer, _ := back.(map[string]any)
		for key, value := range sent {
			lost = append(lost, dropped(value, answer[key], at+"."+key)...)
		}
	case []any:
		answer, _ := back.([]any)
		for i, value := range sent {
			if i >= len(answer) {
				answer = append(answer, nil)
			}
			lost = append(lost, dropped(value, answer[i], fmt.Sprintf("%s[%d]", at, i))...)
		}
	default:
		if back == nil && sent != nil && !reflect.ValueOf(sent).IsZero() {
			lost = append(lost, at)
		}
	}
	return lost
}
