package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// samples holds an object of every kind as Kyma writes it; %[1]s is the version of Knative.
const samples = `
applications: {apiVersion: applicationconnector.kyma-project.io/v1alpha1, kind: Application, metadata: {name: shop}, spec: {description: d, labels: null, accessLabel: shop, services: [{id: 6b1b5a4e-0001-4d5c-8f0a-000000000001, name: orders, displayName: Orders, providerDisplayName: SAP, description: d, entries: [{type: Events}]}]}}
applicationmappings: {apiVersion: applicationconnector.kyma-project.io/v1alpha1, kind: ApplicationMapping, metadata: {name: shop}, spec: {services: null}}
eventactivations: {apiVersion: applicationconnector.kyma-project.io/v1alpha1, kind: EventActivation, metadata: {name: 6b1b5a4e-0001-4d5c-8f0a-000000000001}, spec: {displayName: Orders, sourceId: shop}}
subscriptions: {apiVersion: eventing.kyma-project.io/v1alpha1, kind: Subscription, metadata: {name: lambda-fn-order.created-v1}, spec: {endpoint: "http://fn.default:8080/", include_subscription_name_header: true, event_type: order.created, event_type_version: v1, source_id: shop}}
httpsources: {apiVersion: sources.kyma-project.io/v1alpha1, kind: HTTPSource, metadata: {name: shop}, spec: {source: shop}}
channels: {apiVersion: messaging.knative.dev/%[1]s, kind: Channel, metadata: {name: shop, labels: {application-name: shop}}}
kn/subscriptions: {apiVersion: messaging.knative.dev/%[1]s, kind: Subscription, metadata: {name: brokersub-x}, spec: {channel: {apiVersion: messaging.knative.dev/%[1]s, kind: Channel, name: shop}, subscriber: {uri: "http://default-broker.default"}}}
brokers: {apiVersion: eventing.knative.dev/%[1]s, kind: Broker, metadata: {name: default}}
triggers: {apiVersion: eventing.knative.dev/%[1]s, kind: Trigger, metadata: {name: t}, spec: {filter: {attributes: {type: order.created, source: shop, eventtypeversion: v1}}, subscriber: {uri: "http://fn.default:8080/"}}}
services: {apiVersion: serving.knative.dev/%[1]s, kind: Service, metadata: {name: shop}, spec: {template: {spec: {containers: [{image: adapter}]}}}}
clusterservicebrokers: {apiVersion: servicecatalog.k8s.io/v1beta1, kind: ClusterServiceBroker, metadata: {name: b}, spec: {url: "http://b"}}
clusterserviceclasses: {apiVersion: servicecatalog.k8s.io/v1beta1, kind: ClusterServiceClass, metadata: {name: c}, spec: {externalName: orders, externalID: c, clusterServiceBrokerName: b, bindable: true}}
clusterserviceplans: {apiVersion: servicecatalog.k8s.io/v1beta1, kind: ClusterServicePlan, metadata: {name: c-plan}, spec: {externalName: default, externalID: c-plan, clusterServiceClassRef: {name: c}}}
servicebrokers: {apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServiceBroker, metadata: {name: application-broker}, spec: {url: "http://b/default"}}
serviceclasses: {apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServiceClass, metadata: {name: c}, spec: {externalName: orders, externalID: c, serviceBrokerName: application-broker, bindable: true}}
serviceplans: {apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServicePlan, metadata: {name: c-plan}, spec: {externalName: default, externalID: c-plan, serviceClassRef: {name: c}}}
serviceinstances: {apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServiceInstance, metadata: {name: orders}, spec: {serviceClassExternalName: orders, servicePlanExternalName: default}}
servicebindings: {apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServiceBinding, metadata: {name: orders}, spec: {instanceRef: {name: orders}, secretName: orders}}
servicebindingusages: {apiVersion: servicecatalog.kyma-project.io/v1alpha1, kind: ServiceBindingUsage, metadata: {name: orders}, spec: {serviceBindingRef: {name: orders}, usedBy: {kind: deployment, name: fn}}}
podpresets: {apiVersion: settings.svcat.k8s.io/v1alpha1, kind: PodPreset, metadata: {name: orders}, spec: {selector: {matchLabels: {use: orders}}, envFrom: [{secretRef: {name: orders}}]}}
policies: {apiVersion: authentication.istio.io/v1alpha1, kind: Policy, metadata: {name: default-broker}, spec: {targets: [{name: default-broker}], peers: [{mtls: {mode: PERMISSIVE}}]}}
`

// started is the control plane all tests of this package share: to start one costs seconds.
var started *ControlPlane

func TestMain(m *testing.M) {
	Main(m, AlsoShort(), After(func() error {
		if started == nil {
			return nil
		}
		return started.Stop()
	}))
}

func controlPlane(t *testing.T) *ControlPlane {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a Kubernetes control plane, which -short leaves out")
	}
	if started == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
		defer cancel()
		var err error
		if started, err = Start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return started
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func client(t *testing.T, c *ControlPlane, userAgent string) dynamic.Interface {
	t.Helper()
	config := c.Config()
	config.UserAgent = userAgent
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestEveryKindInBothVersionsOfKnative(t *testing.T) {
	c := controlPlane(t)
	if !c.Own() {
		t.Skip("would remove CRDs of a cluster that is not this test's own")
	}
	for _, version := range []KnativeVersion{KnativeV1alpha1, KnativeV1} {
		t.Run(string(version), func(t *testing.T) {
			ctx := testContext(t)
			begin := time.Now()
			if err := c.InstallCRDs(ctx, version); err != nil {
				t.Fatal(err)
			}
			t.Logf("installed %d CRDs in %s", len(CRDNames()), time.Since(begin))
			if err := c.InstallCRDs(ctx, version); err != nil {
				t.Errorf("installing again what is there must be a no-op, got: %v", err)
			}

			objects := map[string]map[string]any{}
			if err := yaml.Unmarshal([]byte(strings.ReplaceAll(samples, "%[1]s", string(version))), &objects); err != nil {
				t.Fatal(err)
			}
			if len(objects) != len(CRDNames()) {
				t.Errorf("%d samples for %d kinds", len(objects), len(CRDNames()))
			}
			d := client(t, c, "every-kind")
			for key, content := range objects {
				object := &unstructured.Unstructured{Object: content}
				gvr := object.GroupVersionKind().GroupVersion().WithResource(key[strings.Index(key, "/")+1:])
				var resource dynamic.ResourceInterface = d.Resource(gvr).Namespace("default")
				if object.GetKind() == "Application" || strings.HasPrefix(object.GetKind(), "Cluster") {
					resource = d.Resource(gvr)
				}
				created, err := resource.Create(ctx, object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
				if err != nil {
					t.Errorf("cannot create %s: %v", object.GetKind(), err)
					continue
				}
				if !withStatus[object.GetKind()] {
					continue
				}
				created.Object["status"] = map[string]any{
					"SinkURI":            "http://shop-kn-channel",
					"observedGeneration": int64(1),
					"conditions":         []any{map[string]any{"type": "Ready", "status": "True", "reason": "Because"}},
				}
				updated, err := resource.UpdateStatus(ctx, created, metav1.UpdateOptions{})
				if err != nil {
					t.Errorf("cannot update status of %s: %v", object.GetKind(), err)
					continue
				}
				conditions, _, _ := unstructured.NestedSlice(updated.Object, "status", "conditions")
				generation, _, _ := unstructured.NestedInt64(updated.Object, "status", "observedGeneration")
				sink, _, _ := unstructured.NestedString(updated.Object, "status", "SinkURI")
				if len(conditions) != 1 || generation != 1 || sink == "" {
					t.Errorf("%s lost parts of its status: %v", object.GetKind(), updated.Object["status"])
				}
			}
			if version == KnativeV1alpha1 {
				testLegacyConditions(t, ctx, d)
			}
			if c.CRDs().Version == "v1" {
				testTriggerRules(t, ctx, d, string(version))
			} else {
				testNoSchema(t, ctx, d, string(version))
			}

			other := KnativeV1
			if version == KnativeV1 {
				other = KnativeV1alpha1
			}
			if err := c.InstallCRDs(ctx, other); err == nil {
				t.Errorf("installing %s over %s must be refused", other, version)
			}
			for _, name := range CRDNames() {
				if err := c.RemoveCRD(ctx, name); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

var withStatus = map[string]bool{"HTTPSource": true, "Channel": true, "Broker": true, "Trigger": true, "Service": true}

// testLegacyConditions holds that the snake case of Kyma's own conditions survives.
func testLegacyConditions(t *testing.T, ctx context.Context, d dynamic.Interface) {
	t.Helper()
	resource := d.Resource(schema.GroupVersionResource{Group: "eventing.kyma-project.io", Version: "v1alpha1", Resource: "subscriptions"}).Namespace("default")
	sub, err := resource.Get(ctx, "lambda-fn-order.created-v1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sub.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "is-ready", "status": "True", "last_transition_time": "2020-03-24T10:00:00Z"}}}
	sub, err = resource.UpdateStatus(ctx, sub, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	conditions, _, _ := unstructured.NestedSlice(sub.Object, "status", "conditions")
	if len(conditions) != 1 || conditions[0].(map[string]any)["last_transition_time"] == nil {
		t.Errorf("Subscription lost its conditions: %v", sub.Object["status"])
	}
}

// testNoSchema holds that a CRD of v1beta1 neither prunes nor defaults, as on the clusters of Kyma
// 1.10.
func testNoSchema(t *testing.T, ctx context.Context, d dynamic.Interface, version string) {
	t.Helper()
	resource := d.Resource(schema.GroupVersionResource{Group: "eventing.knative.dev", Version: version, Resource: "triggers"}).Namespace("default")
	trigger, err := resource.Get(ctx, "t", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if broker, found, _ := unstructured.NestedString(trigger.Object, "spec", "broker"); found {
		t.Errorf("spec.broker = %q, want none: only Knative's webhook fills it in", broker)
	}
	trigger.Object["spec"].(map[string]any)["unknown"] = map[string]any{"deep": "kept"}
	if trigger, err = resource.Update(ctx, trigger, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if deep, _, _ := unstructured.NestedString(trigger.Object, "spec", "unknown", "deep"); deep != "kept" {
		t.Errorf("it was pruned: %v", trigger.Object["spec"])
	}
}

// testTriggerRules holds that the schema does what Knative's webhook would.
func testTriggerRules(t *testing.T, ctx context.Context, d dynamic.Interface, version string) {
	t.Helper()
	resource := d.Resource(schema.GroupVersionResource{Group: "eventing.knative.dev", Version: version, Resource: "triggers"}).Namespace("default")
	trigger, err := resource.Get(ctx, "t", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if broker, _, _ := unstructured.NestedString(trigger.Object, "spec", "broker"); broker != "default" {
		t.Errorf("spec.broker = %q, want the default", broker)
	}
	for reason, edit := range map[string]func(spec map[string]any){
		"the broker is immutable":          func(spec map[string]any) { spec["broker"] = "other" },
		"a subscriber needs a destination": func(spec map[string]any) { spec["subscriber"] = map[string]any{} },
		"a uri alone must be absolute":     func(spec map[string]any) { spec["subscriber"] = map[string]any{"uri": "/path"} },
		"attribute names are lower case":   func(spec map[string]any) { spec["filter"] = attributes("eventTypeVersion") },
		"an absolute uri excludes a ref": func(spec map[string]any) {
			spec["subscriber"].(map[string]any)["ref"] = map[string]any{"kind": "Service", "name": "x"}
		},
		"attributes, if given, are not none": func(spec map[string]any) { spec["filter"] = map[string]any{"attributes": map[string]any{}} },
	} {
		bad := trigger.DeepCopy()
		edit(bad.Object["spec"].(map[string]any))
		if _, err := resource.Update(ctx, bad, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("%s: got error %v, want Invalid", reason, err)
		}
	}
}

func attributes(name string) map[string]any {
	return map[string]any{"attributes": map[string]any{name: "x"}}
}

func TestMissingKinds(t *testing.T) {
	c := controlPlane(t)
	if !c.Own() {
		t.Skip("needs a cluster without CRDs")
	}
	ctx := testContext(t)
	const triggers, brokers = "triggers.eventing.knative.dev", "brokers.eventing.knative.dev"
	if err := c.InstallCRDs(ctx, KnativeV1, Kinds(triggers, brokers), Except(brokers)); err != nil {
		t.Fatal(err)
	}
	d := client(t, c, "missing-kinds")
	eventing := schema.GroupVersion{Group: "eventing.knative.dev", Version: "v1"}
	if _, err := d.Resource(eventing.WithResource("triggers")).List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("cannot list Triggers: %v", err)
	}
	if _, err := d.Resource(eventing.WithResource("brokers")).List(ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("listing Brokers: got error %v, want NotFound", err)
	}
	if err := c.RemoveCRD(ctx, triggers); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Resource(eventing.WithResource("triggers")).List(ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("listing Triggers: got error %v, want NotFound", err)
	}
}

func TestGarbageCollectorKnowsNewKinds(t *testing.T) {
	c := controlPlane(t)
	if !c.Own() {
		t.Skip("how soon is up to the cluster")
	}
	ctx := testContext(t)
	const name = "eventactivations.applicationconnector.kyma-project.io"
	if err := c.InstallCRDs(ctx, KnativeV1, Kinds(name)); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	d := client(t, c, "garbage")
	owner, err := d.Resource(configMaps).Namespace("default").Create(ctx, configMap("owner"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	activations := d.Resource(schema.GroupVersionResource{Group: "applicationconnector.kyma-project.io", Version: "v1alpha1", Resource: "eventactivations"}).Namespace("default")
	owned := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "applicationconnector.kyma-project.io/v1alpha1",
		"kind":       "EventActivation",
		"metadata":   map[string]any{"name": "owned"},
		"spec":       map[string]any{"sourceId": "shop"},
	}}
	owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.GetUID()}})
	if _, err := activations.Create(ctx, owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := d.Resource(configMaps).Namespace("default").Delete(ctx, "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// Less than the half minute it would take.
	poll.Until(t, 20*time.Second, "the owned object is collected", func(ctx context.Context) error {
		_, err := activations.Get(ctx, "owned", metav1.GetOptions{})
		return poll.Gone(err)
	})
	t.Logf("collected %s after the CRD was installed", time.Since(begin))
	if err := c.RemoveCRD(ctx, name); err != nil {
		t.Fatal(err)
	}
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func configMap(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name},
	}}
}

func TestAuditCountsExactly(t *testing.T) {
	c := controlPlane(t)
	ctx := testContext(t)
	if _, err := c.Mark(ctx); errors.Is(err, ErrNoAudit) {
		t.Skip(err)
	}
	const workers, each = 8, 25
	d := client(t, c, "counted/1")
	resource := d.Resource(configMaps).Namespace("default")
	// Requests on either side of the marks must not be counted.
	if _, err := resource.List(ctx, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	before, err := resource.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mark, err := c.Mark(ctx)
	if err != nil {
		t.Fatal(err)
	}
	before.Stop()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				name := fmt.Sprintf("counted-%d-%d", w, i)
				if _, err := resource.Create(ctx, configMap(name), metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
				if err := resource.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	open, err := resource.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer open.Stop()
	if _, err := resource.Get(ctx, "absent", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}

	requests, err := c.Requests(ctx, mark, By("counted/"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, r := range requests {
		got[fmt.Sprintf("%s %s %d", r.Verb, r.Resource, r.Code)]++
	}
	want := map[string]int{
		"create configmaps 201": workers * each,
		"delete configmaps 200": workers * each,
		"watch configmaps 200":  1,
		"get configmaps 404":    1,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	writes, err := c.Requests(ctx, mark, All(By("counted/"), IsWrite))
	if err != nil {
		t.Fatal(err)
	}
	if len(writes) != 2*workers*each {
		t.Errorf("counted %d writes, want %d", len(writes), 2*workers*each)
	}
	if i := slices.IndexFunc(writes, func(r Request) bool { return r.Namespace != "default" || r.Name == "" || r.User != "admin" }); i >= 0 && c.Own() {
		t.Errorf("a write without its namespace, name or user: %+v", writes[i])
	}
}

func TestUserWithoutAVerb(t *testing.T) {
	c := controlPlane(t)
	ctx := testContext(t)
	kubeconfig, err := c.User(ctx, "no-delete", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "get", "list"}})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	resource := d.Resource(configMaps).Namespace("default")
	if _, err := resource.Create(ctx, configMap("kept"), metav1.CreateOptions{}); err != nil {
		t.Errorf("the user may create: %v", err)
	}
	if err := resource.Delete(ctx, "kept", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deleting without the verb: got error %v, want Forbidden", err)
	}
	if err := client(t, c, "cleanup").Resource(configMaps).Namespace("default").Delete(ctx, "kept", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// TestKubernetesOfTheEnvironment holds that the variable which chooses the Kubernetes does: a run
// of the tests on an old one that is a new one would prove nothing.
func TestKubernetesOfTheEnvironment(t *testing.T) {
	c := controlPlane(t)
	if !c.Own() {
		t.Skip("it has the Kubernetes that it has")
	}
	if want := os.Getenv("EVENTMESH_TEST_KUBERNETES"); want != "" && fmt.Sprintf("1.%d", c.Minor) != want {
		t.Errorf("this is Kubernetes 1.%d, want %s", c.Minor, want)
	}
	if want := os.Getenv("EVENTMESH_TEST_KUBERNETES"); want == "" && c.Lacks("the newest Kubernetes", 36) != nil {
		t.Error(c.Lacks("the newest Kubernetes", 36))
	}
	if err := c.Lacks("something of this very one", c.Minor); err != nil {
		t.Error(err)
	}
	if err := c.Lacks("something newer", c.Minor+1); err == nil {
		t.Error("an older one lacks nothing")
	}
}

func TestIsWrite(t *testing.T) {
	for reason, tc := range map[string]struct {
		request Request
		want    bool
	}{
		"reading changes nothing":                   {Request{Verb: "list", Resource: "pods"}, false},
		"watching changes nothing":                  {Request{Verb: "watch", Resource: "pods"}, false},
		"creating does":                             {Request{Verb: "create", Resource: "pods"}, true},
		"deleting a collection does":                {Request{Verb: "deletecollection", Resource: "pods"}, true},
		"asking for one's permissions does not":     {Request{Verb: "create", Resource: "authorization.k8s.io/selfsubjectaccessreviews"}, false},
		"a group that looks like it is not excused": {Request{Verb: "create", Resource: "x/selfsubjectaccessreviews"}, true},
	} {
		if got := IsWrite(tc.request); got != tc.want {
			t.Errorf("%s: got %t, want %t", reason, got, tc.want)
		}
	}
}
