package eventing_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

var (
	eventings     = operatorv1alpha1.GroupVersion.WithResource("eventings")
	subscriptions = eventingv1alpha2.GroupVersion.WithResource("subscriptions")
	namespaces    = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

const (
	eventingHead     = "{apiVersion: operator.kyma-project.io/v1alpha1, kind: Eventing, metadata: {generateName: eventing-}, spec: "
	subscriptionHead = "{apiVersion: eventing.kyma-project.io/v1alpha2, kind: Subscription, metadata: {generateName: orders-}, spec: "
	sink             = "sink: 'http://orders.default.svc.cluster.local:8080/events'"
)

// object reads an object in YAML.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &u.Object); err != nil { // numbers become int64, as in what the API server answers
		t.Fatal(err)
	}
	return u
}

func client(t *testing.T) dynamic.Interface {
	t.Helper()
	c, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// strict refuses unknown fields, as kubectl does.
var strict = metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}

// patched is a command of a document that changes one of our objects: its kind, and its patch.
var patched = regexp.MustCompile(`patch (eventings|subscriptions)\S*kyma-project\.io \S+ --type=merge -p '([^']*)'`)

// TestPatchesOfDocuments: what a document tells people to change is accepted.
func TestPatchesOfDocuments(t *testing.T) {
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs/eventing/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range patched.FindAllStringSubmatch(string(text), -1) {
			found++
			of, is := client(t).Resource(subscriptions).Namespace("default"), subscriptionHead+"{"+sink+", source: commerce, types: [order.created.v1]}}"
			if m[1] == "eventings" {
				of, is = client(t).Resource(eventings).Namespace("default"), eventingHead+"{backend: {type: NATS}}}"
			}
			created, err := of.Create(t.Context(), object(t, is), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = of.Patch(t.Context(), created.GetName(), types.MergePatchType, []byte(m[2]), metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict})
			if err := errors.Join(err, of.Delete(t.Context(), created.GetName(), metav1.DeleteOptions{})); err != nil {
				t.Errorf("%s: %s: %v", filepath.Base(page), m[2], err)
			}
		}
	}
	if found < 4 {
		t.Errorf("%d patches in the documents", found)
	}
}

// TestNewObjects: what is refused, is refused with the words that say what is wrong.
func TestNewObjects(t *testing.T) {
	for _, tc := range []struct {
		reason   string
		resource schema.GroupVersionResource
		object   string
		refused  string // part of the message; "" if the object is accepted
	}{
		{"no backend yet", eventings, eventingHead + "{}}", ""},
		{"a backend without anything", eventings, eventingHead + "{backend: {}}}", ""},
		{"the old spelling", eventings, eventingHead + "{backend: {type: nats}}}", ""},
		{"the new spelling", eventings, eventingHead + "{backend: {type: EventMesh}}}", ""},
		{"an empty type", eventings, eventingHead + "{backend: {type: ''}}}", ""},
		{"a third spelling", eventings, eventingHead + "{backend: {type: Nats}}}", `Unsupported value: "Nats"`},
		{"another backend", eventings, eventingHead + "{backend: {type: Kafka}}}", `Unsupported value: "Kafka"`},
		{"an unknown field", eventings, eventingHead + "{backend: {typ: NATS}}}", `unknown field "spec.backend.typ"`},
		{"two servers", eventings, eventingHead + "{backend: {config: {natsStreamReplicas: 2}}}}", "Unsupported value: 2"},
		{"sizes as Kyma's own samples have them", eventings, eventingHead + "{backend: {config: {natsStreamStorageType: Memory, natsStreamMaxSize: 50Mi, natsStreamReplicas: 1, eventTypePrefix: sap.kyma.custom}}}}", ""},
		{"a secret for a service that is not supported", eventings, eventingHead + "{backend: {type: EventMesh, config: {eventMeshSecret: kyma-system/eventing-backend}}}}", ""},
		{"a secret without a namespace", eventings, eventingHead + "{backend: {type: EventMesh, config: {eventMeshSecret: eventing-backend}}}}", "spec.backend.config.eventMeshSecret"},
		{"a volume as large as the stream", eventings, eventingHead + "{backend: {config: {natsStorage: {size: 700Mi}}}}}", "natsStorage.size must be at least 1.2 times natsStreamMaxSize"},
		{"a volume just large enough", eventings, eventingHead + "{backend: {config: {natsStorage: {size: 840Mi}}}}}", ""},
		{"sizes are compared as quantities", eventings, eventingHead + "{backend: {config: {natsStreamMaxSize: 9Gi, natsStorage: {size: 11Gi}}}}}", ""},
		{"a small volume that nobody uses", eventings, eventingHead + "{backend: {config: {natsStreamStorageType: Memory, natsStorage: {size: 1Mi}}}}}", ""},
		{"a stream without size", eventings, eventingHead + "{backend: {config: {natsStreamMaxSize: 0}}}}", "natsStreamMaxSize must be more than 1Mi"},
		{"more pods than there may be", eventings, eventingHead + "{publisher: {replicas: {min: 3}}}}", "min must not be greater than max"},
		{"no pod", eventings, eventingHead + "{controller: {replicas: 0}}}", "spec.controller.replicas"},
		{"a receiver for traces", eventings, eventingHead + "{tracing: {endpoint: 'http://collector.tracing.svc.cluster.local:4318'}}}", ""},
		{"a receiver for traces by gRPC", eventings, eventingHead + "{tracing: {endpoint: 'collector:4317'}}}", "spec.tracing.endpoint"},
		{"a receiver for traces with a password", eventings, eventingHead + "{tracing: {endpoint: 'http://user:password@collector:4318'}}}", "spec.tracing.endpoint"},
		{"an unknown log level", eventings, eventingHead + "{logging: {logLevel: Trace}}}", `Unsupported value: "Trace"`},

		{"a time in days", eventings, eventingHead + "{backend: {config: {deadLetterAfter: 1d}}}}", "spec.backend.config.deadLetterAfter"},
		{"a negative time", eventings, eventingHead + "{backend: {config: {deadLetterAfter: '-1h'}}}}", "spec.backend.config.deadLetterAfter"},
		{"a time that is too long", eventings, eventingHead + "{backend: {config: {deadLetterAfter: 99999999999h}}}}", "spec.backend.config.deadLetterAfter"},
		{"a host with a space", eventings, eventingHead + "{backend: {config: {deadLetterSink: 'http://a b/'}}}}", "spec.backend.config.deadLetterSink"},
		{"no host", eventings, eventingHead + "{backend: {config: {deadLetterSink: 'http:///x'}}}}", "spec.backend.config.deadLetterSink"},
		{"what Kubernetes would expand", eventings, eventingHead + "{backend: {config: {deadLetterSink: 'http://a/$(POD_NAME)'}}}}", "spec.backend.config.deadLetterSink"},
		{"requests above limits", eventings, eventingHead + "{publisher: {resources: {requests: {cpu: 2}, limits: {cpu: 1}}}}}", "spec.publisher.resources"},
		{"negative cpu", eventings, eventingHead + "{controller: {resources: {limits: {cpu: -1}}}}}", "spec.controller.resources"},
		{"a resource that nobody knows", eventings, eventingHead + "{backend: {config: {natsResources: {limits: {bananas: 1}}}}}}", "spec.backend.config.natsResources"},
		{"a key of a label", eventings, eventingHead + "{labels: {'a b': c}}}", "spec.labels"},
		{"a value of a label", eventings, eventingHead + "{labels: {a: 'b c'}}}", "spec.labels.a"},
		{"a key of an annotation", eventings, eventingHead + "{annotations: {'a/b/c': d}}}", "spec.annotations"},
		{"a long annotation", eventings, eventingHead + "{annotations: {a: " + strings.Repeat("a", 300<<10) + "}}}", "spec.annotations"},
		{"a quantity that is none", eventings, eventingHead + "{backend: {config: {natsStreamMaxSize: '1e1.5'}}}}", "spec.backend.config.natsStreamMaxSize"},
		{"a class that is none", eventings, eventingHead + "{backend: {config: {natsStorage: {storageClassName: Fast}}}}}", "spec.backend.config.natsStorage.storageClassName"},
		{"more pods than int32", eventings, eventingHead + "{controller: {replicas: 99999999999}}}", "spec.controller.replicas"},
		{"fewer pods than the smallest number", eventings, eventingHead + "{controller: {maxReplicas: 1}}}", "replicas must not be greater than maxReplicas"},
		{"one number of pods, said twice", eventings, eventingHead + "{controller: {replicas: 1, maxReplicas: 1, resources: {}}}}", ""},
		{"pods for load", eventings, eventingHead + "{controller: {maxReplicas: 10}}}", ""},
		{"pods for load that have no limit", eventings, eventingHead + "{controller: {maxReplicas: 10, resources: {requests: {cpu: 1}}}}}", ""},
		{"pods for load that nobody can measure", eventings, eventingHead + "{controller: {maxReplicas: 10, resources: {limits: {memory: 1Gi, cpu: 0}}}}}", "maxReplicas needs resources.limits.cpu or resources.requests.cpu"},
		{"pods spread by hand", eventings, eventingHead + "{controller: {spread: None, priorityClassName: high}}}", ""},

		{"the usual", subscriptions, subscriptionHead + "{" + sink + ", source: commerce, types: [order.created.v1]}}", ""},
		{"https, no port, no path", subscriptions, subscriptionHead + "{sink: 'https://orders.default.svc.cluster.local', source: commerce, types: [order.created.v1]}}", ""},
		{"no sink", subscriptions, subscriptionHead + "{source: commerce, types: [order.created.v1]}}", "spec.sink: Required value"},
		{"a sink outside", subscriptions, subscriptionHead + "{sink: 'http://169.254.169.254/latest/meta-data', source: commerce, types: [order.created.v1]}}", "sink must be http(s)://<service>.<namespace>.svc.cluster.local[:port][/path]"},
		{"a sink that only begins well", subscriptions, subscriptionHead + "{sink: 'http://orders.default.svc.cluster.local.example.com', source: commerce, types: [order.created.v1]}}", "sink must be"},
		{"a sink with a user", subscriptions, subscriptionHead + "{sink: 'http://orders.default.svc.cluster.local:80@example.com/', source: commerce, types: [order.created.v1]}}", "sink must be"},
		{"a sink with two lines", subscriptions, subscriptionHead + `{sink: "http://example.com/\nhttp://orders.default.svc.cluster.local/", source: commerce, types: [order.created.v1]}}`, "sink must be"},
		{"no source", subscriptions, subscriptionHead + "{" + sink + ", types: [order.created.v1]}}", "spec.source: Required value"},
		{"an empty source", subscriptions, subscriptionHead + "{" + sink + ", source: '', types: [order.created.v1]}}", "source must not be empty with typeMatching standard"},
		{"whole names", subscriptions, subscriptionHead + "{" + sink + ", source: '', typeMatching: exact, types: [commerce.order.created.v1]}}", ""},
		{"a name that is not whole", subscriptions, subscriptionHead + "{" + sink + ", source: '', typeMatching: exact, types: [order.created]}}", "types must be whole names with typeMatching exact"},
		{"a name without a source", subscriptions, subscriptionHead + "{" + sink + ", source: '', typeMatching: exact, types: [.order.created]}}", "types must be whole names"},
		{"a former name with a source", subscriptions, subscriptionHead + "{" + sink + ", source: '', typeMatching: exact, types: [a.sap.kyma.custom.b.c.d.v1]}}", "types must be whole names"},
		{"no types", subscriptions, subscriptionHead + "{" + sink + ", source: commerce, types: []}}", "spec.types"},
		{"the same type twice", subscriptions, subscriptionHead + "{" + sink + ", source: commerce, types: [a.b, a.b]}}", "Duplicate value"},
		{"a type without a dot", subscriptions, subscriptionHead + "{" + sink + ", source: commerce, types: [created]}}", "spec.types[0]"},
		{"a type with a space", subscriptions, subscriptionHead + "{" + sink + ", source: commerce, types: ['order. created']}}", "spec.types[0]"},
		{"the prefix", subscriptions, subscriptionHead + "{" + sink + ", source: commerce, types: [sap.kyma.custom.commerce.order.created.v1]}}", "types must not begin with sap.kyma.custom"},
		{"the prefix, exactly", subscriptions, subscriptionHead + "{" + sink + ", source: commerce, typeMatching: exact, types: [sap.kyma.custom.commerce.order.created.v1]}}", ""},
		{"1000 at once", subscriptions, subscriptionHead + "{" + sink + ", source: commerce, types: [a.b], config: {maxInFlightMessages: '1000'}}}", ""},
		{"1001 at once", subscriptions, subscriptionHead + "{" + sink + ", source: commerce, types: [a.b], config: {maxInFlightMessages: '1001'}}}", "config.maxInFlightMessages must be a number from 1 to 1000, in quotes"},
		{"a sink for dead letters", subscriptions, subscriptionHead + "{" + sink + ", source: commerce, types: [a.b], deadLetterSink: 'http://letters.default.svc.cluster.local/x'}}", ""},
		{"dead letters anywhere", subscriptions, subscriptionHead + "{" + sink + ", source: commerce, types: [a.b], deadLetterSink: 'http://example.com'}}", "deadLetterSink must be http(s)://<service>"},
		{"none at once", subscriptions, subscriptionHead + "{" + sink + ", source: commerce, types: [a.b], config: {maxInFlightMessages: '0'}}}", "config.maxInFlightMessages must be"},
		{"a number that is none", subscriptions, subscriptionHead + "{" + sink + ", source: commerce, types: [a.b], config: {maxInFlightMessages: ten}}}", "config.maxInFlightMessages must be"},
		{"a port that is none", subscriptions, subscriptionHead + "{sink: 'http://orders.default.svc.cluster.local:99999', source: commerce, types: [a.b]}}", "spec.sink"},
		{"an escape that is none", subscriptions, subscriptionHead + "{sink: 'http://orders.default.svc.cluster.local/%zz', source: commerce, types: [a.b]}}", "spec.sink"},
		{"a source that is no URI reference", subscriptions, subscriptionHead + "{" + sink + ", source: 'commerce/%zz', types: [a.b]}}", "spec.source"},
		{"a source of more bytes than characters", subscriptions, subscriptionHead + "{" + sink + ", source: " + strings.Repeat("é", 300) + ", types: [a.b]}}", "spec.source"},
		{"another way of comparing", subscriptions, subscriptionHead + "{" + sink + ", source: commerce, typeMatching: prefix, types: [a.b]}}", `Unsupported value: "prefix"`},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			created, err := client(t).Resource(tc.resource).Namespace("default").Create(t.Context(), object(t, tc.object), strict)
			switch {
			case tc.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.refused != "" && err == nil:
				t.Errorf("accepted: %v", created.Object)
			case tc.refused != "" && !strings.Contains(err.Error(), tc.refused):
				t.Errorf("refused, but without %q: %v", tc.refused, err)
			}
		})
	}
}

// TestDefaults: an empty object is complete.
func TestDefaults(t *testing.T) {
	created, err := client(t).Resource(eventings).Namespace("default").Create(t.Context(), object(t, eventingHead+"{backend: {}}}"), strict)
	if err != nil {
		t.Fatal(err)
	}
	want := object(t, `
backend:
  type: NATS
  config:
    natsStreamStorageType: File
    natsStreamReplicas: 3
    natsStreamMaxSize: 700Mi
    natsMaxMsgsPerTopic: 1000000
    natsStorage: {size: 1Gi, storageClassName: "", retention: Retain, sync: Always}
    natsResources: {requests: {cpu: 40m, memory: 64Mi}, limits: {cpu: 500m, memory: 1Gi}}
    natsSpread: Preferred
    deadLetterAfter: 24h
    deadLetterMaxSize: 64Mi
    deadLetterMaxAge: 720h
    eventTypePrefix: sap.kyma.custom
publisher:
  replicas: {min: 2, max: 2}
  resources: {requests: {cpu: 40m, memory: 64Mi}, limits: {cpu: 500m, memory: 512Mi}}
  spread: Preferred
controller:
  replicas: 2
  resources: {requests: {cpu: 40m, memory: 64Mi}, limits: {cpu: 500m, memory: 512Mi}}
  spread: Preferred
logging: {logLevel: Info}
`).Object
	if diff := cmp.Diff(want, created.Object["spec"]); diff != "" {
		t.Errorf("an Eventing with an empty backend (-want +got):\n%s", diff)
	}
	created, err = client(t).Resource(subscriptions).Namespace("default").Create(t.Context(), object(t, subscriptionHead+"{"+sink+", source: commerce, types: [a.b]}}"), strict)
	if err != nil {
		t.Fatal(err)
	}
	wantSubscription := map[string]any{
		"sink": "http://orders.default.svc.cluster.local:8080/events", "source": "commerce", "typeMatching": "standard",
		"types": []any{"a.b"}, "config": map[string]any{"maxInFlightMessages": "10"},
	}
	if diff := cmp.Diff(wantSubscription, created.Object["spec"]); diff != "" {
		t.Errorf("a Subscription (-want +got):\n%s", diff)
	}
}

// TestChanges: what a stream cannot do is refused while NATS is the backend, and possible on the
// other one.
func TestChanges(t *testing.T) {
	const (
		nats   = "{backend: {type: NATS, config: {natsStreamReplicas: 1, natsStreamStorageType: File, natsStorage: {size: 2Gi, storageClassName: fast}}}}"
		memory = "{backend: {type: %, config: {natsStreamReplicas: 1, natsStreamStorageType: Memory, natsStorage: {size: 2Gi, storageClassName: fast}}}}"
	)
	for _, tc := range []struct {
		reason, from, to string
		refused          string
	}{
		{"the other spelling", nats, strings.Replace(nats, "NATS", "nats", 1), ""},
		{"another backend", nats, "{backend: {type: EventMesh}}", ""},
		{"no backend", nats, "{}", "backend cannot be removed once it is set"},
		{"an empty type", nats, "{backend: {type: ''}}", ""},
		{"a backend at last", "{}", nats, ""},
		{"more servers", nats, strings.Replace(nats, "Replicas: 1", "Replicas: 3", 1), "config.natsStreamReplicas cannot change while NATS is the backend: switch to EventMesh, change it, and switch back"},
		{"more servers and the other spelling", nats, strings.NewReplacer("Replicas: 1", "Replicas: 3", "NATS", "nats").Replace(nats), "config.natsStreamReplicas cannot change"},
		{"another storage", nats, strings.Replace(memory, "%", "NATS", 1), "config.natsStreamStorageType cannot change"},
		{"another storage on the other backend", strings.Replace(nats, "NATS", "EventMesh", 1), strings.Replace(memory, "%", "EventMesh", 1), ""},
		{"another storage with a switch", nats, strings.Replace(memory, "%", "EventMesh", 1), ""},
		{"a larger volume", nats, strings.Replace(nats, "2Gi", "3Gi", 1), "config.natsStorage.size cannot change"},
		{"the same size in other words", nats, strings.Replace(nats, "2Gi", "2048Mi", 1), ""},
		{"another class", nats, strings.Replace(nats, "fast", "slow", 1), "config.natsStorage.storageClassName cannot change"},
		{"a larger stream", nats, strings.Replace(nats, "natsStreamReplicas", "natsStreamMaxSize: 1Gi, natsStreamReplicas", 1), ""},
		{"another retention", nats, strings.Replace(nats, "size:", "retention: Delete, size:", 1), ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			c := client(t).Resource(eventings).Namespace("default")
			created, err := c.Create(t.Context(), object(t, eventingHead+tc.from+"}"), strict)
			if err != nil {
				t.Fatal(err)
			}
			changed := created.DeepCopy()
			changed.Object["spec"] = object(t, tc.to).Object
			_, err = c.Update(t.Context(), changed, metav1.UpdateOptions{})
			switch {
			case tc.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.refused != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.refused)):
				t.Errorf("want Invalid with %q, got %v", tc.refused, err)
			}
		})
	}
}

// TestTheUsersObject: the object of the proposal for the eventing operator is accepted as it stands
// there, in its namespace.
func TestTheUsersObject(t *testing.T) {
	c := client(t)
	namespace := object(t, "{apiVersion: v1, kind: Namespace, metadata: {name: kcp-system}}")
	if _, err := c.Resource(namespaces).Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	theirs := object(t, `
apiVersion: operator.kyma-project.io/v1alpha1
kind: Eventing
metadata:
  finalizers:
  - eventing-manager.kyma-project.io/deletion-hook
  labels:
    operator.kyma-project.io/kyma-name: eventing-sample
  name: default-kyma-eventing
  namespace: kcp-system
spec:
  backend:
    type: nats
status:
  state: Ready
`)
	created, err := c.Resource(eventings).Namespace("kcp-system").Create(t.Context(), theirs, strict)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{operatorv1alpha1.Finalizer}, created.GetFinalizers()); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	status := created.DeepCopy()
	if err := unstructured.SetNestedField(status.Object, "Ready", "status", "state"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Resource(eventings).Namespace("kcp-system").UpdateStatus(t.Context(), status, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
}

// TestSamples: the objects that the guides apply are taken as they are.
func TestSamples(t *testing.T) {
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	for file, gvr := range map[string]schema.GroupVersionResource{"eventing.yaml": eventings, "subscription.yaml": subscriptions} {
		raw, err := os.ReadFile(filepath.Join(root, "charts/eventing-manager/samples", file))
		if err != nil {
			t.Fatal(err)
		}
		sample := object(t, string(raw))
		sample.SetNamespace("default") // theirs are not in this cluster
		try := strict
		try.DryRun = []string{metav1.DryRunAll}
		if _, err := client(t).Resource(gvr).Namespace("default").Create(t.Context(), sample, try); err != nil {
			t.Error(err)
		}
	}
}
