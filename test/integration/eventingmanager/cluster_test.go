package eventingmanager_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/test/node"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// crd is a minimal definition.
func crd(group, kind, plural, version string) string {
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[3]s.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: %[2]s, plural: %[3]s, singular: %[4]s, listKind: %[2]sList}
  versions:
  - {name: %[5]s, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, group, kind, plural, strings.ToLower(kind), version)
}

func (s *site) define(text string) string {
	s.t.Helper()
	u := object(s.t, text)
	_, err := s.client.Resource(crds).Create(s.t.Context(), u, metav1.CreateOptions{})
	s.check(err)
	if u.GetName() != subscriptions.GroupResource().String() { // other tests need ours
		s.t.Cleanup(func() { s.undefine(u.GetName()) })
	}
	return u.GetName()
}

func (s *site) undefine(name string) {
	s.t.Helper()
	err := s.client.Resource(crds).Delete(context.WithoutCancel(s.t.Context()), name, metav1.DeleteOptions{})
	if err != nil && poll.Gone(err) != nil {
		s.t.Error(err)
	}
}

// TestSecondEventing: one is served, the oldest. When it is gone, the next one is.
func TestSecondEventing(t *testing.T) {
	s := newSite(t, "first")
	s.start()
	s.installed()
	time.Sleep(1100 * time.Millisecond) // times of creation have seconds
	s.create(eventings, strings.Replace(one, "name: eventing", "name: eventing, namespace: default", 1))
	second := s.awaitOf("default", "eventing", 5*time.Second, operatorv1alpha1.StateWarning, operatorv1alpha1.ConditionServed, operatorv1alpha1.ReasonAnotherCRServed)
	if c := meta.FindStatusCondition(second.Status.Conditions, operatorv1alpha1.ConditionServed); len(second.Finalizers) > 0 || !strings.Contains(c.Message, "first/eventing") {
		t.Errorf("finalizers %v, condition %+v", second.Finalizers, c)
	}
	s.await(5*time.Second, operatorv1alpha1.StateReady, "", "")
	s.remove(metav1.DeletePropagationBackground)
	s.gone(time.Minute)
	poll.Until(t, 5*time.Second, "the second one is served", func(context.Context) error {
		e, err := s.eventing("default", "eventing")
		if err == nil && !meta.IsStatusConditionTrue(e.Status.Conditions, operatorv1alpha1.ConditionServed) {
			err = fmt.Errorf("%+v", e.Status)
		}
		return err
	})
	s.awaitOf("default", "eventing", time.Minute, operatorv1alpha1.StateReady, "", "")
}

// TestDependencies: what others install comes and goes, and the state follows within seconds,
// without a restart.
func TestDependencies(t *testing.T) {
	const condition, features = operatorv1alpha1.ConditionDependenciesAvailable, operatorv1alpha1.ConditionOptionalFeatures
	const quick = 5 * time.Second
	s := newSite(t, "dependencies")
	s.check(s.core.StorageV1().StorageClasses().Delete(t.Context(), "standard", metav1.DeleteOptions{}))
	s.start("--dependency-timeout", "6s", "--backend-timeout", "1m")
	s.create(eventings, one)
	s.await(20*time.Second, operatorv1alpha1.StateError, condition, operatorv1alpha1.ReasonMissing)
	if left := s.left(true); len(left) > 0 {
		t.Errorf("installed without a StorageClass: %v", left)
	}
	_, err := s.core.StorageV1().StorageClasses().Create(t.Context(), node.Class("standard", true, storagev1.VolumeBindingWaitForFirstConsumer), metav1.CreateOptions{})
	s.check(err)
	s.awaitCondition(quick, condition, true, operatorv1alpha1.ReasonAvailable)
	s.await(time.Minute, operatorv1alpha1.StateReady, "", "")

	// Optional kinds: without them all else works; with them their objects are there; when they go,
	// nothing fails.
	s.awaitCondition(quick, features, false, operatorv1alpha1.ReasonSkipped)
	monitors := s.define(crd("monitoring.coreos.com", "ServiceMonitor", "servicemonitors", "v1"))
	peers := s.define(crd("security.istio.io", "PeerAuthentication", "peerauthentications", "v1"))
	s.awaitCondition(quick, features, true, operatorv1alpha1.ReasonAllApplied)
	authentications := schema.GroupVersionResource{Group: "security.istio.io", Version: "v1", Resource: "peerauthentications"}
	for name, gvr := range map[string]schema.GroupVersionResource{
		"eventing":            {Group: "monitoring.coreos.com", Version: "v1", Resource: "servicemonitors"},
		"eventing-nats":       authentications,
		"eventing-controller": authentications,
	} {
		poll.Until(t, quick, gvr.Resource+" is created", func(context.Context) error { _, err := s.get(gvr, name); return err })
		s.delete(gvr, name)
		poll.Until(t, quick, gvr.Resource+" is created again", func(context.Context) error { _, err := s.get(gvr, name); return err })
	}
	s.undefine(monitors)
	s.undefine(peers)
	s.awaitCondition(quick, features, false, operatorv1alpha1.ReasonSkipped)
	s.await(quick, operatorv1alpha1.StateReady, "", "")

	// A required API of the active backend goes and comes: an error at once, and nothing is
	// removed.
	definition, err := s.client.Resource(crds).Get(t.Context(), "subscriptions.eventing.kyma-project.io", metav1.GetOptions{})
	s.check(err)
	s.undefine(definition.GetName())
	s.await(quick, operatorv1alpha1.StateError, condition, operatorv1alpha1.ReasonMissing)
	if _, err := s.get(pods, "eventing-nats-0"); err != nil {
		t.Errorf("NATS was removed: %v", err)
	}
	old := s.define(crd("eventing.kyma-project.io", "Subscription", "subscriptions", "v1alpha1"))
	s.await(quick, operatorv1alpha1.StateError, condition, operatorv1alpha1.ReasonCRDConflict)
	s.undefine(old)
	poll.Until(t, time.Minute, "the definition is gone", func(context.Context) error {
		_, err := s.client.Resource(crds).Get(t.Context(), old, metav1.GetOptions{})
		return poll.Gone(err)
	})
	foreign := s.define(crd("eventing.kyma-project.io", "Subscription", "subscriptions", "v1alpha2"))
	s.await(quick, operatorv1alpha1.StateError, condition, operatorv1alpha1.ReasonCRDConflict)
	s.undefine(foreign)
	poll.Until(t, time.Minute, "the definition is gone", func(context.Context) error {
		_, err := s.client.Resource(crds).Get(t.Context(), foreign, metav1.GetOptions{})
		return poll.Gone(err)
	})
	definition.SetResourceVersion("")
	definition.SetUID("")
	delete(definition.Object, "status")
	_, err = s.client.Resource(crds).Create(t.Context(), definition, metav1.CreateOptions{})
	s.check(err)
	s.await(quick, operatorv1alpha1.StateReady, condition, operatorv1alpha1.ReasonAvailable)

	// The APIs of the mesh: awaited, then missing, at another version, and there. Events go on
	// taking NATS.
	s.patch(eventings, "eventing", `{"spec":{"backend":{"type":"EventMesh"}}}`)
	s.awaitCondition(quick, condition, false, operatorv1alpha1.ReasonWaiting)
	s.awaitCondition(6*time.Second+quick, condition, false, operatorv1alpha1.ReasonMissing)
	beta := s.define(crd("eventing.knative.dev", "Broker", "brokers", "v1beta1"))
	s.awaitCondition(quick, condition, false, operatorv1alpha1.ReasonWrongVersion)
	s.undefine(beta)
	poll.Until(t, time.Minute, "the definition is gone", func(context.Context) error {
		_, err := s.client.Resource(crds).Get(t.Context(), beta, metav1.GetOptions{})
		return poll.Gone(err)
	})
	s.define(crd("eventing.knative.dev", "Broker", "brokers", "v1"))
	s.define(crd("eventing.knative.dev", "Trigger", "triggers", "v1"))
	s.awaitCondition(quick, condition, true, operatorv1alpha1.ReasonAvailable)
	// Nobody serves Brokers here.
	s.awaitCondition(quick, operatorv1alpha1.ConditionBackendAvailable, false, operatorv1alpha1.ReasonMeshUnavailable)
	s.check(s.published(t.Context()))
	s.patch(eventings, "eventing", `{"spec":{"backend":{"type":"nats"}}}`)
	s.await(quick, operatorv1alpha1.StateReady, operatorv1alpha1.ConditionBackendAvailable, operatorv1alpha1.ReasonNATSAvailable)
	if _, err := s.get(schema.GroupVersionResource{Group: "eventing.knative.dev", Version: "v1", Resource: "brokers"}, "eventing"); poll.Gone(err) != nil {
		t.Errorf("the Broker is left: %v", err)
	}
}

// awaitCondition waits until a condition of the Eventing has a status and a reason.
func (s *site) awaitCondition(limit time.Duration, kind string, ok bool, reason string) {
	s.t.Helper()
	poll.Until(s.t, limit, fmt.Sprintf("%s is %v, %s", kind, ok, reason), s.onceChanged(func(context.Context) error {
		e, err := s.eventing(s.namespace, "eventing")
		if err != nil {
			return err
		}
		if c := meta.FindStatusCondition(e.Status.Conditions, kind); c == nil || (c.Status == metav1.ConditionTrue) != ok || c.Reason != reason {
			return fmt.Errorf("%+v", c)
		}
		return nil
	}))
}

// TestForeign: an object of somebody else with a name of ours stops the installation, and stays as
// it is.
func TestForeign(t *testing.T) {
	s := newSite(t, "foreign")
	s.start()
	const theirs = `{apiVersion: v1, kind: ConfigMap, metadata: {name: eventing-nats-config, labels: {app.kubernetes.io/managed-by: eventing-manager}}, data: {theirs: "1"}}`
	before := s.create(configMaps, theirs)
	s.create(eventings, one)
	e := s.await(20*time.Second, operatorv1alpha1.StateWarning, operatorv1alpha1.ConditionBackendAvailable, operatorv1alpha1.ReasonForeignObject)
	if c := meta.FindStatusCondition(e.Status.Conditions, operatorv1alpha1.ConditionBackendAvailable); !strings.Contains(c.Message, "ConfigMap eventing-nats-config") {
		t.Errorf("condition %+v", c)
	}
	if after, err := s.get(configMaps, "eventing-nats-config"); err != nil || after.GetResourceVersion() != before.GetResourceVersion() {
		t.Errorf("it was changed: %v", err)
	}
	if left := s.left(true); len(left) > 0 {
		t.Errorf("installed all the same: %v", left)
	}
	s.delete(configMaps, "eventing-nats-config")
	s.await(90*time.Second, operatorv1alpha1.StateReady, "", "")
}

// TestPrefixes: two operators in one namespace have disjoint objects.
func TestPrefixes(t *testing.T) {
	s := newSite(t, "prefixes")
	s.start()
	s.installed()
	before := s.left(true)
	s.operator.Kill()
	_, err := s.client.Resource(eventings).Namespace(s.namespace).Patch(t.Context(), "eventing", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	s.check(err)
	s.remove(metav1.DeletePropagationBackground)
	versions := s.versions("eventing")
	s.prefix = "shop"
	s.accounts()
	s.start()
	s.installed()
	for name, version := range s.versions("eventing") {
		if versions[name] != version && !strings.HasPrefix(name, "Pod ") && !strings.HasPrefix(name, "StatefulSet ") {
			t.Errorf("%s was changed by the other operator", name)
		}
	}
	all := s.left(true)
	if len(all) != 2*len(before) {
		t.Errorf("want twice %v, got %v", before, all)
	}
	s.remove(metav1.DeletePropagationBackground)
	s.gone(time.Minute)
	for name := range versions {
		if _, ok := s.versions("eventing")[name]; !ok {
			t.Errorf("%s was deleted by the other operator", name)
		}
	}
}

// versions are the resourceVersions of the objects of a prefix.
func (s *site) versions(prefix string) map[string]string {
	s.t.Helper()
	out := map[string]string{}
	for _, gvr := range []schema.GroupVersionResource{statefulSets, services, configMaps, secrets, pods, claims} {
		list, err := s.client.Resource(gvr).Namespace(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "eventing.kyma-project.io/instance=" + prefix})
		s.check(err)
		for _, u := range list.Items {
			out[u.GetKind()+" "+u.GetName()] = u.GetResourceVersion()
		}
	}
	return out
}
