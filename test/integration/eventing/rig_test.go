package eventing_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/sinks"
)

// limit is how long anything may take that is not measured.
const limit = time.Minute

// rig is what a controller needs: NATS with a stream, a namespace for its own objects and one for
// Subscriptions, and sinks. It does what the operator does.
type rig struct {
	*plane

	t         *testing.T
	client    dynamic.Interface
	manager   jetstream.JetStream
	publisher jetstream.JetStream
	config    operatorv1alpha1.BackendConfig
	namespace string // of the Subscriptions
	control   string // of the controller's objects
	sinks     *sinks.Sinks
	files     string // the directory of the seed and the authority
	// kubeconfig is that of the controller; by default it is the administrator.
	kubeconfig string
}

// newRig starts NATS, and creates the stream, open or closed.
func newRig(t *testing.T, open bool) *rig {
	t.Helper()
	return newRigOn(t, startNATS(t), open)
}

// newRigOn is newRig with a server that runs.
func newRigOn(t *testing.T, p *plane, open bool) *rig {
	t.Helper()
	r := &rig{plane: p, t: t, client: client(t), sinks: sinks.Start(t), files: t.TempDir(), config: small(), kubeconfig: cluster.Kubeconfig}
	r.config.NATSMaxMsgsPerTopic, r.config.NATSStreamMaxSize = 1_000_000, *r.config.NATSStreamMaxSize.ToDec()
	r.config.NATSStreamMaxSize.Set(700 << 20)
	r.config.NATSStreamReplicas = int32(len(p.servers)) //nolint:gosec // 1 or 3
	for name, content := range map[string][]byte{"controller": r.seeds["controller"], "ca.crt": r.ca.Certificate} {
		if err := os.WriteFile(filepath.Join(r.files, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.manager, r.publisher = js(t, r.as(t, "manager")), js(t, r.as(t, "publisher"))
	r.control, r.namespace = r.newNamespace("control"), r.newNamespace("shop")
	t.Cleanup(r.clear)
	// The controller serves Subscriptions of all namespaces. Tests of the API leave some, whose
	// sinks take nothing.
	if err := r.client.Resource(subscriptions).Namespace("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	r.createStream(open)
	r.serve()
	return r
}

func (r *rig) newNamespace(prefix string) string {
	r.t.Helper()
	n := object(r.t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {generateName: %s-}}", prefix))
	created, err := r.client.Resource(namespaces).Create(r.t.Context(), n, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return created.GetName()
}

// clear removes the Subscriptions: the controller of the next test would work on them, too.
func (r *rig) clear() {
	ctx := context.WithoutCancel(r.t.Context())
	list, err := r.client.Resource(subscriptions).List(ctx, metav1.ListOptions{})
	if err != nil {
		r.t.Error(err)
		return
	}
	for _, s := range list.Items {
		in := r.client.Resource(subscriptions).Namespace(s.GetNamespace())
		if len(s.GetFinalizers()) > 0 {
			_, err = in.Patch(ctx, s.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		}
		if err == nil {
			err = in.Delete(ctx, s.GetName(), metav1.DeleteOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			r.t.Error(err)
		}
	}
}

func (r *rig) createStream(open bool) {
	r.t.Helper()
	r.plane.createStream(r.t, r.manager, stream.Config(r.config, uuid.NewString(), open))
	r.plane.createStream(r.t, r.manager, stream.DeadLetters(r.config, 32<<20))
}

// Launch starts NATS again, and waits until the manager's connection is back in it: a request on
// a connection that has not come back yet fails at once, instead of waiting for it.
func (r *rig) Launch() {
	r.t.Helper()
	r.plane.Launch()
	poll.Until(r.t, limit, "NATS is back", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // what comes too early gets no answer
		defer cancel()
		_, err := r.manager.Stream(ctx, backend.Stream)
		return err
	})
}

// open opens or closes the stream.
func (r *rig) open(open bool) {
	r.t.Helper()
	s, err := r.manager.Stream(r.t.Context(), backend.Stream)
	if err == nil {
		_, err = r.manager.UpdateStream(r.t.Context(), stream.Config(r.config, stream.Epoch(s.CachedInfo().Config), open))
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// serve writes the ConfigMap of the backends with a new epoch, and returns that.
func (r *rig) serve() (epoch string) {
	r.t.Helper()
	epoch = uuid.NewString()
	b := backend.Backends{
		Epoch: epoch, Serving: backend.Set{operatorv1alpha1.NATS}, Accept: backend.Set{operatorv1alpha1.NATS},
		NATS: &backend.NATSAddress{URL: strings.Replace(r.URL, "127.0.0.1", "localhost", 1), Stream: backend.Stream, CA: "eventing-nats-ca"},
	}
	r.writeBackends(b)
	// What the controller writes here is its own.
	r.apply(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: backend.Names(backend.DefaultPrefix).ControllerState()}})
	return epoch
}

func (r *rig) writeBackends(b backend.Backends) {
	r.t.Helper()
	r.apply(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: backend.Names(backend.DefaultPrefix).Backends()}, Data: b.Data()})
}

func (r *rig) apply(config *corev1.ConfigMap) {
	r.t.Helper()
	config.TypeMeta, config.Namespace = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, r.control
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(config)
	if err == nil {
		_, err = r.client.Resource(configMaps).Namespace(r.control).Apply(r.t.Context(), config.Name, &unstructured.Unstructured{Object: content}, metav1.ApplyOptions{FieldManager: "test", Force: true})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// controller starts the program.
func (r *rig) controller(pod string, args ...string) *process.Process {
	r.t.Helper()
	return process.Start(r.t, r.program(pod, args...))
}

func (r *rig) program(pod string, args ...string) process.Program {
	r.t.Helper()
	return process.Program{
		Binary: process.Build(r.t, "./cmd/eventing-controller"),
		Args: append([]string{
			"--namespace=" + r.control, "--nats-seed-file=" + filepath.Join(r.files, "controller"), "--nats-ca-file=" + filepath.Join(r.files, "ca.crt"),
			"--metrics-address=0", "--health-address=0", "--deliver-address=0", "--lease-duration=2s", "--dns-server=" + r.sinks.DNS,
		}, args...),
		Env: []string{"KUBECONFIG=" + r.kubeconfig, "POD_NAME=" + pod},
	}
}

// subscribe creates a Subscription to a type of the source commerce. Its name is that of its sink.
// more is added to its spec.
func (r *rig) subscribe(name, eventType, more string) {
	r.t.Helper()
	s := object(r.t, fmt.Sprintf("{apiVersion: eventing.kyma-project.io/v1alpha2, kind: Subscription, metadata: {name: %s}, spec: {sink: %q, source: commerce, types: [%s]%s}}",
		name, r.sinks.URL(name, r.namespace), eventType, more))
	if _, err := r.client.Resource(subscriptions).Namespace(r.namespace).Create(r.t.Context(), s, strict); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) patch(name, patch string) {
	r.t.Helper()
	if _, err := r.client.Resource(subscriptions).Namespace(r.namespace).Patch(r.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) delete(name string) {
	r.t.Helper()
	if err := r.client.Resource(subscriptions).Namespace(r.namespace).Delete(r.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) get(ctx context.Context, name string) (*eventingv1alpha2.Subscription, error) {
	u, err := r.client.Resource(subscriptions).Namespace(r.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	s := &eventingv1alpha2.Subscription{}
	return s, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, s)
}

// await waits until a Subscription is as it should be. holds returns what is not.
func (r *rig) await(name, what string, holds func(s *eventingv1alpha2.Subscription) string) *eventingv1alpha2.Subscription {
	r.t.Helper()
	var is *eventingv1alpha2.Subscription
	poll.Until(r.t, limit, what, func(ctx context.Context) (err error) {
		if is, err = r.get(ctx, name); err != nil {
			return err
		}
		if wrong := holds(is); wrong != "" {
			return fmt.Errorf("%s: status %+v", wrong, is.Status)
		}
		return nil
	})
	return is
}

func ready(s *eventingv1alpha2.Subscription) string {
	if !s.Status.Ready || len(s.Status.Backends) != 1 || s.Status.Backends[0].ObservedGeneration != s.Generation {
		return "not ready"
	}
	return ""
}

// condition returns what is not so about a condition.
func condition(s *eventingv1alpha2.Subscription, of eventingv1alpha2.ConditionType, reason string) string {
	for _, c := range s.Status.Conditions {
		if c.Type == of && c.Reason == reason {
			return ""
		}
	}
	return fmt.Sprintf("%s is not %q", of, reason)
}

func (r *rig) consumer(ctx context.Context, name string) (*jetstream.ConsumerInfo, error) {
	c, err := r.manager.Consumer(ctx, backend.Stream, backend.ConsumerName(r.namespace, name))
	if err != nil {
		return nil, err
	}
	return c.CachedInfo(), nil
}

// event is a message as the publisher writes it.
func event(eventType, id, data string) *nats.Msg {
	return &nats.Msg{Subject: backend.Subject("commerce", eventType), Data: []byte(data), Header: nats.Header{
		"ce-specversion": {"1.0"}, "ce-id": {id}, "ce-source": {"commerce"}, "ce-type": {eventType}, "content-type": {"application/json"},
		jetstream.MsgIDHeader: {backend.MessageID("commerce", id, eventType, []byte(data))},
	}}
}

// publish publishes events until NATS has each.
func (r *rig) publish(eventType string, ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		poll.Until(r.t, limit, "NATS takes event "+id, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			_, err := r.publisher.PublishMsg(ctx, event(eventType, id, `"`+id+`"`), jetstream.WithRetryAttempts(0))
			return err
		})
	}
}

func numbers(prefix string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s%05d", prefix, i))
	}
	return ids
}
