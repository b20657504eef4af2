package eventing_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/charts/eventing"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/chart"
	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// loaded is the chart that the operator installs.
func loaded(t testing.TB) *chart.Chart {
	t.Helper()
	c, err := chart.Load(eventing.Chart, ".")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRenderedAsHelmDoes: the operator renders its chart itself, and what it renders is what the
// real Helm renders.
func TestRenderedAsHelmDoes(t *testing.T) {
	c := loaded(t)
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	h, err := helm.New(t.Context(), root, 4)
	if err != nil {
		t.Fatal(err)
	}
	for reason, values := range map[string]string{
		"as it is":               "{}",
		"without NATS":           "{nats: {enabled: false}}",
		"one server in memory":   "{nats: {replicas: 1, storage: {type: Memory}, maxFileStore: '0', maxMemoryStore: '734003200'}}",
		"five servers":           "{nats: {replicas: 5, syncInterval: 10s, storage: {className: fast, size: 20Gi}}, global: {prefix: shop}}",
		"labels and annotations": `{global: {labels: {team: "7", app.kubernetes.io/name: mine}, annotations: {note: "a: b # c"}}}`,
		"with the controller":    "{controller: {enabled: true, image: 'registry/controller@sha256:0123'}}",
		"one controller":         `{controller: {enabled: true, replicas: {min: 1, max: 1}, logLevel: Debug, deadLetterSink: "http://letters.shop.svc.cluster.local/?a=b&c=d", deadLetterAfter: 1h}, nats: {enabled: false}, global: {prefix: shop, annotations: {note: "a: b # c"}}}`,
		"controllers that grow":  "{controller: {enabled: true, replicas: {min: 1, max: 5, cpu: '1'}}, global: {prefix: shop}}",
		"a publisher":            "{publisher: {enabled: true}}",
		"with traces":            "{publisher: {enabled: true}, controller: {enabled: true}, tracing: {endpoint: 'http://collector.tracing:4318'}}",
		"a publisher that grows": "{publisher: {enabled: true, image: 'registry/publisher@sha256:0123', replicas: {min: 1, max: 5}, logLevel: debug, resources: {limits: {cpu: 2}}}, global: {prefix: shop}}",
		"one publisher":          `{publisher: {enabled: true, replicas: {min: 1, max: 1}, serviceAccountName: mine}, global: {labels: {team: "7", eventing.kyma-project.io/backend: mine}, annotations: {note: "a: b # c"}}}`,
		"users and an image":     "{nats: {image: 'registry/nats@sha256:0123', users: {system: UA, manager: UB, controller: UC, publisher: UD}, resources: {limits: {cpu: 2}}}}",
	} {
		t.Run(reason, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "values.yaml")
			if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
				t.Fatal(err)
			}
			text, err := h.Template(t.Context(), "eventing", filepath.Join(root, "charts/eventing"), "--namespace", "kyma-system", "--values", file)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]any{}
			for document := range strings.SplitSeq(text, "\n---\n") {
				u := &unstructured.Unstructured{}
				if err := yaml.Unmarshal([]byte(strings.TrimPrefix(document, "---\n")), &u.Object); err != nil {
					t.Fatal(err)
				}
				if len(u.Object) > 0 {
					want[u.GetKind()+" "+u.GetName()] = plain(t, u)
				}
			}
			given := map[string]any{}
			if err := yaml.Unmarshal([]byte(values), &given); err != nil {
				t.Fatal(err)
			}
			objects, err := c.Render(chart.Release{Name: "eventing", Namespace: "kyma-system"}, given)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]any{}
			for _, u := range objects {
				got[u.GetKind()+" "+u.GetName()] = plain(t, u)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("rendered (-Helm +operator):\n%s", diff)
			}
		})
	}
}

// TestLabels: the labels that the chart gives are those by which the operator finds its objects,
// and an administrator's do not replace them.
func TestLabels(t *testing.T) {
	theirs := map[string]operatorv1alpha1.LabelValue{"team": "shop", backend.PlaneLabel: "theirs"}
	objects, err := loaded(t).Render(chart.Release{Name: "eventing", Namespace: "kyma-system"}, map[string]any{
		"global":     map[string]any{"version": "1.2.3", "labels": map[string]any{"team": "shop", backend.PlaneLabel: "theirs"}},
		"controller": map[string]any{"enabled": true},
	})
	if err != nil {
		t.Fatal(err)
	}
	names := backend.Names(backend.DefaultPrefix)
	for _, u := range objects {
		want := names.Labels(backend.PlaneNATS, "nats", "1.2.3", theirs)
		if strings.HasPrefix(u.GetName(), names.Controller()) {
			want = names.Labels(backend.PlaneShared, "controller", "1.2.3", theirs)
		}
		if strings.HasSuffix(u.GetName(), "-metrics") {
			want["eventing.kyma-project.io/metrics"] = "true" // the ServiceMonitor selects by it
		}
		if diff := cmp.Diff(want, u.GetLabels()); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", u.GetKind(), u.GetName(), diff)
		}
	}
}

// plain is an object with numbers as JSON has them.
func plain(t *testing.T, u *unstructured.Unstructured) (out map[string]any) {
	t.Helper()
	raw, err := yaml.Marshal(u.Object)
	if err == nil {
		err = yaml.Unmarshal(raw, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestUnknownValues: a setting that no template reads is an error, and not a setting without
// effect.
func TestUnknownValues(t *testing.T) {
	c := loaded(t)
	for text, want := range map[string]string{
		"{nast: {enabled: true}}":          "the chart has no value nast",
		"{nats: {replica: 1}}":             "the chart has no value nats.replica",
		"{nats: {storage: {class: fast}}}": "the chart has no value nats.storage.class",
		"{global: {labels: {any: thing}}}": "",
	} {
		values := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &values); err != nil {
			t.Fatal(err)
		}
		_, err := c.Render(chart.Release{Name: "eventing", Namespace: "kyma-system"}, values)
		if (want == "") != (err == nil) || err != nil && err.Error() != want {
			t.Errorf("%s: want %q, got %v", text, want, err)
		}
	}
}

// TestPodsAreRestricted: a namespace that enforces the strictest Pod Security Standard takes all
// pods of the chart.
func TestPodsAreRestricted(t *testing.T) {
	c := client(t)
	for _, text := range []string{
		"{apiVersion: v1, kind: Namespace, metadata: {name: restricted, labels: {pod-security.kubernetes.io/enforce: restricted}}}",
		"{apiVersion: v1, kind: ServiceAccount, metadata: {name: eventing-controller, namespace: restricted}}",
		"{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: restricted}}",
		"{apiVersion: v1, kind: ServiceAccount, metadata: {name: eventing-publisher-proxy, namespace: restricted}}",
	} {
		u := object(t, text)
		resource := namespaces
		if u.GetKind() == "ServiceAccount" {
			resource.Resource = "serviceaccounts"
		}
		if _, err := c.Resource(resource).Namespace(u.GetNamespace()).Create(t.Context(), u, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	objects, err := loaded(t).Render(chart.Release{Name: "eventing", Namespace: "restricted"}, map[string]any{
		"nats": map[string]any{"image": "registry/nats"}, "controller": map[string]any{"enabled": true, "image": "registry/controller"},
		"publisher": map[string]any{"enabled": true, "image": "registry/publisher"},
	})
	if err != nil {
		t.Fatal(err)
	}
	pods, privileged := 0, object(t, "{apiVersion: v1, kind: Pod, metadata: {name: bad}, spec: {containers: [{name: bad, image: bad}]}}")
	create := func(pod *unstructured.Unstructured) error {
		_, err := c.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("restricted").Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	if err := create(privileged); err == nil {
		t.Fatal("the namespace takes any pod: this test would hold for nothing")
	}
	for _, u := range objects {
		template, ok, err := unstructured.NestedMap(u.Object, "spec", "template")
		if err != nil || !ok {
			continue
		}
		pods++
		pod := &unstructured.Unstructured{Object: template}
		pod.SetAPIVersion("v1")
		pod.SetKind("Pod")
		pod.SetName(u.GetName())
		// What a StatefulSet adds.
		if claims, ok, _ := unstructured.NestedSlice(u.Object, "spec", "volumeClaimTemplates"); ok && len(claims) > 0 {
			volumes, _, _ := unstructured.NestedSlice(pod.Object, "spec", "volumes")
			volumes = append(volumes, map[string]any{"name": "data", "persistentVolumeClaim": map[string]any{"claimName": "data"}})
			if err := unstructured.SetNestedSlice(pod.Object, volumes, "spec", "volumes"); err != nil {
				t.Fatal(err)
			}
		}
		if err := create(pod); err != nil {
			t.Errorf("%s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
	if pods != 3 {
		t.Errorf("%d templates of pods, want 3", pods)
	}
}

// TestPublisherPods: pods of the publisher say which backend they send to, whatever an
// administrator's labels say. They have one seed, and no key of the authority.
func TestPublisherPods(t *testing.T) {
	objects, err := loaded(t).Render(chart.Release{Name: "eventing", Namespace: "kyma-system"}, map[string]any{
		"global":    map[string]any{"labels": map[string]any{backend.BackendLabel: "mine"}},
		"publisher": map[string]any{"enabled": true},
	})
	if err != nil {
		t.Fatal(err)
	}
	names := backend.Names(backend.DefaultPrefix)
	for _, u := range objects {
		if u.GetKind() != "Deployment" {
			continue
		}
		label, _, _ := unstructured.NestedString(u.Object, "spec", "template", "metadata", "labels", backend.BackendLabel)
		if u.GetName() != names.Publisher() || label != "NATS" {
			t.Errorf("Deployment %s has pods with %s=%s", u.GetName(), backend.BackendLabel, label)
		}
		got := map[string]any{}
		volumes, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "volumes")
		for _, v := range volumes {
			volume := v.(map[string]any)["secret"].(map[string]any)
			got[volume["secretName"].(string)] = volume["items"].([]any)[0].(map[string]any)["key"]
			if len(volume["items"].([]any)) != 1 {
				t.Errorf("more than one key of Secret %s", volume["secretName"])
			}
		}
		if diff := cmp.Diff(map[string]any{names.NATSUsers(): "publisher", names.NATSCA(): "ca.crt"}, got); diff != "" {
			t.Errorf("Secrets (-want +got):\n%s", diff)
		}
		return
	}
	t.Error("there is no Deployment")
}
