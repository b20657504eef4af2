package module_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/registry"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/build/release/artifact"
	"github.com/kyma-project/eventmesh-migration/build/release/modulepack/bundle"
	"github.com/kyma-project/eventmesh-migration/test/eventingpods"
	"github.com/kyma-project/eventmesh-migration/test/node"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/sinks"
)

// theKyma and theEventing are the objects of the users' document for the eventing operator, as it
// shows them.
const (
	theKyma = `
apiVersion: operator.kyma-project.io/v1alpha1
kind: Kyma
metadata:
  annotations:
    cli.kyma-project.io/source: deploy
  creationTimestamp: "2022-12-05T19:53:03Z"
  finalizers:
  - operator.kyma-project.io/Kyma
  generation: 3
  labels:
    operator.kyma-project.io/managed-by: lifecycle-manager
  name: default-kyma
  namespace: kcp-system
  resourceVersion: "677"
  uid: b94836f0-b5a8-45af-b8fa-0bbb9161b1b5
spec:
  channel: regular
  modules:
  - channel: alpha
    name: eventing
  sync:
    enabled: false
    moduleCatalog: true
    noModuleCopy: true
    strategy: secret
status:
  activeChannel: regular
  conditions:
  - lastTransitionTime: "2022-12-05T19:53:13Z"
    message: all modules are in ready state
    observedGeneration: 3
    reason: ModulesAreReady
    status: "True"
    type: Ready
  moduleStatus:
  - generation: 1
    moduleName: eventing
    name: default-kyma-eventing
    namespace: kcp-system
    state: Ready
    templateInfo:
      channel: regular
      generation: 1
      gvk:
        group: operator.kyma-project.io
        kind: Manifest
        version: v1alpha1
      name: moduletemplate-eventing
      namespace: kcp-system
      version: 0.0.4
  state: Ready
`
	theEventing = `
apiVersion: operator.kyma-project.io/v1alpha1
kind: Eventing
metadata:
  creationTimestamp: "2022-12-05T19:53:13Z"
  finalizers:
  - eventing-manager.kyma-project.io/deletion-hook
  generation: 1
  labels:
    operator.kyma-project.io/kyma-name: eventing-sample
  name: default-kyma-eventing
  namespace: kcp-system
  resourceVersion: "883"
  uid: 9b7c0c06-aa3e-43ba-88b6-23a589a34fcc
spec:
  backend:
    type: nats
status:
  state: Ready
`
	// small is a default object that fits into pods that are processes: one server.
	small = `apiVersion: operator.kyma-project.io/v1alpha1
kind: Eventing
metadata: {name: eventing, namespace: kyma-system}
spec:
  backend: {type: NATS, config: {natsStreamReplicas: 1, natsStreamMaxSize: 10Mi, natsStorage: {size: 100Mi, sync: Interval}}}
  publisher: {replicas: {min: 1, max: 1}}
  controller: {replicas: 1}
`
)

// site is a cluster with lifecycle-manager's stand-in, a registry, and a node whose pods are the
// real programs.
type site struct {
	t      *testing.T
	client dynamic.Interface
	pods   *eventingpods.Pods
	sinks  *sinks.Sinks
	key    *ecdsa.PrivateKey
	*lifecycle
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t}
	d, core, _ := client(t)
	s.client = d
	namespaces(t, core, namespace, controlPlane, "shop")
	_, err := core.StorageV1().StorageClasses().Create(t.Context(), node.Class("standard", true, storagev1.VolumeBindingWaitForFirstConsumer), metav1.CreateOptions{})
	s.check(err)
	s.check(cluster.InstallCRDFiles(t.Context(), lifecycleKinds, "crds"))
	s.pods, s.sinks = eventingpods.New(t, cluster), sinks.Start(t)
	url, err := s.pods.NATS.URL(namespace, "eventing-nats-0")
	s.check(err)
	url = strings.Replace(url, "127.0.0.1", "localhost", 1) // which the certificate names
	s.pods.More[eventingpods.Manager] = []string{"--nats-url=" + url, "--nats-client-url=" + url, "--drain-delay=1s", "--drain-watch=1s"}
	s.pods.More[eventingpods.Controller] = []string{"--dns-server=" + s.sinks.DNS}
	dir, err := os.MkdirTemp("", "module-node-") //nolint:usetesting // a comma in the name of the test ends a path in the configuration of NATS
	s.check(err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	node, err := node.Start(context.WithoutCancel(t.Context()), cluster.Config(), node.Options{Run: s.pods.Run, Directory: dir, Log: t.Logf})
	s.check(err)
	t.Cleanup(func() {
		if t.Failed() { // or the other tests of the package would fail, too
			_, _ = d.Resource(eventings).Namespace(namespace).Patch(context.WithoutCancel(t.Context()), "eventing", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			_ = d.Resource(eventings).Namespace(namespace).Delete(context.WithoutCancel(t.Context()), "eventing", metav1.DeleteOptions{})
		}
		node.Stop()
	})
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.check(err)
	s.lifecycle = &lifecycle{client: d, registry: strings.TrimPrefix(server.URL, "http://") + "/eventing", key: &s.key.PublicKey, modules: map[string]*module{}}
	return s
}

func (s *site) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// publish packs a version, and pushes it with its signature. The control plane gets its
// ModuleTemplate.
func (s *site) publish(version string, channels ...bundle.Channel) bundle.Files {
	s.t.Helper()
	of := source(s.t)
	of.Version, of.Channels, of.CRs[defaultCR] = version, channels, []byte(small)
	files := render(s.t, of, s.registry)
	for _, f := range bundle.Verify(s.t.Context(), files, bundle.Against{}) {
		s.t.Error(f)
	}
	ref, err := files.Push(s.t.Context(), s.registry)
	s.check(err)
	s.check(artifact.Sign(s.t.Context(), ref, s.key))
	s.submit(files, "moduletemplate-eventing-"+version+".yaml")
	s.submit(files, "module-release-meta.yaml")
	return files
}

// submit applies a file in the control plane, strictly: a field that lifecycle-manager does not
// know would have no effect.
func (s *site) submit(files bundle.Files, name string) {
	s.t.Helper()
	u := objects(s.t, files[name])[0]
	raw, err := u.MarshalJSON()
	s.check(err)
	_, err = of(s.client, u).Patch(s.t.Context(), u.GetName(), types.ApplyPatchType, raw, metav1.PatchOptions{FieldManager: "argo", FieldValidation: metav1.FieldValidationStrict})
	s.check(err)
}

// channels changes what the channels have, as a promotion does.
func (s *site) channels(all ...bundle.Channel) {
	s.t.Helper()
	of := source(s.t)
	of.Channels = all
	name, raw := of.ReleaseMeta()
	s.submit(bundle.Files{name: raw}, name)
}

// edit patches the spec of the Kyma.
func (s *site) edit(spec string) {
	s.t.Helper()
	_, err := s.client.Resource(kymas).Namespace(controlPlane).Patch(s.t.Context(), "default-kyma", types.MergePatchType, []byte(`{"spec": `+spec+`}`), metav1.PatchOptions{})
	s.check(err)
}

// until syncs until the Kyma is ready, and holds holds.
func (s *site) until(what string, holds func(modules []any) error) *unstructured.Unstructured {
	s.t.Helper()
	var kyma *unstructured.Unstructured
	poll.Until(s.t, 3*time.Minute, what, func(ctx context.Context) (err error) {
		if kyma, err = s.sync(context.WithoutCancel(ctx), "default-kyma"); err != nil {
			return err
		}
		modules, _, _ := unstructured.NestedSlice(kyma.Object, "status", "moduleStatus")
		if state, _, _ := unstructured.NestedString(kyma.Object, "status", "state"); state != ready {
			return fmt.Errorf("the Kyma is %s: %v", state, modules)
		}
		return holds(modules)
	})
	return kyma
}

// has waits until the Kyma is ready with a version, and eventing with it: all programs have that
// version's images.
func (s *site) has(version string) {
	s.t.Helper()
	s.until("the Kyma has version "+version, func(modules []any) error {
		if len(modules) != 1 {
			return fmt.Errorf("modules %v", modules)
		}
		if got, _, _ := unstructured.NestedString(modules[0].(map[string]any), "templateInfo", "version"); got != version {
			return fmt.Errorf("version %s", got)
		}
		return nil
	})
	want := map[string]string{}
	of := source(s.t)
	of.Version = version
	for _, i := range images(s.t, of, s.registry) {
		want[i.Name] = i.Repository + "/" + i.Name + ":" + version + "@" + i.Digest
	}
	poll.Until(s.t, 3*time.Minute, "eventing is ready with "+version, func(ctx context.Context) error {
		u, err := s.client.Resource(eventings).Namespace(namespace).Get(ctx, "eventing", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if state, _, _ := unstructured.NestedString(u.Object, "status", "state"); state != ready {
			return fmt.Errorf("the Eventing: %v", u.Object["status"])
		}
		got := map[string]string{}
		for _, gvr := range []schema.GroupVersionResource{deployments, statefulSets} {
			list, err := s.client.Resource(gvr).Namespace(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, w := range list.Items {
				containers, _, _ := unstructured.NestedSlice(w.Object, "spec", "template", "spec", "containers")
				image, _, _ := unstructured.NestedString(containers[0].(map[string]any), "image")
				got[image[strings.LastIndex(image, "/")+1:strings.LastIndex(image, "/")+strings.Index(image[strings.LastIndex(image, "/"):], ":")]] = image
				replicas, _, _ := unstructured.NestedInt64(w.Object, "spec", "replicas")
				for _, count := range []string{"replicas", "updatedReplicas", "availableReplicas"} {
					if n, _, _ := unstructured.NestedInt64(w.Object, "status", count); n != replicas {
						return fmt.Errorf("%s %s has %d of %d %s", w.GetKind(), w.GetName(), n, replicas, count)
					}
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// publishes sends events, and returns when all are accepted.
func (s *site) publishes(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		poll.Until(s.t, time.Minute, "event "+id+" is accepted", func(ctx context.Context) error {
			err := errors.New("no pod of the publisher runs")
			for _, address := range s.pods.At(eventingpods.Publisher, 8080) {
				if err = post(ctx, "http://"+address+"/publish", id); err == nil {
					return nil
				}
			}
			return err
		})
	}
}

func post(ctx context.Context, url, id string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader([]byte("{}")))
	if err != nil {
		return err
	}
	request.Header = http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {id}, "Ce-Source": {"commerce"}, "Ce-Type": {"order.created.v1"}, "Content-Type": {"application/json"}}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("the publisher answers %s", response.Status)
	}
	return nil
}

func numbered(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s-%d", prefix, i))
	}
	return all
}

// TestTheUsersObjects: both objects of the users' document are taken, but for what only an API
// server writes.
func TestTheUsersObjects(t *testing.T) {
	d, core, _ := client(t)
	namespaces(t, core, namespace, controlPlane)
	if err := cluster.InstallCRDFiles(t.Context(), lifecycleKinds, "crds"); err != nil {
		t.Fatal(err)
	}
	all := objects(t, render(t, source(t), "registry.example/eventing")[manifest])
	t.Cleanup(func() { remove(t, d, all) })
	if _, err := apply(t.Context(), d, all); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{theKyma, theEventing} {
		asShown := objects(t, []byte(text))[0]
		if _, err := of(d, asShown).Create(t.Context(), asShown, metav1.CreateOptions{}); err == nil {
			t.Errorf("%s: an API server takes a resourceVersion now: apply it as it is shown", asShown.GetKind())
		}
		u, err := verbatim(text)
		if err != nil {
			t.Fatal(err)
		}
		status := u.DeepCopy()
		created, err := of(d, u).Create(t.Context(), u, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_, _ = of(d, u).Patch(context.WithoutCancel(t.Context()), u.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			remove(t, d, []*unstructured.Unstructured{u})
		})
		status.SetResourceVersion(created.GetResourceVersion())
		updated, err := of(d, u).UpdateStatus(t.Context(), status, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(status.Object["status"], updated.Object["status"]); diff != "" {
			t.Errorf("status of %s (-document +API server):\n%s", u.GetKind(), diff)
		}
	}
}

// TestLifecycle: the module is added to a Kyma, upgraded with stored events, goes back, is removed,
// and is added again. It is known only by what was published, and its programs run as the manifest
// says, each with the account of its pod.
func TestLifecycle(t *testing.T) {
	if !all {
		t.Skip("make test-slow has it")
	}
	s := newSite(t)
	first := s.publish("0.1.0", bundle.Channel{Channel: "fast", Version: "0.1.0"}, bundle.Channel{Channel: "regular", Version: "0.1.0"}, bundle.Channel{Channel: "alpha", Version: "0.1.0"})
	kyma, err := verbatim(theKyma)
	s.check(err)
	_, err = of(s.client, kyma).Create(t.Context(), kyma, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	s.check(err)

	// Added, by the channel that the document names.
	s.has("0.1.0")
	now := s.until("the status", func([]any) error { return nil })
	got, _, _ := unstructured.NestedSlice(now.Object, "status", "moduleStatus")
	info, _, _ := unstructured.NestedMap(got[0].(map[string]any), "templateInfo")
	want := map[string]any{
		"channel": "alpha", "generation": int64(1), "name": "eventing-0.1.0", "namespace": controlPlane, "version": "0.1.0",
		"gvk": map[string]any{"group": "operator.kyma-project.io", "kind": "Manifest", "version": "v1alpha1"},
	}
	if diff := cmp.Diff(want, info); diff != "" {
		t.Errorf("templateInfo (-want +got):\n%s", diff)
	}
	conditions, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions")
	if c := conditions[0].(map[string]any); c["reason"] != "ModulesAreReady" || c["message"] != "all modules are in ready state" || c["status"] != "True" {
		t.Errorf("condition %v", c)
	}
	eventing, err := s.client.Resource(eventings).Namespace(namespace).Get(t.Context(), "eventing", metav1.GetOptions{})
	s.check(err)
	if eventing.GetLabels()[kymaNameLabel] != "" || !slices.Contains(eventing.GetFinalizers(), "eventing-manager.kyma-project.io/deletion-hook") {
		t.Errorf("labels %v, finalizers %v", eventing.GetLabels(), eventing.GetFinalizers())
	}

	// Used. What the user edits stays.
	for _, text := range []string{
		"{apiVersion: v1, kind: Service, metadata: {name: orders, namespace: shop}, spec: {ports: [{port: 80}]}}",
		"{apiVersion: eventing.kyma-project.io/v1alpha2, kind: Subscription, metadata: {name: orders, namespace: shop}, spec: {sink: '" + s.sinks.URL("orders", "shop") + "', source: commerce, types: [order.created.v1]}}",
	} {
		u := objects(t, []byte(text))[0]
		_, err := of(s.client, u).Create(t.Context(), u, metav1.CreateOptions{})
		s.check(err)
	}
	poll.Until(t, time.Minute, "the Subscription is ready", func(ctx context.Context) error {
		u, err := s.client.Resource(subscriptions).Namespace("shop").Get(ctx, "orders", metav1.GetOptions{})
		if ready, _, _ := unstructured.NestedBool(u.Object, "status", "ready"); err == nil && !ready {
			err = fmt.Errorf("%v", u.Object["status"])
		}
		return err
	})
	s.publishes("first")
	s.sinks.Await(t, "orders", 30*time.Second, "first")
	_, err = s.client.Resource(eventings).Namespace(namespace).Patch(t.Context(), "eventing", types.MergePatchType, []byte(`{"spec":{"logging":{"logLevel":"Debug"}}}`), metav1.PatchOptions{})
	s.check(err)

	// A new version is in one channel only. Then it is promoted, while events are stored that
	// nobody takes.
	s.edit(`{"modules": [{"name": "eventing", "channel": "regular"}]}`)
	s.publish("0.2.0", bundle.Channel{Channel: "fast", Version: "0.2.0"}, bundle.Channel{Channel: "regular", Version: "0.1.0"})
	s.has("0.1.0")
	s.sinks.Answer("orders", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	stored := numbered("stored", 100)
	s.publishes(stored...)
	s.channels(bundle.Channel{Channel: "fast", Version: "0.2.0"}, bundle.Channel{Channel: "regular", Version: "0.2.0"})
	s.has("0.2.0")
	s.sinks.Answer("orders", nil)
	s.sinks.Await(t, "orders", 2*time.Minute, stored...)
	if stays := left(t, s.client, s.modules["eventing"].objects); len(stays) > 0 {
		t.Errorf("of the former version, %q are left", stays)
	}

	// Back, as somebody would who applies the older manifest; and forward.
	s.channels(bundle.Channel{Channel: "regular", Version: "0.1.0"})
	s.has("0.1.0")
	s.publishes("back")
	s.sinks.Await(t, "orders", time.Minute, "back")
	s.channels(bundle.Channel{Channel: "regular", Version: "0.2.0"})
	s.has("0.2.0")
	s.publishes("forward")
	s.sinks.Await(t, "orders", time.Minute, "forward")
	eventing, err = s.client.Resource(eventings).Namespace(namespace).Get(t.Context(), "eventing", metav1.GetOptions{})
	s.check(err)
	if level, _, _ := unstructured.NestedString(eventing.Object, "spec", "logging", "logLevel"); level != "Debug" {
		t.Errorf("the level of the user is %q after three changes of the version", level)
	}

	// Removed. A Subscription that is left stops it, and the operator is still there to say so.
	s.edit(`{"modules": []}`)
	poll.Until(t, time.Minute, "the Eventing says that a Subscription is left", func(ctx context.Context) error {
		if _, err := s.sync(context.WithoutCancel(ctx), "default-kyma"); err != nil {
			return err
		}
		u, err := s.client.Resource(eventings).Namespace(namespace).Get(ctx, "eventing", metav1.GetOptions{})
		if err == nil && !strings.Contains(fmt.Sprint(u.Object["status"]), "SubscriptionsExist") {
			err = fmt.Errorf("%v", u.Object["status"])
		}
		return err
	})
	s.check(s.client.Resource(subscriptions).Namespace("shop").Delete(t.Context(), "orders", metav1.DeleteOptions{}))
	s.until("the module is gone", func(modules []any) error {
		if len(modules) > 0 {
			return fmt.Errorf("%v", modules)
		}
		return nil
	})
	d, core, _ := client(t)
	poll.Until(t, time.Minute, "nothing of the module is left", func(ctx context.Context) error {
		for _, u := range objects(t, first[manifest]) {
			if _, err := of(d, u).Get(ctx, u.GetName(), metav1.GetOptions{}); poll.Gone(err) != nil || err == nil {
				return fmt.Errorf("%s %s is left: %w", u.GetKind(), u.GetName(), err)
			}
		}
		pods, err := core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%d pods are left", len(pods.Items))
		}
		return err
	})
	volumes, err := s.client.Resource(claims).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
	s.check(err)
	if len(volumes.Items) != 1 {
		t.Errorf("%d volumes are left, want the one of NATS", len(volumes.Items))
	}

	// Added again, with the volume that stayed.
	s.edit(`{"modules": [{"name": "eventing"}]}`)
	s.has("0.2.0")

	// The Kyma is deleted.
	s.check(s.client.Resource(kymas).Namespace(controlPlane).Delete(t.Context(), "default-kyma", metav1.DeleteOptions{}))
	poll.Until(t, 2*time.Minute, "the Kyma is gone", func(ctx context.Context) error {
		_, err := s.sync(context.WithoutCancel(ctx), "default-kyma")
		if err == nil {
			return errors.New("it is there")
		}
		return poll.Gone(err)
	})

	// What somebody else has pushed is not applied.
	s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.check(err)
	s.publish("0.3.0", bundle.Channel{Channel: "regular", Version: "0.3.0"})
	if _, err := s.pull(t.Context(), "eventing", "0.3.0", "kyma-project.io/module/eventing"); !errors.Is(err, artifact.ErrSignature) {
		t.Errorf("an artifact with another key: %v", err)
	}
}
