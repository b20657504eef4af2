package eventingmanager_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/node"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// byOperator selects what the operator asks the API server for.
func byOperator(r kubernetes.Request) bool {
	return strings.HasPrefix(r.UserAgent, "eventing-manager/")
}

func writes(r kubernetes.Request) bool {
	return byOperator(r) && r.Resource != "coordination.k8s.io/leases" && slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.Verb)
}

// TestMissingAccount: the ServiceAccount of the controller was deleted. The Eventing says so, with
// what brings it back, and is ready after that.
func TestMissingAccount(t *testing.T) {
	s := newSite(t, "account")
	s.delete(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, "eventing-controller")
	s.start()
	s.create(eventings, one)
	poll.Until(t, 90*time.Second, "the Eventing says that the account is missing", func(context.Context) error {
		e, err := s.eventing(s.namespace, "eventing")
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(e.Status.Conditions, operatorv1alpha1.ConditionSubscriptionManagerReady)
		if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, `serviceaccount "eventing-controller" not found`) || !strings.Contains(c.Message, "kubectl apply --server-side") {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	s.accounts()
	s.await(90*time.Second, operatorv1alpha1.StateReady, operatorv1alpha1.ConditionSubscriptionManagerReady, operatorv1alpha1.ReasonDeployed)

	// Deleted and created again: pods have a token of the former one.
	time.Sleep(time.Second) // times of creation have no fractions
	s.delete(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, "eventing-controller")
	s.accounts()
	account, err := s.get(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, "eventing-controller")
	s.check(err)
	poll.Until(t, 90*time.Second, "all pods of the controller are younger than its account", func(ctx context.Context) error {
		list, err := s.client.Resource(pods).Namespace(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=controller"})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].GetCreationTimestamp().Time.Before(account.GetCreationTimestamp().Time) {
				return fmt.Errorf("%s is older", list.Items[i].GetName())
			}
		}
		return nil
	})
	s.await(90*time.Second, operatorv1alpha1.StateReady, operatorv1alpha1.ConditionSubscriptionManagerReady, operatorv1alpha1.ReasonDeployed)
}

// TestReinstalledSoon: the manifest was deleted with its permissions, so that the operator could
// not release its Lease, and is applied again. Within seconds the Eventing says what the new
// operator waits for, and until when; then it is served. On f3299ef it had no status for 15
// seconds.
func TestReinstalledSoon(t *testing.T) {
	s := newSite(t, "reinstalled")
	holder, seconds, now := "eventing-manager-of-before", int32(15), metav1.NowMicro()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "eventing-manager.kyma-project.io", Namespace: s.namespace}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now,
	}}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(lease)
	s.check(err)
	leases := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	_, err = s.client.Resource(leases).Namespace(s.namespace).Create(t.Context(), &unstructured.Unstructured{Object: raw}, metav1.CreateOptions{})
	s.check(err)
	s.create(eventings, one)
	s.start()
	e := s.await(10*time.Second, operatorv1alpha1.StateProcessing, operatorv1alpha1.ConditionServed, operatorv1alpha1.ReasonWaitsForLease)
	said := meta.FindStatusCondition(e.Status.Conditions, operatorv1alpha1.ConditionServed).Message
	until := regexp.MustCompile(`which eventing-manager-of-before has: .* by (\d\d:\d\d:\d\d UTC) `).FindStringSubmatch(said)
	if until == nil {
		t.Fatalf("the message is %q", said)
	}
	s.await(30*time.Second, operatorv1alpha1.StateProcessing, operatorv1alpha1.ConditionServed, operatorv1alpha1.ReasonServed)
	held, err := s.client.Resource(leases).Namespace(s.namespace).Get(t.Context(), lease.Name, metav1.GetOptions{})
	s.check(err)
	text, _, err := unstructured.NestedString(held.Object, "spec", "acquireTime")
	s.check(err)
	taken, err := time.Parse(time.RFC3339, text)
	s.check(err)
	if at := taken.UTC().Format(time.TimeOnly + " MST"); at > until[1] && until[1] > "00:01" {
		t.Errorf("it has the Lease since %s, and said %s", at, until[1])
	}
	s.await(90*time.Second, operatorv1alpha1.StateReady, operatorv1alpha1.ConditionServed, operatorv1alpha1.ReasonServed)
}

// TestInstall: one object is applied, and NATS takes events. After that, the operator writes
// nothing.
func TestInstall(t *testing.T) {
	s := newSite(t, "install")
	s.start()
	e := s.installed()
	if !slices.Contains(e.Finalizers, operatorv1alpha1.Finalizer) || e.Status.ActiveBackend != operatorv1alpha1.NATS || e.Status.ObservedGeneration != e.Generation {
		t.Errorf("finalizers %v, status %+v", e.Finalizers, e.Status)
	}
	if diff := cmp.Diff(&operatorv1alpha1.NATSStatus{Servers: 1, Storage: operatorv1alpha1.StorageFile}, e.Status.NATS); diff != "" {
		t.Errorf("status of NATS (-want +got):\n%s", diff)
	}
	if _, err := s.js("controller").CreateConsumer(t.Context(), backend.Stream, stream.Consumer("shop", "orders", []string{backend.Filter("commerce", "a.b")}, false)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.js("publisher").Publish(t.Context(), backend.Subject("commerce", "a.b"), []byte("1"), jetstream.WithRetryAttempts(0)); err != nil {
		t.Fatal(err)
	}
	contract, err := s.get(configMaps, "eventing-backends")
	if err != nil {
		t.Fatal(err)
	}
	content, _, _ := unstructured.NestedStringMap(contract.Object, "data")
	b, err := backend.ParseBackends(content)
	if err != nil || b.Serving.String() != "NATS" || b.Accept.String() != "NATS" || !strings.HasPrefix(b.NATS.URL, "tls://localhost:") {
		t.Errorf("backends %+v, %v", b, err)
	}
	s.logLine(t)

	mark, err := cluster.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Second) // that nothing happens cannot be awaited
	done, err := cluster.Requests(t.Context(), mark, writes)
	if err != nil {
		t.Fatal(err)
	}
	// The event that nobody takes is news for the status, once.
	if len(done) > 1 {
		t.Errorf("an idle operator writes: %v", done)
	}
	if found := regexp.MustCompile(`SU[A-Z2-7]{56}|PRIVATE KEY`).FindString(s.log.String()); found != "" {
		t.Errorf("the log has %.6s…, which is a seed or a key", found)
	}
}

// logLine finds the line about the values, as the users' document shows it.
func (s *site) logLine(t *testing.T) {
	t.Helper()
	var found map[string]any
	for line := range strings.Lines(s.log.String()) {
		fields := map[string]any{}
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Errorf("not JSON: %s", line)
		}
		if fields["message"] == "Eventing" {
			found = fields
		}
	}
	want := map[string]any{
		"controller": "eventing", "controllerGroup": "operator.kyma-project.io", "controllerKind": "Eventing", "backend": "nats",
		"eventing": map[string]any{"name": "eventing", "namespace": s.namespace}, "namespace": s.namespace, "name": "eventing",
	}
	for key, value := range want {
		if diff := cmp.Diff(value, found[key]); diff != "" {
			t.Errorf("log line, %s (-want +got):\n%s", key, diff)
		}
	}
	flags, _ := found["flags"].(map[string]any)
	if diff := cmp.Diff(map[string]any{"type": "nats"}, flags["backend"]); diff != "" || found["reconcileID"] == nil {
		t.Errorf("log line %v (-want +got):\n%s", found, diff)
	}
}

// TestDrift: whatever somebody does to an object of the operator, it is as it was within seconds,
// with one write. What others add stays.
func TestDrift(t *testing.T) {
	s := newSite(t, "drift")
	s.start()
	s.installed()
	for _, tc := range []struct {
		reason string
		gvr    schema.GroupVersionResource
		name   string
		merge  string // "" is a deletion
		want   string // a path that has to be as before
	}{
		{"a setting is changed", configMaps, "eventing-nats-config", `{"data":{"nats.conf":"port: 1"}}`, "data"},
		{"a setting is removed", configMaps, "eventing-nats-config", `{"data":{"nats.conf":null}}`, "data"},
		{"a label is removed that says whose it is", services, "eventing-nats", `{"metadata":{"labels":{"app.kubernetes.io/part-of":null}}}`, "metadata.labels"},
		{"a port is changed", services, "eventing-nats", `{"spec":{"ports":[{"name":"tcp-client","port":4223,"protocol":"TCP"}]}}`, "spec.ports"},
		{"a label is added", services, "eventing-nats", `{"metadata":{"labels":{"team":"shop"}}}`, ""},
		{"a Service is deleted", services, "eventing-nats-headless", "", "spec.ports"},
		{"the limits are changed", statefulSets, "eventing-nats", `{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":1}}}}`, "spec.template"},
		{"the StatefulSet is deleted", statefulSets, "eventing-nats", "", "spec.template"},
		{"the ConfigMap is deleted", configMaps, "eventing-nats-config", "", "data"},
		{"the contract is deleted", configMaps, "eventing-backends", "", ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			before, err := s.get(tc.gvr, tc.name)
			if err != nil {
				t.Fatal(err)
			}
			mark, err := cluster.Mark(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			at := time.Now()
			if tc.merge == "" {
				s.delete(tc.gvr, tc.name)
			} else {
				s.patch(tc.gvr, tc.name, tc.merge)
			}
			path := strings.Split(tc.want, ".")
			poll.Until(t, 5*time.Second, "it is as it was", func(context.Context) error {
				now, err := s.get(tc.gvr, tc.name)
				if err != nil || tc.want == "" {
					return err
				}
				want, _, _ := unstructured.NestedFieldNoCopy(before.Object, path...)
				got, _, _ := unstructured.NestedFieldNoCopy(now.Object, path...)
				if diff := cmp.Diff(want, got); diff != "" {
					return fmt.Errorf("(-want +got):\n%s", diff)
				}
				return nil
			})
			t.Logf("after %s", time.Since(at))
			s.await(time.Minute, operatorv1alpha1.StateReady, "", "")
			done, err := cluster.Requests(t.Context(), mark, func(r kubernetes.Request) bool {
				return writes(r) && !strings.HasPrefix(r.Resource, "operator.kyma-project.io") && r.Name == tc.name && r.Code < 300
			})
			if err != nil {
				t.Fatal(err)
			}
			most := 1
			if updated(before) {
				most = 2 // its controller was faster than the operator after the create, so the first apply makes the fields its own
			}
			if tc.merge == "" {
				most = 4 // a create, whose fields become those of an apply, and the marks that were in it
			}
			if tc.want == "" && tc.merge != "" {
				most = 0
				if u, err := s.get(tc.gvr, tc.name); err != nil || u.GetLabels()["team"] != "shop" {
					t.Errorf("the label of somebody else is gone: %v", err)
				}
			}
			if len(done) > most {
				t.Errorf("%d writes, want %d at most: %v", len(done), most, done)
			}
		})
	}
	t.Run("a paused Deployment is left alone, and named", s.paused)
	t.Run("an autoscaler gets the number of pods, and gives it back", s.autoscaled)
}

// paused changes what pods of the publisher are started with, while somebody has paused it. The
// command of the message ends that.
func (s *site) paused(t *testing.T) {
	const publisher = "eventing-publisher-proxy"
	s.patch(deployments, publisher, `{"spec":{"paused":true}}`)
	s.patch(eventings, "eventing", `{"spec":{"logging":{"logLevel":"Debug"}}}`)
	e := s.await(time.Minute, operatorv1alpha1.StateWarning, operatorv1alpha1.ConditionPublisherProxyReady, operatorv1alpha1.ReasonDeployFailed)
	message := meta.FindStatusCondition(e.Status.Conditions, operatorv1alpha1.ConditionPublisherProxyReady).Message
	if _, next, _ := strings.Cut(message, " Next: "); next != "kubectl -n "+s.namespace+" rollout resume deployment "+publisher {
		t.Error(message)
	}
	s.patch(deployments, publisher, `{"spec":{"paused":null}}`) // what that command writes
	s.await(time.Minute, operatorv1alpha1.StateReady, "", "")
}

// updated is whether the operator's fields of an object are still those of a create, and not of an
// apply.
func updated(u *unstructured.Unstructured) bool {
	return slices.ContainsFunc(u.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == "eventing-manager" && m.Operation == metav1.ManagedFieldsOperationUpdate && m.Subresource == ""
	})
}

// TestPodOfNATSIsKilled: the condition says so within seconds, and NATS takes events again by
// itself.
func TestPodOfNATSIsKilled(t *testing.T) {
	s := newSite(t, "killed")
	s.start()
	s.installed()
	before, err := s.get(pods, "eventing-nats-0")
	if err != nil {
		t.Fatal(err)
	}
	s.node.Cordon(true) // the next pod may be there before the operator can see that there was none
	s.delete(pods, "eventing-nats-0")
	s.await(5*time.Second, operatorv1alpha1.StateProcessing, operatorv1alpha1.ConditionBackendAvailable, operatorv1alpha1.ReasonNATSUnavailable)
	s.node.Cordon(false)
	s.await(30*time.Second, operatorv1alpha1.StateReady, operatorv1alpha1.ConditionBackendAvailable, operatorv1alpha1.ReasonNATSAvailable)
	after, err := s.get(pods, "eventing-nats-0")
	if err != nil || after.GetUID() == before.GetUID() {
		t.Errorf("the pod is the same: %v", err)
	}
}

// TestSecrets: Secrets that are deleted or spoilt are created again, and servers use the new ones.
// Clients connect with them.
func TestSecrets(t *testing.T) {
	s := newSite(t, "secrets")
	s.start()
	s.installed()
	for _, tc := range []struct {
		reason, name string
		merge        string
	}{
		{"the users are deleted", "eventing-nats-users", ""},
		{"a seed is spoilt", "eventing-nats-users", `{"data":{"publisher":"eA=="}}`},
		{"the certificate is deleted", "eventing-nats-tls", ""},
		{"the authority is deleted", "eventing-nats-ca", ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if tc.merge == "" {
				s.delete(secrets, tc.name)
			} else {
				s.patch(secrets, tc.name, tc.merge)
			}
			poll.Until(t, time.Minute, "a client can publish with what is in the Secrets", func(ctx context.Context) error {
				users, err := s.core.CoreV1().Secrets(s.namespace).Get(t.Context(), "eventing-nats-users", metav1.GetOptions{})
				if err != nil {
					return err
				}
				if len(users.Data["publisher"]) < 20 {
					return errStill
				}
				return s.published(ctx)
			})
			s.await(time.Minute, operatorv1alpha1.StateReady, operatorv1alpha1.ConditionBackendAvailable, operatorv1alpha1.ReasonNATSAvailable)
		})
	}
}

// TestTrouble: what an administrator can get wrong in a spec that the API server takes, and what a
// policy refuses. Each is said in the words of Kubernetes, and when it is right, the operator goes
// on by itself.
func TestTrouble(t *testing.T) {
	const available = operatorv1alpha1.ConditionBackendAvailable
	s := newSite(t, "trouble")
	s.start("--backend-timeout", "10s")
	// A StorageClass that nobody provisions.
	class := node.Class("nobody", false, storagev1.VolumeBindingImmediate)
	class.Provisioner = "example.com/nobody"
	_, err := s.core.StorageV1().StorageClasses().Create(t.Context(), class, metav1.CreateOptions{})
	s.check(err)
	t.Cleanup(func() {
		s.check(s.core.StorageV1().StorageClasses().Delete(context.WithoutCancel(t.Context()), "nobody", metav1.DeleteOptions{}))
	})
	s.create(eventings, strings.Replace(one, "natsStorage: {", "natsStorage: {storageClassName: nobody, ", 1))
	for _, state := range []operatorv1alpha1.State{operatorv1alpha1.StateProcessing, operatorv1alpha1.StateError} {
		e := s.await(30*time.Second, state, available, operatorv1alpha1.ReasonNATSUnavailable)
		if state == operatorv1alpha1.StateProcessing {
			continue
		}
		if c := meta.FindStatusCondition(e.Status.Conditions, available); !strings.Contains(c.Message, "Pod eventing-nats-0 is not scheduled: ") || !strings.Contains(c.Message, "PersistentVolumeClaim") {
			t.Errorf("the message is %q", c.Message)
		}
	}
	s.remove(metav1.DeletePropagationBackground)
	s.gone(time.Minute)
	s.check(s.client.Resource(claims).Namespace(s.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))

	s.installed()
	s.refuseLargeServers()
	s.patch(eventings, "eventing", `{"spec":{"backend":{"config":{"natsResources":{"limits":{"memory":"2Gi"}}}}}}`)
	e := s.await(10*time.Second, operatorv1alpha1.StateWarning, operatorv1alpha1.ConditionSpecApplied, operatorv1alpha1.ReasonRefused)
	if c := meta.FindStatusCondition(e.Status.Conditions, operatorv1alpha1.ConditionSpecApplied); !strings.Contains(c.Message, "2Gi is too much here") {
		t.Errorf("the message is %q", c.Message)
	}
	s.check(s.published(t.Context()))
	s.patch(eventings, "eventing", `{"spec":{"backend":{"config":{"natsResources":{"limits":{"memory":"1Gi"}}}}}}`)
	s.await(30*time.Second, operatorv1alpha1.StateReady, operatorv1alpha1.ConditionSpecApplied, operatorv1alpha1.ReasonApplied)
}

// refuseLargeServers refuses StatefulSets of the site whose containers may have 2Gi of memory, as a
// policy of administrators may. It returns when the API server does so.
func (s *site) refuseLargeServers() {
	s.t.Helper()
	name := "refuse-2gi-" + s.namespace
	policies := s.core.AdmissionregistrationV1()
	_, err := policies.ValidatingAdmissionPolicies().Create(s.t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"statefulsets"}},
				}}},
			},
			Validations: []admissionregistrationv1.Validation{{
				Expression: "object.spec.template.spec.containers.all(c, c.resources.limits.memory != '2Gi')", Message: "2Gi is too much here",
			}},
		},
	}, metav1.CreateOptions{})
	s.check(err)
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(s.t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
	}, metav1.CreateOptions{})
	s.check(err)
	s.t.Cleanup(func() {
		ctx := context.WithoutCancel(s.t.Context())
		s.check(policies.ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{}))
		s.check(policies.ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{}))
	})
	poll.Until(s.t, 30*time.Second, "the policy is in force", func(ctx context.Context) error {
		_, err := s.client.Resource(statefulSets).Namespace(s.namespace).Patch(ctx, "eventing-nats", types.StrategicMergePatchType,
			[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"nats","resources":{"limits":{"memory":"2Gi"}}}]}}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("it refuses nothing yet")
		}
		if !strings.Contains(err.Error(), "2Gi is too much here") {
			return err
		}
		return nil
	})
}

// TestTwoOperators: one of them acts. When it is killed, the other one does, as soon as the Lease
// is over.
func TestTwoOperators(t *testing.T) {
	quick(t)
	s := newSite(t, "two")
	first := s.start()
	s.installed()
	s.start()
	first.Kill()
	s.delete(services, "eventing-nats-headless")
	poll.Until(t, 40*time.Second, "the other operator repairs", func(context.Context) error {
		_, err := s.get(services, "eventing-nats-headless")
		return err
	})
	s.await(10*time.Second, operatorv1alpha1.StateReady, "", "")
}

// TestAFullStream: the state says within 5 seconds that events are refused, and names the
// Subscription whose events wait. That holds for a stream that is full, and for one that has as
// many events of one type as it may. On f3299ef the state was a Warning with the condition True, or
// Ready.
func TestAFullStream(t *testing.T) {
	quick(t)
	const available = operatorv1alpha1.ConditionBackendAvailable
	s := newSite(t, "full")
	s.start()
	s.installed()
	s.fill()
	publisher := s.js("publisher")
	refused := func(eventType string, size, most int) (stored int, at time.Time) {
		t.Helper()
		var err error
		for ; err == nil && stored < most; stored++ {
			at = time.Now()
			_, err = publisher.Publish(t.Context(), backend.Subject("commerce", eventType), make([]byte, size), jetstream.WithRetryAttempts(0))
		}
		var refused *jetstream.APIError
		if !errors.As(err, &refused) || refused.ErrorCode != 10077 {
			t.Fatalf("event %d: %v", stored, err)
		}
		return stored - 1, at
	}
	says := func(since time.Time, reason string, texts ...string) {
		t.Helper()
		e := s.await(5*time.Second, operatorv1alpha1.StateError, available, reason)
		if took := time.Since(since); took > poll.Within(5*time.Second) {
			t.Errorf("%s is said after %s, want 5s at most", reason, took)
		}
		c := meta.FindStatusCondition(e.Status.Conditions, available)
		for _, text := range append(texts, "shop/orders (", "kubectl -n shop describe subscriptions.eventing.kyma-project.io orders") {
			if !strings.Contains(c.Message, text) {
				t.Errorf("%q is not in %q", text, c.Message)
			}
		}
	}
	ready := func() {
		t.Helper()
		s.await(30*time.Second, operatorv1alpha1.StateReady, available, operatorv1alpha1.ReasonNATSAvailable)
	}

	s.patch(eventings, "eventing", `{"spec":{"backend":{"config":{"natsMaxMsgsPerTopic":3}}}}`)
	poll.Until(t, 30*time.Second, "the limit holds", func(ctx context.Context) error {
		is, err := s.js("manager").Stream(ctx, backend.Stream)
		if err == nil && is.CachedInfo().Config.MaxMsgsPerSubject != 3 {
			err = errStill
		}
		return err
	})
	stored, at := refused("a.b", 1, 5)
	says(at, operatorv1alpha1.ReasonTypeFull, "type a.b of source commerce since 2", "natsMaxMsgsPerTopic")
	if _, err := publisher.Publish(t.Context(), backend.Subject("commerce", "b.c"), nil, jetstream.WithRetryAttempts(0)); err != nil {
		t.Errorf("another type: %v", err)
	}
	s.empty()
	ready()
	s.patch(eventings, "eventing", `{"spec":{"backend":{"config":{"natsMaxMsgsPerTopic":1000000}}}}`)

	poll.Until(t, 30*time.Second, "the limit holds", func(ctx context.Context) error {
		is, err := s.js("manager").Stream(ctx, backend.Stream)
		if err == nil && is.CachedInfo().Config.MaxMsgsPerSubject != 1_000_000 {
			err = errStill
		}
		return err
	})
	more, at := refused("a.b", 1<<20, 20)
	says(at, operatorv1alpha1.ReasonStorageFull, "% full", "events, about 9 MiB)")
	for range stored + more {
		s.empty()
	}
	ready()
}
