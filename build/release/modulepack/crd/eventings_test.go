package crd_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/build/release/modulepack/crd"
	eventingchart "github.com/kyma-project/eventmesh-migration/charts/eventing"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/chart"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/decide"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/identity"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stored"
	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/tracing/otlp"
)

// TestWhatIsAcceptedIsRendered: what the API server accepts, the operator reads and renders, and
// the API server and the programs take what is rendered. What is refused, is refused with the
// field. The values are put together at random. On f3299ef each kind of value here was accepted
// that one of them refused: times in days, sinks without a host, negative and crossed resources,
// labels and annotations that are none.
func TestWhatIsAcceptedIsRendered(t *testing.T) {
	raw, err := os.ReadFile("../../../../charts/eventing-manager/crds/operator.kyma-project.io_eventings.yaml")
	if err != nil {
		t.Fatal(err)
	}
	definition, err := crd.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	validator, err := crd.New(definition, "v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := chart.Load(eventingchart.Chart, ".")
	if err != nil {
		t.Fatal(err)
	}
	d := &decide.Rules{
		Identities: identity.Identities{Names: "eventing", Namespace: "kyma-system"}, Chart: rendered, Version: "1.2.3",
		NATSImage: "nats-server:1", PublisherImage: "eventing-publisher-proxy:1", ControllerImage: "eventing-controller:1", NATSURL: "tls://eventing-nats.kyma-system.svc:4222",
	}
	r := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // the same values each time
	accepted, refused := 0, 0
	for range 800 {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "Eventing", "metadata": map[string]any{"name": "eventing", "namespace": "kyma-system"}, "spec": randomSpec(r),
		}}
		problems, err := validator.Validate(t.Context(), u)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			if !strings.HasPrefix(p.Field, "spec.") && !strings.Contains(p.Detail, " in spec.") {
				t.Errorf("refused without a field: %v", p)
			}
		}
		if len(problems) > 0 {
			refused++
			continue
		}
		accepted++
		raw, err := json.Marshal(u.Object)
		if err != nil {
			t.Fatal(err)
		}
		var e stored.Eventing
		if err := json.Unmarshal(raw, &e); err != nil || e.Problem != nil {
			t.Errorf("accepted, and cannot be read: %s: %v, %v", raw, err, e.Problem)
			continue
		}
		for _, p := range refusals(d, &e.Spec) {
			t.Errorf("accepted: %.2000s\nrefused: %s", raw, p)
		}
	}
	if accepted < 50 || refused < 200 {
		t.Errorf("%d are accepted, %d refused", accepted, refused)
	}
}

// randomSpec is complete, and has some values that may be wrong.
func randomSpec(r *rand.Rand) map[string]any {
	pick := func(usual any, others ...any) any {
		if r.IntN(20) > 0 {
			return usual
		}
		return others[r.IntN(len(others))]
	}
	resources := func() map[string]any {
		return map[string]any{
			"requests": map[string]any{"cpu": pick("40m", "2", "-1", "0", "1e1.5"), pick("memory", "hugepages-2Mi", "ephemeral-storage", "bananas", "nvidia.com/gpu").(string): pick("64Mi", "3Gi", int64(5), "-5")},
			"limits":   map[string]any{"cpu": pick("500m", "10m", int64(1), "-1"), "memory": pick("1Gi", "16Mi", "1e3")},
		}
	}
	key := func() string {
		return pick("team", "example.com/team", "Example.com/team", "a b", "-a", "a/b/c", strings.Repeat("a", 64), strings.Repeat("a.", 126)+"a/b", strings.Repeat("a.", 127)+"a/b",
			"eventing.kyma-project.io/configuration", "sidecar.istio.io/inject", "app.kubernetes.io/instance", "", "kubernetes.io/config.mirror").(string)
	}
	return map[string]any{
		"backend": map[string]any{"type": pick("NATS", "EventMesh"), "config": map[string]any{
			"natsStreamStorageType": pick("File", "Memory"), "natsStreamReplicas": pick(int64(3), int64(1)), "natsMaxMsgsPerTopic": int64(1000),
			"natsStreamMaxSize": pick("50Mi", "1500000000m", "1e8", "1E", "2Mi", "1e30"),
			"natsStorage": map[string]any{
				"size": pick("1Gi", "1e9", "-1Gi", "100000000000m", "1Zi", "9000000000"), "storageClassName": pick("", "fast", "Fast", "a b"), "retention": "Retain", "sync": "Always",
			},
			"natsResources": resources(), "natsPriorityClassName": pick("", "high", "High"), "natsSpread": pick("Preferred", "None"),
			"deadLetterSink":  pick("", "http://letters.shop.svc.cluster.local/a?b=c", "http://a b/", "http:///x", "http://a:99999", "http://a:0", "http://[::1]:80/", "http://[::1", "http://a/%zz", "http://u:p@a/", "http://a/$(POD_NAME)", "http://a/#b", "http://é/", "ftp://a/"),
			"deadLetterAfter": pick("24h", "1d", "-1h", "90m", "1h30m", "0", "0s", "1.5h", "9999999999h", "", "h", "1 h"),
		}},
		"publisher":   map[string]any{"replicas": map[string]any{"min": pick(int64(2), int64(1)), "max": pick(int64(2), int64(99999999999), int64(3))}, "resources": resources(), "priorityClassName": pick("", "high", "-"), "spread": "Preferred"},
		"controller":  map[string]any{"replicas": pick(int64(2), int64(0), int64(99999999999)), "maxReplicas": pick(int64(2), int64(1), int64(7)), "resources": resources(), "priorityClassName": "", "spread": pick("Preferred", "None", "Required")},
		"logging":     map[string]any{"logLevel": pick("Info", "Debug", "Loud")},
		"tracing":     map[string]any{"endpoint": pick("", "http://collector:4318", "https://[::1]:4318/a/b", "http://u:p@c", "http://c?a=b", "http://c/#a", "http://c/%zz", "http://c/$(POD_NAME)", "c:4318", "http://a_b/", "http://c:0")},
		"labels":      map[string]any{key(): pick("shop", "", "a b", strings.Repeat("a", 64), "-", "true", "1e3", "a.b_c-d")},
		"annotations": map[string]any{key(): pick("shop", "", "a: b\n- c", strings.Repeat("é", 50000), strings.Repeat("a", 300<<10), "{{ . }}", "true")},
	}
}

// refusals are what reads a spec after the API server has accepted it, and would not take it.
func refusals(d *decide.Rules, spec *operatorv1alpha1.EventingSpec) (all []string) {
	config := spec.Backend.Config
	if config.DeadLetterAfter.Duration < 0 {
		all = append(all, "--dead-letter-after must not be negative")
	}
	if sink := config.DeadLetterSink; sink != "" {
		if u, err := url.Parse(sink); err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Contains(sink, "$(") {
			all = append(all, "--dead-letter-sink is not of the form http://<host>")
		}
	}
	if err := otlp.Check(spec.OTLPEndpoint()); err != nil || strings.Contains(spec.OTLPEndpoint(), "$(") {
		all = append(all, fmt.Sprintf("--otlp-endpoint: %v", err))
	}
	values, err := d.Values(spec, map[string]string{}, nil, map[string]bool{}, nil, spec.Backend.Type.Canonical())
	if err != nil {
		return append(all, err.Error())
	}
	objects, err := d.Chart.Render(chart.Release{Name: "eventing", Namespace: "kyma-system"}, values)
	if err != nil {
		return append(all, err.Error())
	}
	for _, u := range objects {
		metadata := []metav1.ObjectMeta{{Labels: u.GetLabels(), Annotations: u.GetAnnotations()}}
		for key := range u.GetLabels() {
			if k8sobject.IsClaimed(key) && key != "app.kubernetes.io/managed-by" {
				all = append(all, u.GetKind()+" has the label "+key)
			}
		}
		if u.GetKind() == "HorizontalPodAutoscaler" {
			var a autoscalingv2.HorizontalPodAutoscaler
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &a); err != nil {
				return append(all, err.Error())
			}
			if *a.Spec.MinReplicas > a.Spec.MaxReplicas {
				all = append(all, "autoscaler: min is more than max")
			}
			for _, m := range a.Spec.Metrics {
				if v := m.Resource.Target.AverageValue; v != nil && v.Sign() <= 0 {
					all = append(all, "autoscaler: averageValue "+v.String())
				}
			}
		}
		if template, ok, _ := unstructured.NestedMap(u.Object, "spec", "template"); ok {
			var pod corev1.PodTemplateSpec
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, &pod); err != nil {
				return append(all, err.Error())
			}
			metadata = append(metadata, pod.ObjectMeta)
			for _, c := range pod.Spec.Containers {
				all = append(all, wrong(c.Resources)...)
			}
			if name := pod.Spec.PriorityClassName; name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
				all = append(all, "priorityClassName "+name)
			}
		}
		for _, m := range metadata {
			for _, err := range append(metav1validation.ValidateLabels(m.Labels, field.NewPath("labels")), apivalidation.ValidateAnnotations(m.Annotations, field.NewPath("annotations"))...) {
				all = append(all, u.GetKind()+": "+err.Error())
			}
		}
	}
	return all
}

// wrong is what the API server refuses about resources of a container.
func wrong(r corev1.ResourceRequirements) (all []string) {
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		for name, quantity := range list {
			if quantity.Sign() < 0 || !slices.Contains([]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}, name) {
				all = append(all, string(name)+" "+quantity.String())
			}
		}
	}
	for name, request := range r.Requests {
		if limit, ok := r.Limits[name]; ok && request.Cmp(limit) > 0 {
			all = append(all, string(name)+": the request is more than the limit")
		}
	}
	return all
}
