package charts

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/poll"
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
		for _, name := range []string{systemNS, "kyma-integration", "knative-eventing", "natss", kyma.StateNamespace} {
			if _, err := client.CoreV1().Namespaces().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		}
	}
	enforce(t.Context(), `"restricted"`)
	t.Cleanup(func() { enforce(context.WithoutCancel(t.Context()), "null") })
}

// The rendered objects are created with dry run on a real API server, which knows every field, in a
// namespace that enforces the restricted Pod Security Standard.
func TestTheAPIServerTakesWhatTheChartsRender(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	config, warned := cluster(t).Config(), &warnings{}
	restricted(t, config)
	config.WarningHandler = warned
	client := creator{}
	var err error
	if client.Interface, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	// ValidatingAdmissionPolicies came with 1.30.
	policies := plane.Minor >= 30
	each(t, func(t *testing.T, h *helm.Helm) {
		for _, args := range []string{
			"component=core", "component=application-connector", "component=cluster-essentials",
			"component=core,hooks.enabled=false,phase=pre", "component=application-connector,hooks.enabled=false,phase=post",
			"component=application-connector,networkPolicy.enabled=true,admissionPolicy.enabled=true,ttlSecondsAfterFinished=60," +
				"networkPolicy.egress[0].ports[0].port=8081,podSecurityContext.runAsUser=,podSecurityContext.runAsGroup=,image.digests.trigger-sync=" + digest,
		} {
			if strings.Contains(args, "admissionPolicy") && !policies {
				continue
			}
			out, err := h.Template(ctx, "core", hooksChart, "--namespace", systemNS, "--kube-version", fmt.Sprintf("1.%d.0", plane.Minor),
				"--api-versions", "eventing.knative.dev/v1", "--set", "standalone=true,image.allowDevel=true,"+args)
			if err != nil {
				t.Fatal(err)
			}
			for _, obj := range documents(t, out) {
				taken, err := client.create(ctx, obj, metav1.DryRunAll)
				if err != nil {
					t.Errorf("%s: %s %s/%s: %v", args, obj.GetKind(), obj.GetNamespace(), obj.GetName(), err)
					continue
				}
				// Before Kubernetes 1.25 an API server drops what it does not know, without a word.
				if lost := dropped(obj.Object, taken.Object, ""); len(lost) > 0 {
					t.Errorf("%s: %s %s/%s loses %q", args, obj.GetKind(), obj.GetNamespace(), obj.GetName(), lost)
				}
			}
		}
		// Fails on the commit before: without a seccompProfile, which the annotation is no more.
		out, err := h.Template(ctx, "shop", "charts/application", "--namespace", "kyma-integration", "--kube-version", fmt.Sprintf("1.%d.0", plane.Minor),
			"--set", "eventServiceOnMesh.standalone=true,global.eventServiceImage=registry.example/event-service:v1")
		if err != nil {
			t.Fatal(err)
		}
		for _, obj := range documents(t, out) {
			if obj.GetKind() == "HTTPSource" {
				continue // Kyma's, and no part of this
			}
			if _, err := client.create(ctx, obj, metav1.DryRunAll); err != nil {
				t.Errorf("charts/application: %s %s/%s: %v", obj.GetKind(), obj.GetNamespace(), obj.GetName(), err)
			}
		}
	})
	if len(warned.all) > 0 {
		t.Errorf("the API server warns:\n%s", strings.Join(warned.all, "\n"))
	}
	if policies {
		t.Run("AdmissionPolicy", func(t *testing.T) { testAdmissionPolicy(ctx, t, config, client) })
	}
}

type creator struct{ dynamic.Interface }

func (c creator) resource(obj *unstructured.Unstructured) dynamic.ResourceInterface {
	gvr, _ := meta.UnsafeGuessKindToResource(obj.GroupVersionKind())
	if obj.GetNamespace() == "" {
		return c.Resource(gvr)
	}
	return c.Resource(gvr).Namespace(obj.GetNamespace())
}

func (c creator) create(ctx context.Context, obj *unstructured.Unstructured, dryRun ...string) (*unstructured.Unstructured, error) {
	return c.resource(obj).Create(ctx, obj, metav1.CreateOptions{DryRun: dryRun, FieldValidation: metav1.FieldValidationStrict})
}

// documents are the objects of a rendering.
func documents(t *testing.T, out string) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for doc := range strings.SplitSeq(out, "\n---\n") {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &obj.Object); err != nil {
			t.Fatal(err)
		}
		if obj.GetKind() != "" {
			all = append(all, obj)
		}
	}
	if len(all) == 0 {
		t.Error("it renders nothing")
	}
	return all
}

// The account that may patch Namespaces labels them, and changes nothing else of them. Fails on the
// commit before: it took the label off by which Kubernetes enforces a Pod Security Standard.
func testAdmissionPolicy(ctx context.Context, t *testing.T, config *rest.Config, client creator) {
	out, err := helms[len(helms)-1].Template(ctx, "core", hooksChart, "--namespace", systemNS, "--kube-version", "1.36.0",
		"--set", "standalone=true,image.allowDevel=true,admissionPolicy.enabled=true")
	if err != nil {
		t.Fatal(err)
	}
	const account = "core-serviceinstance-recreate"
	for _, obj := range documents(t, out) {
		if !strings.HasPrefix(obj.GetName(), account) || obj.GetKind() == "Role" || obj.GetKind() == "RoleBinding" {
			continue
		}
		if _, err := client.create(ctx, obj); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("%s %s: %v", obj.GetKind(), obj.GetName(), err)
		}
		t.Cleanup(func() {
			if err := client.resource(obj).Delete(context.WithoutCancel(ctx), obj.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("%s %s: %v", obj.GetKind(), obj.GetName(), err)
			}
		})
	}
	config = rest.CopyConfig(config)
	config.Impersonate.UserName = "system:serviceaccount:" + systemNS + ":" + account
	job, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	patch := func(text string) error {
		_, err := job.CoreV1().Namespaces().Patch(ctx, "natss", types.MergePatchType, []byte(text), metav1.PatchOptions{})
		return err
	}
	const takesOff = `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":null}}}`
	// Roles and policies take a moment to be in force: until then one allows too little, and the
	// other too much.
	poll.Until(t, 30*time.Second, "the policy is in force", func(ctx context.Context) error {
		_, err := job.CoreV1().Namespaces().Patch(ctx, "natss", types.MergePatchType, []byte(takesOff), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case err == nil:
			return errors.New("the label may be taken off")
		case strings.Contains(err.Error(), "knative-eventing-injection"):
			return nil
		default:
			return err
		}
	})
	for _, text := range []string{
		takesOff,
		`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`,
		`{"metadata":{"labels":{"knative-eventing-injection":"enabled","istio-injection":"disabled"}}}`,
		`{"metadata":{"annotations":{"scheduler.alpha.kubernetes.io/node-selector":"a=b"}}}`,
		`{"metadata":{"finalizers":["example.com/hold"]}}`,
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":"default","uid":"1"}]}}`,
	} {
		if err := patch(text); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{`{"metadata":{"labels":{"knative-eventing-injection":"enabled"}}}`, `{"metadata":{"labels":{"knative-eventing-injection":null}}}`} {
		if err := patch(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	// Nobody else is kept from anything.
	if _, err := client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Patch(ctx, "natss", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("another user: %v", err)
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
