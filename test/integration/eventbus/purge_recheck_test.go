package eventbus

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// TestPurgeTakesNoNewSubscription makes a Kyma Subscription while the purge removes
// what comes before the definition: it is not lost with its kind, and the report names
// it. It fails on the commit before: the Subscription was gone, the run succeeded
// without a word, and undo said that everything is as it was before.
func TestPurgeTakesNoNewSubscription(t *testing.T) {
	l := newLeftovers(t)
	ctx := t.Context()
	l.reset(ctx, t)
	subs := l.dynamic.Resource(standin.KymaSubscriptions).Namespace("shop")
	before := l.snapshot(t)

	// The last write before the deletion of the definition takes a finalizer off.
	for _, at := range []struct{ name, verb, resource string }{
		{"WithTheFirstDelivery", "delete", "subscriptions"},
		{"WithTheLastFinalizer", "patch", "eventactivations"},
	} {
		t.Run(at.name, func(t *testing.T) {
			proxy, err := faultproxy.Start(cluster.Config())
			if err != nil {
				t.Fatal(err)
			}
			defer proxy.Close()
			var once sync.Once
			var late *unstructured.Unstructured
			proxy.Use(func(ctx context.Context, r faultproxy.Request, next faultproxy.Next) (*http.Response, error) {
				if r.Is(at.resource, at.verb) {
					once.Do(func() {
						var err error
						if late, err = subs.Create(ctx, standin.KymaSubscription("shop", "late", "commerce", "order.created"), metav1.CreateOptions{}); err != nil {
							t.Error(err)
						}
					})
				}
				return next()
			})
			r := l.runAt(t, proxy.Config(), "run", "yes")
			if late == nil {
				t.Fatalf("nothing was written at that place:\n%s", problems(r))
			}
			got, err := subs.Get(ctx, "late", metav1.GetOptions{})
			if err != nil || got.GetUID() != late.GetUID() || got.GetDeletionTimestamp() != nil {
				t.Fatalf("the Subscription is lost: %v\n%s", err, problems(r))
			}
			if r.Result != migration.DeferredResult || !strings.Contains(problems(r), "Subscription shop/late") {
				t.Errorf("%s, exit code %d; the Subscription is not named:\n%s", r.Result, r.ExitCode(), problems(r))
			}
			if _, err := l.dynamic.Resource(crdResource).Get(ctx, subscriptionCRD, metav1.GetOptions{}); err != nil {
				t.Errorf("the definition: %v", err)
			}

			// What was removed before comes back, and the Subscription stays.
			want(t, l.run(t, "undo"), migration.Succeeded, migration.ExitOK)
			if got, err := subs.Get(ctx, "late", metav1.GetOptions{}); err != nil || got.GetUID() != late.GetUID() {
				t.Errorf("the Subscription after undo: %v", err)
			}
			if _, err := subs.Patch(ctx, "late", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := subs.Delete(ctx, "late", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			l.unchanged(t, before)
		})
	}
}

// TestPurgeWhileKnativeCounts: the Knative Eventing of Kyma 1.10 and 1.11 lists in a
// Channel who subscribes to it, so that the deletion of a Knative Subscription changes
// its Channel. Fails on the commit before: the Channel was left, as one that somebody had
// edited after the plan was made.
func TestPurgeWhileKnativeCounts(t *testing.T) {
	l := newLeftovers(t)
	ctx := t.Context()
	l.reset(ctx, t)
	subscribers := func(ctx context.Context, list string) {
		for _, obj := range l.objects {
			if obj.GetKind() != "Channel" {
				continue
			}
			if _, err := l.dynamic.Resource(busChannelKind).Namespace(standin.SystemNamespace).Patch(ctx, obj.GetName(), types.MergePatchType,
				[]byte(`{"spec":{"subscribable":{"subscribers":`+list+`}}}`), metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		}
	}
	subscribers(ctx, `[{"uid":"one","generation":1,"subscriberURI":"http://on-order.shop:8080/"}]`)
	proxy, err := faultproxy.Start(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	var once sync.Once
	proxy.Use(func(ctx context.Context, r faultproxy.Request, next faultproxy.Next) (*http.Response, error) {
		response, err := next()
		if r.Is("subscriptions", "delete") {
			once.Do(func() { subscribers(ctx, "null") })
		}
		return response, err
	})
	want(t, l.runAt(t, proxy.Config(), "run", "yes"), migration.Succeeded, migration.ExitOK)
	l.done(ctx, t)
}

// TestPurgeNamesLeakedChannels: a Channel that the subscription-controller left is named,
// one with a subscriber of anybody is not.
func TestPurgeNamesLeakedChannels(t *testing.T) {
	l := newLeftovers(t)
	ctx := t.Context()
	leaked := standin.BusChannel("v1alpha1", "commerce", "leaked")
	l.objects = append(l.objects, leaked)
	l.reset(ctx, t)
	found := problems(l.run(t, "plan"))
	if n := strings.Count(found, "no Knative Subscription subscribes to it"); n != 1 || !strings.Contains(found, "Channel kyma-system/"+leaked.GetName()) {
		t.Errorf("%d leaked Channels are named, want 1:\n%s", n, found)
	}
}

// asV1beta1 lets a client see the definition as one that was made at v1beta1: it
// prunes nothing, and has no schema. This server would not create it.
func asV1beta1(t *testing.T, proxy *faultproxy.Proxy) {
	t.Helper()
	proxy.Use(func(_ context.Context, r faultproxy.Request, next faultproxy.Next) (*http.Response, error) {
		response, err := next()
		if err != nil || r.Verb != "get" || r.Name != subscriptionCRD || response.StatusCode != http.StatusOK {
			return response, err
		}
		raw, err := io.ReadAll(response.Body)
		if err != nil {
			return nil, err
		}
		_ = response.Body.Close()
		crd := map[string]any{}
		if err := json.Unmarshal(raw, &crd); err != nil {
			return nil, err
		}
		asOld(crd)
		if raw, err = json.Marshal(crd); err != nil {
			return nil, err
		}
		response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
		response.Header.Set("Content-Length", strconv.Itoa(len(raw)))
		response.Header.Del("Content-Encoding")
		return response, nil
	})
}

func asOld(crd map[string]any) {
	spec := crd["spec"].(map[string]any)
	spec["preserveUnknownFields"] = true
	for _, v := range spec["versions"].([]any) {
		delete(v.(map[string]any), "schema")
	}
}

// TestRestorable: a dry run says whether the API server would create an object, also
// while one of its name exists, and stores nothing.
func TestRestorable(t *testing.T) {
	l := newLeftovers(t)
	ctx := t.Context()
	l.reset(ctx, t)
	e, err := engine.New(cluster.Config(), engine.Options{Names: cli.Names, StateNamespace: kyma.StateNamespace, Identity: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	ref := migration.Ref{Resource: migration.Resource{GroupVersionResource: cluster.CRDs(), Kind: "CustomResourceDefinition"}, Name: subscriptionCRD}
	live, err := l.dynamic.Resource(ref.GroupVersionResource).Get(ctx, subscriptionCRD, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Cluster().TryCreate(ctx, ref, live); err != nil {
		t.Errorf("as it is: %v", err)
	}
	old, err := l.dynamic.Resource(crdResource).Get(ctx, subscriptionCRD, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	asOld(old.Object)
	ref.Version = crdResource.Version
	if err := e.Cluster().TryCreate(ctx, ref, old); !apierrors.IsInvalid(err) {
		t.Errorf("in the form of v1beta1: %v", err)
	}
	ref.Version = cluster.CRDs().Version
	absent := live.DeepCopy()
	absent.SetName("others.example.com")
	spec := absent.Object["spec"].(map[string]any)
	spec["group"], spec["names"] = "example.com", map[string]any{"kind": "Other", "plural": "others"}
	ref.Name = absent.GetName()
	if err := e.Cluster().TryCreate(ctx, ref, absent); err != nil {
		t.Errorf("one that does not exist: %v", err)
	}
	if _, err := l.dynamic.Resource(crdResource).Get(ctx, absent.GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it was stored: %v", err)
	}
	now, err := l.dynamic.Resource(crdResource).Get(ctx, subscriptionCRD, metav1.GetOptions{})
	if err != nil || now.GetResourceVersion() != live.GetResourceVersion() {
		t.Errorf("it was changed: %v", err)
	}
}

// keepsUnknown checks that the definition serves Kyma Subscriptions, and prunes nothing.
func (l *leftovers) keepsUnknown(ctx context.Context, t *testing.T) {
	t.Helper()
	shop := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop"}}}
	if _, err := l.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(ctx, shop, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	subs := l.dynamic.Resource(standin.KymaSubscriptions).Namespace("shop")
	sub := standin.KymaSubscription("shop", "odd", "commerce", "order.created")
	sub.SetFinalizers(nil)
	sub.Object["spec"].(map[string]any)["unknown"] = map[string]any{"deep": "kept"}
	eventually(t, "a Subscription can be created", func(ctx context.Context) error {
		_, err := subs.Create(ctx, sub, metav1.CreateOptions{})
		return err
	})
	got, err := subs.Get(ctx, "odd", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if deep, _, _ := unstructured.NestedString(got.Object, "spec", "unknown", "deep"); deep != "kept" {
		t.Errorf("it was pruned: %v", got.Object["spec"])
	}
	if err := subs.Delete(ctx, "odd", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestPurgeAtV1beta1: where v1 and v1beta1 are both served, a definition that was made
// at v1beta1 is restored as exactly that, also the second time. It fails without what
// readDefinition does for it: read at v1 it could not be created there, undo and the
// next run ended with exit code 3.
func TestPurgeAtV1beta1(t *testing.T) {
	if cluster.CRDs().Version != "v1beta1" {
		t.Skip("apiextensions v1beta1 is served before Kubernetes 1.22 only: make test-old")
	}
	l := newLeftovers(t)
	ctx := t.Context()
	l.reset(ctx, t)
	before := l.snapshot(t)
	plan := l.run(t, "plan")
	want(t, plan, migration.Planned, migration.ExitOK)
	for _, not := range []string{"would refuse to create it", "deleted for good"} {
		if strings.Contains(problems(plan), not) {
			t.Errorf("it can be restored as it is, but is said to be another case:\n%s", problems(plan))
		}
	}
	for range 2 {
		want(t, l.run(t, "run", "yes"), migration.Succeeded, migration.ExitOK)
		l.done(ctx, t)
		want(t, l.run(t, "undo"), migration.Succeeded, migration.ExitOK)
		restored, err := l.dynamic.Resource(cluster.CRDs()).Get(ctx, subscriptionCRD, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(l.definition.Object["spec"], restored.Object["spec"]); diff != "" {
			t.Errorf("the definition is another one (-was +is):\n%s", diff)
		}
		l.keepsUnknown(ctx, t)
		l.unchanged(t, before)
	}
}

// TestPurgeOfAnOldDefinition: where v1 alone is served, a definition that was made at
// v1beta1 is restored in the form that v1 accepts, and stores what it does not name, as
// before. It fails on the commit before: undo, and every run after it, ended with exit
// code 3.
func TestPurgeOfAnOldDefinition(t *testing.T) {
	if cluster.CRDs().Version != crdResource.Version {
		t.Skip("apiextensions v1beta1 is served before Kubernetes 1.22: see TestPurgeAtV1beta1")
	}
	l := newLeftovers(t)
	ctx := t.Context()
	if err := standin.ResetLeftovers(ctx, cluster.Config(), l.definition); err != nil {
		t.Fatal(err)
	}
	proxy, err := faultproxy.Start(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	asV1beta1(t, proxy)
	plan := l.runAt(t, proxy.Config(), "plan")
	want(t, plan, migration.Planned, migration.ExitOK)
	if !strings.Contains(problems(plan), "undo creates it in the form that apiextensions v1 accepts") || plan.Requests.Writes != 0 {
		t.Errorf("%d writes:\n%s", plan.Requests.Writes, problems(plan))
	}
	want(t, l.runAt(t, proxy.Config(), "run", "yes"), migration.Succeeded, migration.ExitOK)
	if _, err := l.dynamic.Resource(crdResource).Get(ctx, subscriptionCRD, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the definition is still there: %v", err)
	}
	want(t, l.run(t, "undo"), migration.Succeeded, migration.ExitOK)

	l.keepsUnknown(ctx, t)
	// Other tests need it as it was.
	if err := l.dynamic.Resource(crdResource).Delete(ctx, subscriptionCRD, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the definition is gone", func(ctx context.Context) error {
		_, err := l.dynamic.Resource(crdResource).Get(ctx, subscriptionCRD, metav1.GetOptions{})
		return poll.Gone(err)
	})
	l.reset(ctx, t)
}
