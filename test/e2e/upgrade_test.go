//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// TestHelmUpgrade upgrades the stand-ins of Kyma's charts, with the hooks over
// them, from 1.10 to 1.12. Each combination takes some minutes: E2E says which one
// runs, or all.
func TestHelmUpgrade(t *testing.T) {
	inLane(t, &upgrades)
	chosen, err := combinations(os.Getenv("E2E"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range chosen {
		t.Run(c.String(), func(t *testing.T) { c.run(t) })
	}
}

// standard is the combination that runs unless E2E says otherwise: Kyma's own. It
// covers most. In the installer's order, the switch is the last upgrade: three
// failures more can happen before it than in the other order. With Helm 2, Tiller
// has releases of the Applications, and Helm says least of a failed hook. Only
// E2E=all or another version of Helm runs "helm test".
var standard = combination{"installer", 2}

// combinations returns those that a value of E2E names.
func combinations(which string) ([]combination, error) {
	var all []combination
	for _, order := range []string{"installer", "connector-first"} {
		for _, major := range helm.Versions {
			all = append(all, combination{order, major})
		}
	}
	switch which {
	case "all":
		return all, nil
	case "", "auto": // auto is for make: whether to run at all
		which = standard.String()
	}
	for _, c := range all {
		if c.String() == which {
			return []combination{c}, nil
		}
	}
	return nil, fmt.Errorf("E2E=%s is none of %v, and not all", which, all)
}

// TestCombinations: what a run covers is said by E2E alone, and not by the commit.
func TestCombinations(t *testing.T) {
	every := []string{
		"installer/helm2", "installer/helm3", "installer/helm4", "connector-first/helm2", "connector-first/helm3", "connector-first/helm4",
	}
	for which, want := range map[string][]string{
		"":                      {"installer/helm2"},
		"auto":                  {"installer/helm2"},
		"all":                   every,
		"connector-first/helm4": {"connector-first/helm4"},
		"helm4":                 nil,
	} {
		chosen, err := combinations(which)
		var got []string
		for _, c := range chosen {
			got = append(got, c.String())
		}
		if diff := cmp.Diff(want, got); diff != "" || (err != nil) != (want == nil) {
			t.Errorf("E2E=%s: %v (-want +got):\n%s", which, err, diff)
		}
	}
}

// combination is an order of the components and a version of Helm.
type combination struct {
	order string
	major int
}

func (c combination) String() string { return fmt.Sprintf("%s/helm%d", c.order, c.major) }

// components in the order in which they are upgraded to 1.11.
func (c combination) components() []string {
	if c.order == "connector-first" {
		return []string{"cluster-essentials", "application-connector", "core", "event-bus", "event-sources"}
	}
	return []string{"cluster-essentials", "core", "event-bus", "event-sources", "application-connector"}
}

func (c combination) run(t *testing.T) {
	u := newUpgrade(t, c.major)
	for _, component := range c.components() {
		u.must(t, component, "1.10")
	}
	u.load(t)
	before := state{HTTPSources: 1, Subscriptions: 2, Publisher: 2, Controller: 1, Definition: true}
	u.expect(t, "Kyma 1.10", before, nil)

	// The first chart that brings hooks. It fails in each way that its first half
	// can, is put back each time, and the next attempt succeeds.
	u.must(t, "cluster-essentials", "1.11")
	first := c.components()[1]
	rest := c.components()[2:]
	u.failing(t, first, before)

	expanded := state{HTTPSources: 2, Triggers: 2, Subscriptions: 2, Publisher: 2, Controller: 1, Definition: true}
	contracted := state{HTTPSources: 2, Triggers: 2, Definition: true}
	if first == "core" {
		u.must(t, "core", "1.11")
		u.expect(t, "core 1.11", expanded, []string{
			"pre-httpsource-sync: nothing-to-do", "pre-serviceinstance-recreate: nothing-to-do", "pre-trigger-sync: deferred",
			"post-trigger-sync: deferred", "post-eventbus-scaledown: deferred",
		})
		u.must(t, "event-bus", "1.11")
		u.must(t, "event-sources", "1.11")
		u.expect(t, "before the switch", expanded, nil)
		u.unswitched(t, expanded)
		u.undelivered(t, expanded)
		u.stuck(t, state{HTTPSources: 2, Triggers: 2, Publisher: 2, Controller: 1, Definition: true})
		u.must(t, "application-connector", "1.11")
		u.expect(t, "application-connector 1.11", contracted, []string{
			"pre-httpsource-sync: nothing-to-do", "pre-serviceinstance-recreate: nothing-to-do", "pre-trigger-sync: nothing-to-do",
			"post-eventservice-verify: nothing-to-do", "post-trigger-sync: nothing-to-do", "post-eventbus-scaledown: succeeded",
		})
	} else {
		u.must(t, "application-connector", "1.11")
		u.expect(t, "application-connector 1.11", contracted, []string{
			"pre-httpsource-sync: nothing-to-do", "pre-serviceinstance-recreate: nothing-to-do", "pre-trigger-sync: deferred",
			"post-eventservice-verify: nothing-to-do", "post-trigger-sync: succeeded", "post-eventbus-scaledown: succeeded",
		})
		for _, component := range rest {
			u.must(t, component, "1.11")
		}
		// An upgrade of the event-bus chart sets the replicas; the next run of any
		// hook takes them away again. Helm 2 changes only what the chart changes.
		if c.major > 2 {
			contracted.Publisher, contracted.Controller = 2, 1
		}
		u.expect(t, "event-bus 1.11", contracted, []string{
			"pre-httpsource-sync: nothing-to-do", "pre-serviceinstance-recreate: nothing-to-do", "pre-trigger-sync: nothing-to-do",
			"post-trigger-sync: nothing-to-do", "post-eventbus-scaledown: nothing-to-do",
		})
		contracted.Publisher, contracted.Controller = 0, 0
	}

	// Once more: nothing is left to do, whichever chart is upgraded.
	u.must(t, "application-connector", "1.11")
	scaledown := "post-eventbus-scaledown: nothing-to-do"
	if first != "core" && c.major > 2 {
		scaledown = "post-eventbus-scaledown: succeeded"
	}
	u.expect(t, "once more", contracted, []string{
		"pre-httpsource-sync: nothing-to-do", "pre-serviceinstance-recreate: nothing-to-do", "pre-trigger-sync: nothing-to-do",
		"post-eventservice-verify: nothing-to-do", "post-trigger-sync: nothing-to-do", scaledown,
	})

	// Helm 2 takes nothing but pods into a test.
	if c.major > 2 {
		u.progress(t, "helm test application-connector")
		if _, err := u.helm.Run(t.Context(), "test", "application-connector", "--namespace", namespaceOf("application-connector"), "--timeout", "5m"); err != nil {
			t.Fatal(err)
		}
		u.expect(t, "helm test", contracted, []string{"test-eventservice-verify: nothing-to-do"})
	}

	// Back to the revision before, which has hooks: the Event Bus is there again
	// and so are the Subscriptions that the last run deleted, which are all. What
	// carries live events stays.
	u.rollback(t, "application-connector")
	u.expect(t, "helm rollback", state{HTTPSources: 2, Triggers: 2, Subscriptions: 2, Publisher: 2, Controller: 1, Definition: true}, []string{
		"rollback-eventbus-scaledown: succeeded", "rollback-trigger-sync: succeeded",
	})

	// Kyma 1.12 with Subscriptions left: it stops, and nothing is lost.
	u.refused(t, "cluster-essentials", "1.12", "pre-eventbus-purge: refused")
	u.expect(t, "1.12 with Subscriptions left", state{HTTPSources: 2, Triggers: 2, Subscriptions: 2, Publisher: 2, Controller: 1, Definition: true}, nil)

	// Forward again, this time without hooks: one Job for each half.
	for _, half := range []struct {
		phase string
		jobs  []string
	}{
		{"pre", []string{"httpsource-sync", "serviceinstance-recreate", "trigger-sync"}},
		{"post", []string{"eventservice-verify", "trigger-sync", "eventbus-scaledown"}},
	} {
		said := u.withoutHooks(t, "application-connector", half.phase)
		for _, job := range half.jobs {
			if !strings.Contains(said, job+" run: ") {
				t.Errorf("%s did not run:\n%s", job, said)
			}
		}
	}
	u.expect(t, "forward again", contracted, nil)
	u.must(t, "cluster-essentials", "1.12")
	u.expect(t, "1.12", contracted, []string{"pre-eventbus-purge: planned"})
}

// failing lets the upgrade fail in each way that the first half can.
func (u *upgrade) failing(t *testing.T, component string, before state) {
	t.Helper()
	snapshot := u.snapshot(t)
	expanded := before
	expanded.HTTPSources = 2
	for _, tc := range []struct {
		name, hook, says string
		// fault breaks something, and returns how to mend it.
		fault func() (mend func())
		sets  []string
		after state
	}{{
		name: "an HTTPSource does not become ready", hook: "pre-httpsource-sync: rolled-back", says: "commerce",
		fault: func() func() {
			u.controllers.Break(standin.AdapterNeverReady, "commerce")
			return u.controllers.HealAll
		},
		sets:  []string{"eventmesh-migration.jobs.httpsource-sync.args[0]=--ready-timeout=3s"},
		after: before,
	}, {
		name: "a ServiceInstance could not come back", hook: "pre-serviceinstance-recreate: refused", says: "its ServicePlan does not exist any more",
		fault: func() func() { return u.unrecreatable(t) },
		after: expanded,
	}, {
		name: "a Trigger does not become ready", hook: "pre-trigger-sync: rolled-back", says: u.triggerOf("shop", "orders"),
		fault: func() func() { u.brokersStop(t); return func() { u.brokersGoOn(t) } },
		sets:  []string{"eventmesh-migration.jobs.trigger-sync.args[0]=--ready-timeout=3s"},
		after: expanded,
	}} {
		u.progress(t, "%s", tc.name)
		mend := tc.fault()
		out := u.refused(t, component, "1.11", tc.hook, tc.sets...)
		if !strings.Contains(out, tc.says) {
			t.Errorf("%s: neither Helm's output nor the log of the Job says %q:\n%s", tc.name, tc.says, out)
		}
		if tc.after == before {
			u.same(t, tc.name, snapshot)
		}
		u.expect(t, tc.name, tc.after, nil)
		mend()
	}

	// TestProber kills a hook in the middle, too, and the tests of the charts let Helm give up, on
	// hooks that are processes: what E2E names has it all.
	if which := os.Getenv("E2E"); which == "" || which == "auto" {
		return
	}
	// A hook that is killed in the middle, and the upgrade once more.
	u.progress(t, "a hook is killed")
	u.brokersStop(t)
	u.killing(t, component, "1.11", "pre-trigger-sync", func() bool { return u.count(t, "eventing.knative.dev", "triggers") > 0 })
	u.told(t)

	// The next one finishes its run, and Helm does not wait for that.
	u.abandoned(t, component, "1.11", "pre-trigger-sync", func() { u.brokersGoOn(t) })
	u.expect(t, "Helm gave up", state{HTTPSources: 2, Triggers: 2, Subscriptions: 2, Publisher: 2, Controller: 1, Definition: true}, []string{
		"pre-httpsource-sync: nothing-to-do", "pre-serviceinstance-recreate: nothing-to-do", "pre-trigger-sync: deferred",
	})
}

// unswitched is an upgrade after which application-operator does nothing.
func (u *upgrade) unswitched(t *testing.T, expanded state) {
	t.Helper()
	u.progress(t, "application-operator does nothing")
	u.operator.pause()
	out := u.refused(t, "application-connector", "1.11", "post-eventservice-verify: failed",
		"eventmesh-migration.jobs.eventservice-verify.args[0]=--per-application-timeout=1s", "eventmesh-migration.jobs.eventservice-verify.args[1]=--rollout-timeout=3s")
	if !strings.Contains(out, "commerce-event-service") {
		t.Errorf("it does not say which event-service has not switched:\n%s", out)
	}
	u.expect(t, "nothing has switched", expanded, nil)
	u.operator.proceed()
	u.rolledOut(t)
}

// undelivered is an upgrade while NATS Streaming still has events for a Kyma
// Subscription.
func (u *upgrade) undelivered(t *testing.T, expanded state) {
	t.Helper()
	u.progress(t, "events of the old path are in flight")
	u.inFlight.Store(true)
	out := u.refused(t, "application-connector", "1.11", "post-trigger-sync: failed", "eventmesh-migration.jobs.trigger-sync.args[0]=--drain-timeout=2s")
	if !strings.Contains(out, "shop/orders") {
		t.Errorf("it does not say which Subscription has events in flight:\n%s", out)
	}
	u.expect(t, "events are in flight", expanded, nil)
	u.inFlight.Store(false)
}

// stuck is an upgrade in which a pod of the Event Bus does not end.
func (u *upgrade) stuck(t *testing.T, after state) {
	t.Helper()
	u.progress(t, "a pod of the Event Bus does not end")
	release := u.holdPod(t)
	u.refused(t, "application-connector", "1.11", "post-eventbus-scaledown: rolled-back", "eventmesh-migration.jobs.eventbus-scaledown.args[0]=--pods-timeout=5s")
	u.expect(t, "a pod does not end", after, nil)
	release()
	u.told(t)
}

// expect checks the state of the cluster, and what the hooks since the last time
// have said.
func (u *upgrade) expect(t *testing.T, when string, want state, hooks []string) {
	t.Helper()
	if diff := cmp.Diff(want, u.state(t)); diff != "" {
		t.Errorf("%s: the cluster (-want +got):\n%s", when, diff)
	}
	told := u.told(t)
	if hooks != nil {
		if diff := cmp.Diff(hooks, told); diff != "" {
			t.Errorf("%s: the hooks (-want +got):\n%s", when, diff)
		}
	}
	if t.Failed() {
		for _, namespace := range []string{standin.IntegrationNamespace, standin.SystemNamespace} {
			t.Log(logs(u.core, namespace, "app.kubernetes.io/name=eventmesh-migration"))
		}
		t.FailNow()
	}
}

// refused is an upgrade that a hook stops. It returns what the user sees, with the
// log of the Job that Helm names.
func (u *upgrade) refused(t *testing.T, component, version, hook string, sets ...string) string {
	t.Helper()
	out, err := u.helmUpgrade(t, component, version, sets...)
	if err == nil {
		t.Fatalf("the upgrade of %s succeeds:\n%s", component, out)
	}
	out = err.Error()
	job, result, _ := strings.Cut(hook, ": ")
	name := component + "-" + job
	// Helm 2 does not say which Job it was: the one that is not complete
	// (docs/migration/runbook.md).
	says := name
	if u.helm.Major == 2 {
		says = "Job failed: "
	}
	if !strings.Contains(out, says) {
		t.Errorf("Helm does not say %q:\n%s", says, out)
	}
	if failed := u.jobsFailed(t, component); !slices.Equal(failed, []string{name}) {
		t.Errorf("the Jobs %q have failed, want %s", failed, name)
	}
	want := "failed"
	if u.helm.Major == 2 {
		want = "pending_upgrade" // Tiller leaves it so, and upgrades the deployed revision the next time
	}
	if status := u.releaseStatus(t, component); status != want {
		t.Errorf("the release is %s, want %s", status, want)
	}
	log, err := u.jobLog(t, component, name)
	if err != nil {
		t.Fatalf("the log of the failed Job is gone: %v", err)
	}
	if told := u.told(t); len(told) == 0 || told[len(told)-1] != hook {
		t.Errorf("the hooks ended with %q, want %s %s", told, job, result)
	}
	t.Logf("what the user sees:\n%s", out)
	return out + log
}

var errNoPod = errors.New("there is no pod")
