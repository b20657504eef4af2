package standin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// The tests share one control plane for each version of Knative.
var planes = map[kubernetes.KnativeVersion]*kubernetes.ControlPlane{}

func TestMain(m *testing.M) {
	kubernetes.Main(m, kubernetes.AlsoShort(), kubernetes.Before(startPlanes), kubernetes.After(func() error {
		var errs []error
		for _, plane := range planes {
			errs = append(errs, plane.Stop())
		}
		return errors.Join(errs...)
	}))
}

func startPlanes(ctx context.Context) error {
	versions := []kubernetes.KnativeVersion{kubernetes.KnativeV1alpha1, kubernetes.KnativeV1}
	// Somebody else's cluster cannot serve both.
	if kubernetes.Foreign() {
		versions = versions[:1]
	}
	for _, version := range versions {
		cp, err := kubernetes.Start(ctx)
		if err != nil {
			return err
		}
		planes[version] = cp
		if err := cp.InstallCRDs(ctx, version); err != nil {
			return err
		}
	}
	return nil
}

// forEach runs a test on every version of Knative, with an empty cluster and
// controllers that work.
func forEach(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane: run without -short")
	}
	for version, cp := range planes {
		t.Run(string(version), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			t.Cleanup(cancel)
			if _, err := Reset(ctx, cp.Config(), 0); err != nil {
				t.Fatal(err)
			}
			f := &fixture{cp: cp, ctx: ctx, failures: make(chan string, 100)}
			c, err := Start(ctx, cp.Config(), Options{Log: f.log})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Stop)
			f.Controllers = c
			test(t, f)
		})
	}
}

type fixture struct {
	*Controllers
	cp  *kubernetes.ControlPlane
	ctx context.Context
	// failures are what the controllers could not do.
	failures chan string
}

func (f *fixture) log(format string, args ...any) {
	select {
	case f.failures <- fmt.Sprintf(format, args...):
	default: // nobody listens any more
	}
}

// expectFailure returns when the controllers have failed with this message.
func (f *fixture) expectFailure(t *testing.T, message string) {
	t.Helper()
	for {
		select {
		case got := <-f.failures:
			if strings.Contains(got, message) {
				return
			}
		case <-f.ctx.Done():
			t.Fatalf("the controllers never failed with %q", message)
		}
	}
}

func (f *fixture) add(t *testing.T, app string) {
	t.Helper()
	if err := PutHTTPSources(f.ctx, f.cp.Config(), app); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) expectReady(t *testing.T, apps ...string) {
	t.Helper()
	if err := f.WaitReady(f.ctx, apps...); err != nil {
		t.Fatal(err)
	}
}

// expect returns when the store's own view holds.
func (f *fixture) expect(t *testing.T, what string, holds func() bool) {
	t.Helper()
	if err := f.await(f.ctx, holds); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// expectIdle waits until nothing is left to reconcile, and all requests are answered.
func (f *fixture) expectIdle(t *testing.T, what string) {
	t.Helper()
	f.expect(t, what, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.queue.Len() == 0 && f.busy == 0
	})
}

// live reads an object from the API server, nil if there is none.
func (f *fixture) live(t *testing.T, s *store, app string) *unstructured.Unstructured {
	t.Helper()
	u, err := s.resource.Namespace(IntegrationNamespace).Get(f.ctx, app, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// summary is what a fault is told by: Ready and its reason, or "none".
func summary(u *unstructured.Unstructured) string {
	if u == nil {
		return "none"
	}
	ready := conditionsOf(u)["Ready"]
	return strings.TrimSpace(ready.status + " " + ready.reason)
}

func (f *fixture) summaries(get func(*store) *unstructured.Unstructured) [3]string {
	return [3]string{summary(get(f.sources)), summary(get(f.channels)), summary(get(f.services))}
}

func key(app string) string { return IntegrationNamespace + "/" + app }

func TestReady(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.add(t, "shop")
		f.expectReady(t, "shop")
		src, ch, svc := f.live(t, f.sources, "shop"), f.live(t, f.channels, "shop"), f.live(t, f.services, "shop")

		owner := []metav1.OwnerReference{{
			APIVersion: "sources.kyma-project.io/v1alpha1", Kind: "HTTPSource", Name: "shop", UID: src.GetUID(),
			Controller: new(true), BlockOwnerDeletion: new(true),
		}}
		for _, owned := range []*unstructured.Unstructured{ch, svc} {
			if diff := cmp.Diff(owner, owned.GetOwnerReferences()); diff != "" {
				t.Errorf("owner of %s (-want +got):\n%s", owned.GetKind(), diff)
			}
		}
		if diff := cmp.Diff(map[string]string{"application-name": "shop"}, ch.GetLabels()); diff != "" {
			t.Errorf("labels of the Channel (-want +got):\n%s", diff)
		}
		env := map[string]any{}
		containers, _, _ := unstructured.NestedSlice(svc.Object, "spec", "template", "spec", "containers")
		for _, e := range containers[0].(map[string]any)["env"].([]any) {
			env[e.(map[string]any)["name"].(string)] = e.(map[string]any)["value"]
		}
		delete(env, "K_METRICS_CONFIG")
		delete(env, "K_LOGGING_CONFIG")
		const sink = "http://shop-kn-channel.kyma-integration.svc.cluster.local"
		wantEnv := map[string]any{"EVENT_SOURCE": "shop", "SINK_URI": sink, "NAMESPACE": "kyma-integration"}
		if diff := cmp.Diff(wantEnv, env); diff != "" {
			t.Errorf("environment of the adapter (-want +got):\n%s", diff)
		}

		status := src.Object["status"].(map[string]any)
		for _, c := range status["conditions"].([]any) {
			delete(c.(map[string]any), "lastTransitionTime")
		}
		// No observedGeneration, and a capital S.
		wantStatus := map[string]any{"SinkURI": sink, "conditions": []any{
			map[string]any{"type": "Deployed", "status": "True"},
			map[string]any{"type": "Ready", "status": "True"},
			map[string]any{"type": "SinkProvided", "status": "True"},
		}}
		if diff := cmp.Diff(wantStatus, status); diff != "" {
			t.Errorf("status of the HTTPSource (-want +got):\n%s", diff)
		}
	})
}

func TestWritesAreFew(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		if !f.cp.Own() {
			t.Skip("needs the audit log of a control plane of its own: unset " + kubernetes.KubeconfigEnv)
		}
		names := Names(20)
		mark, err := f.cp.Mark(f.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := PutHTTPSources(f.ctx, f.cp.Config(), names...); err != nil {
			t.Fatal(err)
		}
		f.expectReady(t, names...)
		f.expectIdle(t, "the last answers have come")
		writes, err := f.cp.Requests(f.ctx, mark, kubernetes.All(kubernetes.By(UserAgent), kubernetes.IsWrite))
		if err != nil {
			t.Fatal(err)
		}
		// The test's own creation, Channel and its status, adapter and its
		// status, and the HTTPSource's status.
		if want := 6 * len(names); len(writes) != want {
			t.Errorf("%d writes for %d HTTPSources, want %d:\n%v", len(writes), len(names), want, writes)
		}
	})
}

func TestFaults(t *testing.T) {
	type states struct{ source, channel, adapter string }
	cases := map[string]struct {
		reason string
		fault  Fault
		want   states
		// failure is what the controllers say instead of coming to rest.
		failure string
		// healed is whether the Application becomes ready without the fault.
		healed bool
	}{
		"ChannelRefused": {
			reason:  "Without its Channel the controller returns before it has written any status.",
			fault:   ChannelRefused,
			failure: "failed calling webhook",
			want:    states{"", "none", "none"},
			healed:  true,
		},
		"ChannelNeverReady": {
			reason: "The HTTPSource asks for the Channel's address only.",
			fault:  ChannelNeverReady,
			want:   states{"True", "False ChannelNotReady", "True"},
			healed: true,
		},
		"NoAddress": {
			reason: "The adapter is not made before the sink is resolved.",
			fault:  NoAddress,
			want:   states{"False SinkNotFound", "False emptyAddress", "none"},
			healed: true,
		},
		"AdapterNeverReady": {
			reason: "A failed revision is passed on as ServiceNotReady.",
			fault:  AdapterNeverReady,
			want:   states{"False ServiceNotReady", "True", "False RevisionFailed"},
			healed: true,
		},
		"StatusLies": {
			reason: "The status says ready although the Channel is gone.",
			fault:  StatusLies,
			want:   states{"True", "none", "True"},
			healed: true,
		},
		"AdapterNotReadyForLong": {
			reason: "While a revision comes up, nothing is decided yet.",
			fault:  AdapterNotReadyFor(time.Hour),
			want:   states{"False ServiceNotReady", "True", "Unknown RevisionMissing"},
			healed: true,
		},
		"AdapterNotReadyForShort": {
			reason: "A delay ends by itself.",
			fault:  AdapterNotReadyFor(50 * time.Millisecond),
			want:   states{"True", "True", "True"},
		},
		"VerySlow": {
			reason: "A slow cluster looks like one without an address first.",
			fault:  Slow(time.Hour),
			want:   states{"False SinkNotFound", "False emptyAddress", "none"},
			healed: true,
		},
		"Slow": {
			reason: "A slow cluster gets there.",
			fault:  Slow(50 * time.Millisecond),
			want:   states{"True", "True", "True"},
		},
	}
	forEach(t, func(t *testing.T, f *fixture) {
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				app := strings.ToLower(name)
				f.Break(tc.fault, app)
				f.add(t, app)
				if tc.failure != "" {
					f.expectFailure(t, tc.failure)
				}
				want := [3]string{tc.want.source, tc.want.channel, tc.want.adapter}
				var got [3]string
				if err := f.await(f.ctx, func() bool {
					got = f.summaries(func(s *store) *unstructured.Unstructured { return s.get(key(app)) })
					return got == want
				}); err != nil {
					t.Fatalf("%s\nHTTPSource, Channel, adapter (-want +got):\n%s", tc.reason, cmp.Diff(want, got))
				}
				got = f.summaries(func(s *store) *unstructured.Unstructured { return f.live(t, s, app) })
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s\nHTTPSource, Channel, adapter (-want +got):\n%s", tc.reason, diff)
				}
				f.Heal(tc.fault, app)
				if tc.healed {
					f.expectReady(t, app)
				}
			})
		}
	})
}

// TestStatusGoesStale also shows that a fault for all falls upon what was well,
// and that the status keeps quiet about it.
func TestStatusGoesStale(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.add(t, "shop")
		f.expectReady(t, "shop")
		f.Break(ChannelRefused)
		if err := f.channels.resource.Namespace(IntegrationNamespace).Delete(f.ctx, "shop", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		f.expectFailure(t, "failed calling webhook")
		want := [3]string{"True", "none", "True"}
		got := f.summaries(func(s *store) *unstructured.Unstructured { return f.live(t, s, "shop") })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("HTTPSource, Channel, adapter (-want +got):\n%s", diff)
		}
		f.HealAll()
		f.expectReady(t, "shop")
	})
}

func TestStatusLiesAboutWhatWasReady(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.add(t, "shop")
		f.add(t, "crm")
		f.expectReady(t, "shop", "crm")
		f.Break(StatusLies, "shop")
		f.expect(t, "the Channel goes", func() bool { return f.channels.get(key("shop")) == nil })
		want := [3]string{"True", "none", "True"}
		got := f.summaries(func(s *store) *unstructured.Unstructured { return f.live(t, s, "shop") })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("HTTPSource, Channel, adapter (-want +got):\n%s", diff)
		}
		if !f.ready("crm") {
			t.Error("another Application is affected")
		}
	})
}

func TestControllerDown(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Break(ControllerDown, "shop")
		f.add(t, "shop")
		// One that was added later is ready: so the first had its turn.
		f.add(t, "crm")
		f.expectReady(t, "crm")
		want := [3]string{"", "none", "none"}
		got := f.summaries(func(s *store) *unstructured.Unstructured { return f.live(t, s, "shop") })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("HTTPSource, Channel, adapter (-want +got):\n%s", diff)
		}
		f.Heal(ControllerDown)
		f.expectReady(t, "shop")
	})
}

func TestDeletedChannelIsMadeAnew(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		var uids []string
		note := func() bool {
			if ch := f.channels.get(key("shop")); ch != nil && (len(uids) == 0 || uids[len(uids)-1] != string(ch.GetUID())) {
				uids = append(uids, string(ch.GetUID()))
			}
			return len(uids) == 2 && f.ready("shop")
		}
		f.add(t, "shop")
		f.expect(t, "a first Channel", func() bool { note(); return f.ready("shop") })
		f.Break(DeleteChannelOnce, "shop")
		f.expect(t, "a second Channel", note)
	})
}

func TestForeignChannelIsOverwritten(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		foreign := object(f.channels.gvk, IntegrationNamespace, "shop", map[string]any{})
		foreign.SetLabels(map[string]string{"app": "somebody-else"})
		if err := Load(f.ctx, f.cp.Config(), foreign); err != nil {
			t.Fatal(err)
		}
		f.expect(t, "Knative makes the foreign Channel ready", func() bool { return isReady(f.channels.get(key("shop"))) })
		f.add(t, "shop")
		f.expectReady(t, "shop")
		ch := f.live(t, f.channels, "shop")
		if diff := cmp.Diff(map[string]string{"application-name": "shop"}, ch.GetLabels()); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		if !metav1.IsControlledBy(ch, f.live(t, f.sources, "shop")) {
			t.Error("the Channel has another controller than the HTTPSource")
		}
	})
}

// TestEditsAreReplaced holds what the HTTPSource controller compares, and that it replaces
// a Channel with all that Knative had noted in it.
func TestEditsAreReplaced(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.add(t, "shop")
		f.expectReady(t, "shop")
		// In this order: what replaces a Channel drops what others wrote into it before.
		for _, tc := range []struct {
			name  string
			store *store
			patch string
			kept  bool
		}{
			{"ChannelAnnotation", f.channels, `{"metadata":{"annotations":{"team":"sales"}},"spec":{"subscribable":{"subscribers":[{"uid":"u"}]}}}`, false},
			{"ChannelByAWebhook", f.channels, `{"metadata":{"annotations":{"messaging.knative.dev/creator":"me"}}}`, true},
			{"ChannelSubscribers", f.channels, `{"spec":{"subscribable":{"subscribers":[{"uid":"u"}]}}}`, true},
			{"AdapterAnnotation", f.services, `{"metadata":{"annotations":{"team":"sales"}}}`, false},
			{"AdapterTemplate", f.services, `{"spec":{"template":{"metadata":{"labels":{"team":"sales"}}}}}`, false},
		} {
			name := tc.name
			before := f.live(t, tc.store, "shop")
			edited, err := tc.store.resource.Namespace(IntegrationNamespace).Patch(f.ctx, "shop", types.MergePatchType, []byte(tc.patch), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			f.expect(t, name+" is seen", func() bool { return !newer(edited, tc.store.get(key("shop"))) })
			f.expectIdle(t, name+" is compared")
			want := before
			if tc.kept {
				want = edited
			}
			// The event of the edit may be in the store before its key is in the queue.
			differs := func() string {
				got := f.live(t, tc.store, "shop")
				return cmp.Diff(want.Object["spec"], got.Object["spec"]) + cmp.Diff(want.GetAnnotations(), got.GetAnnotations())
			}
			if !tc.kept {
				f.expect(t, name+" is replaced", func() bool { return differs() == "" })
			}
			if diff := differs(); diff != "" {
				t.Errorf("%s: spec and annotations (-want +got):\n%s", name, diff)
			}
			f.expectReady(t, "shop")
		}
	})
}

// TestKyma111 holds the other shape of what belongs to an HTTPSource, and what becomes of
// one of 1.10 when the controller is upgraded.
func TestKyma111(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.add(t, "shop")
		f.expectReady(t, "shop")
		first := f.live(t, f.services, "shop")
		if first.GetLabels()["application-name"] != "" || summary111(f.live(t, f.sources, "shop")) != "" {
			t.Errorf("1.10: labels %v, PolicyCreated %q", first.GetLabels(), summary111(f.live(t, f.sources, "shop")))
		}
		f.Stop()
		var err error
		if f.Controllers, err = Start(f.ctx, f.cp.Config(), Options{Log: f.log, Kyma111: true}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.Stop)
		f.expect(t, "the adapter is upgraded", func() bool {
			return isReady(f.services.get(key("shop"))) && f.services.get(key("shop")).GetLabels()["application-name"] == "shop" && summary111(f.sources.get(key("shop"))) == "True Info"
		})
		f.expectReady(t, "shop")
		second := f.live(t, f.services, "shop")
		revision := text(second, "status", "latestCreatedRevisionName")
		if revision == text(first, "status", "latestCreatedRevisionName") {
			t.Errorf("the adapter has its former revision %s", revision)
		}
		policy, err := f.client.Resource(Policies).Namespace(IntegrationNamespace).Get(f.ctx, revision+"-private", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if policy.GetLabels()["application-name"] != "shop" || !metav1.IsControlledBy(policy, f.live(t, f.sources, "shop")) {
			t.Errorf("Policy: %v", policy.Object["metadata"])
		}
	})
}

// summary111 is status and severity of the condition that only Kyma 1.11 has.
func summary111(u *unstructured.Unstructured) string {
	policy := conditionsOf(u)["PolicyCreated"]
	return strings.TrimSpace(policy.status + " " + policy.severity)
}

func TestGarbageCollectorRemovesWhatIsOwned(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.add(t, "shop")
		f.expectReady(t, "shop")
		if err := f.sources.resource.Namespace(IntegrationNamespace).Delete(f.ctx, "shop", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := f.WaitEmpty(f.ctx); err != nil {
			t.Errorf("Channel and adapter go with the HTTPSource: %v", err)
		}
	})
}

func TestSample(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		sample, err := LoadSample(f.ctx, f.cp.Config())
		if err != nil {
			t.Fatal(err)
		}
		if len(sample) < 20 {
			t.Errorf("%d Applications, want at least 20", len(sample))
		}
		f.expectReady(t, sample.In(InPlace, FrozenInPlace)...)
		for _, app := range sample.In(DeletedByHand, UpgradeFailed, InstallFailed, NeverInstalled, OptedOut) {
			if src := f.live(t, f.sources, app); src != nil {
				t.Errorf("%s has an HTTPSource", app)
			}
		}
		if _, err := LoadSample(f.ctx, f.cp.Config()); err != nil {
			t.Errorf("loading it twice: %v", err)
		}
		for _, bad := range BadApplications() {
			if err := Load(f.ctx, f.cp.Config(), bad.Objects...); err != nil {
				t.Errorf("bad Application %q: %v", bad.Name, err)
			}
		}
	})
}

func TestClearSparesOtherClusters(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		client, _, err := connect(f.cp.Config())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Put(f.ctx, f.cp.Config(), 1); err != nil {
			t.Fatal(err)
		}
		label := func(value string) {
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, madeForTests, value)
			if _, err := client.Resource(Applications).Patch(f.ctx, Names(1)[0], types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		label("null")
		defer label(`"true"`)
		if err := Clear(f.ctx, f.cp.Config()); err == nil {
			t.Error("a cluster with an Application that no test made was cleared")
		}
		if _, err := client.Resource(Applications).Get(f.ctx, Names(1)[0], metav1.GetOptions{}); err != nil {
			t.Errorf("its Application: %v", err)
		}
	})
}

func TestStartNeedsTheKinds(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane: run without -short")
	}
	if kubernetes.Foreign() {
		t.Skip("removes a CRD: needs a control plane of its own, unset " + kubernetes.KubeconfigEnv)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cp := planes[kubernetes.KnativeV1]
	if err := cp.RemoveCRD(ctx, "services.serving.knative.dev"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cp.InstallCRDs(ctx, kubernetes.KnativeV1); err != nil {
			t.Error(err)
		}
	}()
	_, err := Start(ctx, cp.Config(), Options{})
	if err == nil || !strings.Contains(err.Error(), "services.serving.knative.dev") {
		t.Errorf("Start without Knative Serving: %v, want an error that names services.serving.knative.dev", err)
	}
}

// TestGoneWhileNobodyWatched has a Service that was made and deleted while there was no watch, as
// after its CRD went and came back: no event tells of its end, and its HTTPSource was ready for
// ever.
func TestGoneWhileNobodyWatched(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		apps := Names(2)
		f.add(t, apps[0])
		f.expectReady(t, apps[0])
		gone := f.services.get(IntegrationNamespace + "/" + apps[0]).DeepCopy()
		gone.SetName(apps[1])
		gone.SetUID("7d0b7b0c-6f5e-4c53-8d44-0e4ff0c8ea86")
		f.services.wrote(gone)
		f.add(t, apps[1])
		f.expect(t, "the Service that is no more", func() bool {
			seen, there, _ := f.services.informer.GetStore().GetByKey(IntegrationNamespace + "/" + apps[1])
			return there && isReady(seen.(*unstructured.Unstructured))
		})
	})
}
