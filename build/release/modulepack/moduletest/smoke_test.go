package module_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/build/release/modulepack/bundle"
	"github.com/kyma-project/eventmesh-migration/build/release/modulepack/crd"
	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// bundles are the one to test, and the one before: those that make module-check names, or one of
// this repository and a copy of it with another version, other images, and an object that is gone.
func bundles(t *testing.T) (former, now bundle.Files) {
	t.Helper()
	read := func(variable string) bundle.Files {
		dir := os.Getenv(variable)
		if dir == "" {
			return nil
		}
		files, err := bundle.ReadFiles(dir)
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	now, former = read("MODULE_BUNDLE"), read("MODULE_PREVIOUS")
	if now == nil {
		now = render(t, source(t), "registry.example/eventing")
	}
	if former == nil {
		former = bundle.Files{}
		for name, raw := range now {
			former[name] = raw
		}
		version := []byte("app.kubernetes.io/version: ")
		if !bytes.Contains(now[manifest], version) || !bytes.Contains(now[manifest], []byte("@sha256:")) {
			t.Fatal("the manifest has no versions or no digests")
		}
		former[manifest] = bytes.ReplaceAll(bytes.ReplaceAll(now[manifest], version, []byte("app.kubernetes.io/version: 0.0.0-")), []byte("@sha256:"), []byte("@sha512:"))
	}
	return former, now
}

// TestSmoke is the common part of the submission pipeline: a bundle installs, again and over the
// one before, its objects are taken, and all of it can be removed. Nothing runs: what programs do
// is shown by TestLifecycle.
func TestSmoke(t *testing.T) {
	former, now := bundles(t)
	ctx := t.Context()
	d, core, said := client(t)
	namespaces(t, core, namespace, "kcp-system")
	was, is := objects(t, former[manifest]), objects(t, now[manifest])
	t.Cleanup(func() { remove(t, d, append(slices.Clone(was), is...)) })

	if _, err := apply(ctx, d, was); err != nil {
		t.Fatalf("the former version: %v", err)
	}
	user := create(t, d, former[defaultCR], "")
	spec := user.DeepCopy().Object["spec"]
	installed, err := apply(ctx, d, is)
	if err != nil {
		t.Fatalf("over the former version: %v", err)
	}
	again, err := apply(ctx, d, is)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(installed, again); diff != "" {
		t.Errorf("a second time, something changes (-first +second):\n%s", diff)
	}
	if stays := left(t, d, is); len(stays) > 0 {
		t.Errorf("of the former version, kubectl apply leaves %q: keep the names, or delete them in docs/eventing/module.md", stays)
	}
	kept, err := of(d, user).Get(ctx, user.GetName(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(spec, kept.Object["spec"]); diff != "" {
		t.Errorf("the user's object has changed with the version (-before +after):\n%s", diff)
	}
	for name, raw := range now {
		if strings.HasSuffix(name, "-cr.yaml") {
			create(t, d, raw, name)
		}
	}
	poll.Until(t, time.Minute, "a pod of the operator is admitted", func(ctx context.Context) error {
		pods, err := core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=operator"})
		if err == nil && len(pods.Items) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
	if len(said.all) > 0 {
		t.Errorf("the API server warns:\n%s", strings.Join(said.all, "\n"))
	}
	t.Run("ALeftoverIsFound", func(t *testing.T) {
		planted := objects(t, []byte("apiVersion: v1\nkind: Service\nmetadata: {name: planted, namespace: "+namespace+", labels: {app.kubernetes.io/part-of: eventing-manager}}\nspec: {ports: [{port: 80}]}\n"))
		if _, err := apply(ctx, d, planted); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { remove(t, d, planted) })
		if diff := cmp.Diff([]string{"Service planted"}, left(t, d, is)); diff != "" {
			t.Errorf("left (-want +got):\n%s", diff)
		}
	})
	t.Run("OfflineAsTheAPIServer", func(t *testing.T) { agree(t, now) })
}

// create creates the object of a file. A sample is only asked for, by a dry run.
func create(t *testing.T, d dynamic.Interface, raw []byte, sample string) *unstructured.Unstructured {
	t.Helper()
	options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	u := objects(t, raw)[0]
	if sample != "" {
		options.DryRun = []string{metav1.DryRunAll}
		u.SetName("sample") // the default object is there
	}
	created, err := of(d, u).Create(t.Context(), u, options)
	if err != nil {
		t.Fatalf("%s: %v", sample, err)
	}
	return created
}

// remove deletes objects, the last first, and waits until they are gone.
func remove(t *testing.T, d dynamic.Interface, all []*unstructured.Unstructured) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for _, u := range slices.Backward(all) {
		if err := of(d, u).Delete(ctx, u.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
	for _, u := range all {
		if u.GetKind() == "CustomResourceDefinition" {
			limited, cancel := context.WithTimeout(ctx, poll.Within(time.Minute))
			if err := cluster.RemoveCRD(limited, u.GetName()); err != nil {
				t.Error(err)
			}
			cancel()
			continue
		}
		if err := poll.For(ctx, time.Minute, u.GetKind()+" "+u.GetName()+" is gone", func(ctx context.Context) error {
			_, err := of(d, u).Get(ctx, u.GetName(), metav1.GetOptions{})
			return poll.Gone(err)
		}); err != nil {
			t.Error(err)
		}
	}
}

// agree asks the API server and modulepack about the same objects. Both have to say the same:
// verify is offline.
func agree(t *testing.T, files bundle.Files) {
	d, _, _ := client(t)
	validators := map[string]*crd.Validator{}
	for _, u := range objects(t, files[manifest]) {
		if u.GetKind() != "CustomResourceDefinition" {
			continue
		}
		raw, err := u.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		definition, err := crd.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if validators[definition.Spec.Names.Kind], err = crd.New(definition, definition.Spec.Versions[0].Name); err != nil {
			t.Fatal(err)
		}
	}
	const (
		eventing     = "{apiVersion: operator.kyma-project.io/v1alpha1, kind: Eventing, metadata: {name: asked, namespace: " + namespace + "}, spec: "
		subscription = "{apiVersion: eventing.kyma-project.io/v1alpha2, kind: Subscription, metadata: {name: asked, namespace: " + namespace + "}, spec: "
	)
	refused := 0
	for _, text := range []string{
		eventing + "{}}", eventing + "{backend: {type: nats}}}", eventing + "{backend: {type: EventMesh}}}", eventing + "{backend: {type: kafka}}}", eventing + "{backend: {typ: nats}}}",
		eventing + "{backend: {config: {natsStreamReplicas: 2}}}}", eventing + "{backend: {config: {natsStreamReplicas: 5}}}}", eventing + "{backend: {config: {natsStreamMaxSize: 2Gi}}}}",
		eventing + "{backend: {config: {natsStreamMaxSize: 2Gi, natsStorage: {size: 3Gi}}}}}", eventing + "{backend: {config: {natsStreamMaxSize: much}}}}",
		eventing + "{publisher: {replicas: {min: 3, max: 2}}}}", eventing + "{publisher: {replicas: {min: 2, max: 3}}}}", eventing + "{logging: {logLevel: Loud}}}",
		eventing + "{controller: {replicas: two}}}", eventing + "{labels: {a: 1}}}", eventing + "null}", eventing + "{backend: {config: {eventMeshSecret: a/b/c}}}}",
		subscription + "{sink: 'http://a.kyma-system.svc.cluster.local', source: commerce, types: [order.created.v1]}}", subscription + "{}}",
		subscription + "{sink: 'http://a.kyma-system.svc.cluster.local', source: commerce, types: []}}", subscription + "{sink: 'http://example.org', source: commerce, types: [a.b]}}",
		subscription + "{sink: 'http://a.kyma-system.svc.cluster.local', source: '', types: [a.b]}}", subscription + "{sink: 'http://a.kyma-system.svc.cluster.local', source: '', typeMatching: exact, types: [a.b]}}",
		subscription + "{sink: 'http://a.kyma-system.svc.cluster.local', source: '', typeMatching: exact, types: [commerce.order.created.v1, sap.kyma.custom.a.b.c.v1]}}",
		subscription + "{sink: 'http://a.kyma-system.svc.cluster.local', source: c, types: [a.b, a.b]}}", subscription + "{sink: 'http://a.kyma-system.svc.cluster.local', source: c, types: [a.b], config: {maxInFlightMessages: none}}}",
	} {
		u := objects(t, []byte(text))[0]
		faults, err := validators[u.GetKind()].Validate(t.Context(), u)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		_, err = of(d, u).Create(t.Context(), u, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll}})
		if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
			t.Fatalf("%s: %v", text, err)
		}
		if (err != nil) != (len(faults) > 0) {
			t.Errorf("%s: modulepack says %v, the API server %v", text, faults, err)
		}
		if err != nil {
			refused++
		}
	}
	if refused < 10 {
		t.Errorf("only %d objects were refused", refused)
	}
}

// TestManifestIsWhatHelmRenders: the manifest has the objects of the chart, as the real Helm
// renders them with the same values.
func TestManifestIsWhatHelmRenders(t *testing.T) {
	s := source(t)
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	h, err := helm.New(t.Context(), root, 4)
	if err != nil {
		t.Fatal(err)
	}
	set := "image.repository=registry.example/eventing,image.tag=" + s.Version
	for _, i := range images(t, s, "registry.example/eventing") {
		set += ",image.digests." + i.Name + "=" + i.Digest
	}
	text, err := h.Template(t.Context(), "eventing-manager", "charts/eventing-manager", "--namespace", namespace, "--kube-version", "1.36.0", "--include-crds", "--set", set)
	if err != nil {
		t.Fatal(err)
	}
	named := func(all []*unstructured.Unstructured) map[string]any {
		by := map[string]any{}
		for _, u := range all {
			by[u.GetKind()+" "+u.GetNamespace()+"/"+u.GetName()] = u.Object
		}
		return by
	}
	if diff := cmp.Diff(named(objects(t, []byte(text))), named(objects(t, render(t, s, "registry.example/eventing")[manifest]))); diff != "" {
		t.Errorf("objects (-Helm +modulepack):\n%s", diff)
	}
}
