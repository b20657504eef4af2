//go:build slow || soak

package rbac

import (
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/test/controlplane"
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

func TestTheAPIServerTakesWhatTheChartsRender(t *testing.T) {
	p := start(t, controlplane.KnativeV1)
	_, err := p.core.CoreV1().Namespaces().Patch(t.Context(), "kyma-system", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted","pod-security.kubernetes.io/warn":"restricted"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, warned := p.Config(), &warnings{}
	config.WarningHandler = warned
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		"component=core", "component=application-connector", "component=cluster-essentials",
		"component=core,hooks.enabled=false,phase=pre", "component=application-connector,hooks.enabled=false,phase=post",
	} {
		out, err := p.helm.Run(t.Context(), "template", "core", "charts/eventmesh-migration", "--namespace", "kyma-system",
			"--kube-version", "1.36.0", "--api-versions", "eventing.knative.dev/v1", "--set", "standalone=true,"+args)
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
			gvr := obj.GroupVersionKind().GroupVersion().WithResource(strings.ToLower(obj.GetKind()) + "s")
			if _, err := resource(client, gvr, obj.GetNamespace()).Create(t.Context(), obj, metav1.CreateOptions{
				DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
			}); err != nil {
				t.Errorf("%s: %s %s/%s: %v", args, obj.GetKind(), obj.GetNamespace(), obj.GetName(), err)
			}
		}
		if n == 0 {
			t.Errorf("%s renders nothing", args)
		}
	}
	if len(warned.all) > 0 {
		t.Errorf("the API server warns:\n%s", strings.Join(warned.all, "\n"))
	}
}

func resource(client dynamic.Interface, gvr schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return client.Resource(gvr)
	}
	return client.Resource(gvr).Namespace(namespace)
}
