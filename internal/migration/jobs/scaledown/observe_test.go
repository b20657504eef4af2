package scaledown

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/manifest"
)

// stored is a cluster that holds these objects, and serves core kinds and those that it
// holds. A kind of which it holds an Error cannot be listed. Each list but that of all hands
// objects over twice, as one that begins again does.
type stored []*unstructured.Unstructured

func (s stored) Served(_ context.Context, gk schema.GroupKind) (migration.Resource, bool, error) {
	served := slices.ContainsFunc(s, func(obj *unstructured.Unstructured) bool { return obj.GroupVersionKind().GroupKind() == gk })
	return migration.Resource{GroupVersionResource: gk.WithVersion("v1").GroupVersion().WithResource("x"), Kind: gk.Kind}, served, nil
}

func (s stored) Each(_ context.Context, r migration.Resource, namespace string, opts migration.ListOptions, visit func(*unstructured.Unstructured) error) error {
	selector, err := labels.Parse(opts.LabelSelector)
	if err != nil {
		return err
	}
	for _, obj := range slices.Concat(s, s) {
		if obj.GetKind() == "Error" && obj.GetName() == strings.ToLower(r.Kind) {
			return errors.New("refused")
		}
		if obj.GetKind() != r.Kind || namespace != "" && obj.GetNamespace() != namespace || !selector.Matches(labels.Set(obj.GetLabels())) {
			continue
		}
		obj = obj.DeepCopy()
		if opts.Trim != nil {
			opts.Trim(obj)
		}
		if err := visit(obj); err != nil {
			return err
		}
	}
	return nil
}

func (s stored) List(ctx context.Context, r migration.Resource, namespace string, opts migration.ListOptions) (all []*unstructured.Unstructured, err error) {
	err = s.Each(ctx, r, namespace, opts, func(obj *unstructured.Unstructured) error {
		if !slices.ContainsFunc(all, func(have *unstructured.Unstructured) bool { return have.GetName() == obj.GetName() }) {
			all = append(all, obj)
		}
		return nil
	})
	return all, err
}

func (s stored) Get(_ context.Context, ref migration.Ref) (*unstructured.Unstructured, error) {
	for _, obj := range s {
		if obj.GetKind() == "Error" && obj.GetName() == strings.ToLower(ref.Kind) {
			return nil, errors.New("refused")
		}
		if obj.GetKind() == ref.Kind && obj.GetName() == ref.Name {
			return obj, nil
		}
	}
	return nil, nil
}

// TestObserve reads a cluster through the job's own reading and trimming.
func TestObserve(t *testing.T) {
	const publisher = "{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: kyma-system, name: event-bus-event-publish-service}, spec: {replicas: 1}}"
	service := func(args, status string) *unstructured.Unstructured {
		return manifest.Object(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: kyma-integration, name: shop-event-service, generation: 1},
  spec: {template: {spec: {containers: [{name: shop-event-service, args: ["`+args+`"]}]}}}, status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1`+status+`}}`)
	}
	const onMesh, available = "--eventMeshURL=http://shop.kyma-integration", ", availableReplicas: 1"
	bus := manifest.Object(t, publisher)
	type seen struct {
		Unswitched map[string]string
		Pods       []string // of the publisher
	}
	for _, tc := range []struct {
		reason string
		s      stored
		want   seen
	}{
		{"it posts to its own adapter", stored{bus, service(onMesh, available)}, seen{}},
		{
			"its URL is empty (fails on the commit before: its name was taken for a proof)", stored{bus, service("--eventMeshURL=", available)},
			seen{Unswitched: map[string]string{"shop": "it carries an empty --eventMeshURL, not http://shop.kyma-integration"}},
		},
		{
			"its URL is that of another source (fails on the commit before)", stored{bus, service("--eventMeshURL=http://crm.kyma-integration", available)},
			seen{Unswitched: map[string]string{"shop": `it posts to the host "crm.kyma-integration" (--eventMeshURL), not to http://shop.kyma-integration`}},
		},
		{
			"its new pod takes nothing yet (fails on the commit before)", stored{bus, service(onMesh, "")},
			seen{Unswitched: map[string]string{"shop": "it is being updated: 0 of 1 pods are available"}},
		},
		{
			"a former pod outlives its Deployment and its label",
			stored{bus, manifest.Object(t, "{apiVersion: v1, kind: Pod, metadata: {namespace: kyma-integration, name: old}, spec: {containers: [{name: shop-event-service}]}}")},
			seen{Unswitched: map[string]string{"shop": "Pod kyma-integration/old does not carry --eventMeshURL, so it posts to the Event Bus"}},
		},
		{
			"a pod of the publisher that lost its labels and its owner (fails on the commit before)",
			stored{bus, manifest.Object(t, "{apiVersion: v1, kind: Pod, metadata: {namespace: kyma-system, name: p}, spec: {containers: [{name: event-publish-service}]}}")},
			seen{Pods: []string{"p"}},
		},
	} {
		s, err := observe(t.Context(), tc.s, New().options, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := seen{Pods: s.bus[0].pods}
		for _, e := range s.eventServices {
			if got.Unswitched == nil {
				got.Unswitched = map[string]string{}
			}
			got.Unswitched[e.application] = e.why.About(eventpath.Deployment, e.namespace, kyma.EventServiceName(e.application))
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestObserveMore reads what else the job decides over, each once.
func TestObserveMore(t *testing.T) {
	const pub, ctl = "event-bus-event-publish-service", "event-bus-subscription-controller"
	deployment := func(name, metadata, spec string) *unstructured.Unstructured {
		return manifest.Object(t, fmt.Sprintf("{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: kyma-system, name: %s%s}, spec: {%s}}", name, metadata, spec))
	}
	up, down := deployment(pub, "", "replicas: 1"), deployment(pub, "", "replicas: 0")
	service := func(metadata string) *unstructured.Unstructured {
		return manifest.Object(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: kyma-integration, name: shop-event-service"+metadata+"}}")
	}
	application := func(metadata, spec string) *unstructured.Unstructured {
		return manifest.Object(t, fmt.Sprintf("{apiVersion: applicationconnector.kyma-project.io/v1, kind: Application, metadata: {name: shop%s}, spec: {%s}}", metadata, spec))
	}
	subscription := func(namespace, name, metadata, spec string) *unstructured.Unstructured {
		return manifest.Object(t, fmt.Sprintf("{apiVersion: eventing.kyma-project.io/v1, kind: Subscription, metadata: {namespace: %s, name: %s%s}, spec: {%s}}", namespace, name, metadata, spec))
	}
	activation := func(namespace, name, metadata string) *unstructured.Unstructured {
		return manifest.Object(t, fmt.Sprintf("{apiVersion: applicationconnector.kyma-project.io/v1, kind: EventActivation, metadata: {namespace: %s, name: %s%s}}", namespace, name, metadata))
	}
	autoscaler := func(name, kind, target string) *unstructured.Unstructured {
		return manifest.Object(t, fmt.Sprintf("{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {namespace: kyma-system, name: %s}, spec: {scaleTargetRef: {kind: %s, name: %s}}}", name, kind, target))
	}
	job := func(name, status string) *unstructured.Unstructured {
		return manifest.Object(t, fmt.Sprintf("{apiVersion: batch/v1, kind: Job, metadata: {namespace: kyma-system, name: %s}, status: {%s}}", name, status))
	}
	const skip, finalizer = `, labels: {eventmesh-migration.kyma-project.io/skip: "true"}`, ", finalizers: [eventactivation.finalizers.kyma-project.io]"
	const deleting = `, deletionTimestamp: "2020-03-04T00:00:00Z", finalizers: [f]`
	for _, tc := range []struct {
		reason string
		s      stored
		of     func(*snapshot) any
		want   any
	}{
		{
			"the two Deployments, and no other", stored{up, deployment(ctl, "", "paused: false"), deployment("other", "", "replicas: 9")},
			func(s *snapshot) any {
				return []any{s.bus[0].ref.Name, s.bus[0].replicas(), s.bus[1].ref.Name, s.bus[1].replicas()}
			},
			[]any{pub, int64(1), ctl, int64(1)},
		},
		{"one that is being deleted is none", stored{deployment(pub, deleting, "replicas: 3")}, func(s *snapshot) any { return s.bus[0].object == nil && s.down() }, true},
		{"Kyma's own migration, while it runs", stored{down, job("b-mesh-namespaces-migration", ""), job("a-mesh-namespaces-migration", ""), job("other", "")}, func(s *snapshot) any { return s.migrations }, []string{"a-mesh-namespaces-migration", "b-mesh-namespaces-migration"}},
		{
			"an event-service without its Application", stored{up, service("")}, func(s *snapshot) any { return flags(s) }, "shop: orphan",
		},
		{"one with it", stored{up, service(""), application("", "")}, func(s *snapshot) any { return flags(s) }, "shop:"},
		{"an Application that was opted out", stored{up, service(""), application(skip, "")}, func(s *snapshot) any { return flags(s) }, "shop: opted out"},
		{"a Deployment that was", stored{up, service(skip), application("", "")}, func(s *snapshot) any { return flags(s) }, "shop: opted out"},
		{"an Application whose release is not upgraded", stored{up, service(""), application("", "skipInstallation: true")}, func(s *snapshot) any { return flags(s) }, "shop: skips"},
		{"nothing is read of event-services once the Event Bus is down", stored{down, service("")}, func(s *snapshot) any { return flags(s) }, ""},
		{
			"Subscriptions of the Event Bus, by name", stored{up, subscription("b", "s1", "", "source_id: x"), subscription("a", "s2", deleting, "source_id: x"), subscription("a", "newer", "", "sink: x"), subscription("a", "s3", skip, "source_id: x"), subscription("kube-system", "s4", "", "source_id: x")},
			func(s *snapshot) any { return fmt.Sprint(s.subscriptions) }, "[{a/s2 false true} {a/s3 true false} {b/s1 false false} {kube-system/s4 true false}]",
		},
		{
			"of a namespace that was left out", stored{up, subscription("a", "s1", "", "source_id: x"), manifest.Object(t, `{apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {eventmesh-migration.kyma-project.io/skip: "true"}}}`)},
			func(s *snapshot) any { return fmt.Sprint(s.subscriptions) }, "[{a/s1 true false}]",
		},
		{
			"of one that was excluded", stored{up, subscription("excluded", "s1", "", "source_id: x")},
			func(s *snapshot) any { return fmt.Sprint(s.subscriptions) }, "[{excluded/s1 true false}]",
		},
		{
			"EventActivations with the finalizer, also when the Event Bus is down", stored{down, activation("b", "s1", finalizer), activation("a", "s2", finalizer), activation("a", "free", "")},
			func(s *snapshot) any { return fmt.Sprintf("%s %v", activationNames(s), s.excused) }, "a/s2 b/s1 map[]",
		},
		{
			"those that are no part of the migration", stored{down, activation("kube-system", "s1", finalizer), activation("a", "s2", `, labels: {eventmesh-migration.kyma-project.io/skip: "true"}`+finalizer)},
			func(s *snapshot) any { return fmt.Sprintf("%s %v", activationNames(s), s.excused) }, " map[a/s2:true kube-system/s1:true]",
		},
		{
			"autoscalers of it", stored{up, autoscaler("a", "Deployment", pub), autoscaler("other", "Deployment", "x"), autoscaler("set", "StatefulSet", pub)},
			func(s *snapshot) any { return [][]string{s.bus[0].autoscalers, s.bus[1].autoscalers} }, [][]string{{"a"}, nil},
		},
	} {
		s, err := observe(t.Context(), tc.s, New().options, []string{"excluded"})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, tc.of(s)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
	for _, kind := range []string{"deployment", "pod", "job", "subscription", "application", "namespace", "horizontalpodautoscaler", "eventactivation"} {
		refused := manifest.Object(t, "{apiVersion: v1, kind: Error, metadata: {name: "+kind+"}}")
		cluster := stored{
			refused, up, service(""), application("", ""), subscription("a", "s1", "", "source_id: x"), activation("a", "s2", finalizer), autoscaler("a", "Deployment", pub),
		}
		if _, err := observe(t.Context(), cluster, New().options, nil); err == nil {
			t.Errorf("%s cannot be read, and that is no error", kind)
		}
	}
}

// flags are the event-services that are not switched, in words.
func flags(s *snapshot) string {
	var all []string
	for _, e := range s.eventServices {
		text := e.application + ":"
		for flag, set := range map[string]bool{" opted out": e.optedOut, " skips": e.skips, " orphan": e.orphan} {
			if set {
				text += flag
			}
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func activationNames(s *snapshot) string {
	var all []string
	for _, obj := range s.activations {
		all = append(all, obj.GetNamespace()+"/"+obj.GetName())
	}
	return strings.Join(all, " ")
}
