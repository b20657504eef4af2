package charts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// TestHelmGivesUp lets a real Helm give up on a hook that still runs: real API server, real
// controller of Jobs, and pods that are processes with the token of their account. A way takes up
// to a minute, so that make test tries it with one Helm or two, and make test-slow with all.
//
// Fails on the commit before with Helm 3 and 4, which deleted the account: the Job neither went on
// nor rolled back.
func TestHelmGivesUp(t *testing.T) {
	u := newUpgrades(t)
	for _, tc := range []struct {
		name   string
		majors []int
		way    func(*testing.T, *upgrades)
	}{
		{"TheJobFinishes", []int{2, 4}, theJobFinishes},
		{"TheJobRollsBack", []int{3}, theJobRollsBack},
		{"TheNextAttemptTakesOver", []int{4}, theNextAttemptTakesOver},
		{"TheNextAttemptReplacesTheJob", nil, theNextAttemptReplacesTheJob},
		{"Atomic", nil, atomicLosesNothing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, h := range helms {
				if everyHelm || slices.Contains(tc.majors, h.Major) {
					t.Run(fmt.Sprintf("Helm%d", h.Major), func(t *testing.T) {
						u.use(t, h)
						tc.way(t, u)
					})
				}
			}
		})
	}
}

// A hook that cannot be created, for a namespace that does not exist, leaves nothing that has
// power. Fails on the commit before: up to 21 objects, cluster-wide power among them.
func TestAMissingNamespaceLeavesNoPowerBehind(t *testing.T) {
	u := newUpgrades(t)
	for _, h := range helms {
		t.Run(fmt.Sprintf("Helm%d", h.Major), func(t *testing.T) {
			u.use(t, h)
			if _, err := u.upgrade(t, time.Minute, "namespaces.nats=missing"); err == nil || !strings.Contains(err.Error(), `namespaces "missing" not found`) {
				t.Fatalf("it is not stopped by the missing namespace: %v", err)
			}
			kinds := map[string]bool{}
			for object := range u.left(t) {
				if ofFirst(object) {
					continue // they are empty by now: see TestAccountsOutliveAFailedHookAndGoAfterTheLastJob
				}
				kind, _, _ := strings.Cut(object, " ")
				kinds[kind] = true
			}
			for _, kind := range []string{"RoleBinding", "ClusterRole", "ClusterRoleBinding"} {
				if kinds[kind] {
					t.Errorf("a %s is left behind", kind)
				}
			}
			if !kinds["ServiceAccount"] {
				t.Error("no ServiceAccount is left behind: the test looks for the wrong objects")
			}
			u.uninstall(t)
			u.cleanUp(t)
		})
	}
}

// theJobFinishes: the reason of the delay goes away, and the Job succeeds. The next upgrade leaves
// nothing behind.
func theJobFinishes(t *testing.T, u *upgrades) {
	u.controllers.Break(standin.AdapterNeverReady, u.app)
	accounts := u.givesUp(t, 4*time.Second, onlySources...)
	u.controllers.HealAll()
	if end := u.end(t, "core-pre-httpsource-sync"); end.code != migration.ExitOK {
		t.Fatalf("the Job ended with %d, want 0:\n%s", end.code, end.said)
	}
	if diff := cmp.Diff(accounts, u.left(t)); diff != "" {
		t.Errorf("its account changed (-when Helm gave up +when it ended):\n%s", diff)
	}
	u.released(t)
	u.must(t, onlySources...)
	u.nothingLeft(t)
}

// theJobRollsBack: the reason stays, the Job's own time is over, and it undoes what it did.
func theJobRollsBack(t *testing.T, u *upgrades) {
	u.controllers.Break(standin.AdapterNeverReady, u.app)
	u.givesUp(t, 4*time.Second, append(onlySources, "jobs.httpsource-sync.timeoutSeconds=8", "jobs.httpsource-sync.rollbackTimeoutSeconds=20")...)
	if !u.sources(t)[u.app] {
		t.Fatal("there is no HTTPSource: nothing would be undone")
	}
	if end := u.end(t, "core-pre-httpsource-sync"); end.code != migration.ExitTimedOut || !strings.Contains(end.said, "everything is as it was before") {
		t.Fatalf("the Job ended with %d, want %d:\n%s", end.code, migration.ExitTimedOut, end.said)
	}
	if u.sources(t)[u.app] {
		t.Error("the HTTPSource is still there")
	}
	u.released(t)
	// Hooks belong to no release, so their accounts stay without it, and go by the command of the
	// runbook.
	u.uninstall(t)
	if len(u.left(t)) == 0 {
		t.Error("no account is left behind: the test looks for the wrong objects")
	}
	u.cleanUp(t)
}

// theNextAttemptTakesOver: the next upgrade replaces the account of a Job that still runs. That
// stops, and the new Jobs wait for its lock and go on from its journal.
func theNextAttemptTakesOver(t *testing.T, u *upgrades) {
	if err := standin.PutHTTPSources(t.Context(), u.Config(), u.app); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := u.controllers.WaitReady(ctx, u.app); err != nil {
		t.Fatal(err)
	}
	trigger := u.subscribe(t)
	u.mesh.Break(standin.TriggerNeverReady, trigger)
	// The lock of a process whose account is gone is over 15 s after its last renewal.
	sets := []string{"jobs.serviceinstance-recreate.enabled=false", "jobs.eventbus-scaledown.enabled=false", "leaseSeconds=15", hereToo}
	before := u.givesUp(t, 6*time.Second, sets...)
	if end := u.end(t, "core-pre-httpsource-sync"); end.code != migration.ExitOK {
		t.Fatalf("the first Job ended with %d:\n%s", end.code, end.said)
	}

	// Work for the first Job of the next attempt, which comes before the one that still runs: it
	// waits for the lock.
	if _, err := standin.Put(ctx, u.Config(), 2); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := u.upgrade(t, 3*time.Minute, sets...)
		done <- err
	}()
	old := u.end(t, "core-pre-trigger-sync")
	if old.code != migration.ExitPartlyRestored || !strings.Contains(old.said, "this account is gone") {
		t.Errorf("the Job of the first attempt ended with %d, want %d:\n%s", old.code, migration.ExitPartlyRestored, old.said)
	}
	account := "ServiceAccount " + systemNS + "/core-trigger-sync"
	if after := u.left(t); after[account] == before[account] {
		t.Errorf("%s is the same one, and the first Job stopped", account)
	}
	u.mesh.HealAll()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, job := range []string{"core-pre-httpsource-sync", "core-pre-trigger-sync", "core-post-trigger-sync"} {
		if end := u.end(t, job); end.code != migration.ExitOK {
			t.Errorf("Job %s of the next attempt ended with %d:\n%s", job, end.code, end.said)
		} else if job == "core-pre-trigger-sync" && !strings.Contains(end.said, "finishing an interrupted run") {
			t.Errorf("it does not finish the interrupted run:\n%s", end.said)
		}
	}
	triggers, err := u.dynamic.Resource(triggers).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(triggers.Items) != 1 {
		t.Errorf("%d Triggers, want 1: %v", len(triggers.Items), err)
	}
	u.released(t)
	u.nothingLeft(t)
}

// theNextAttemptReplacesTheJob: the next upgrade replaces the account, and a moment later deletes
// the very Job that still runs, as an installer does that tries again at once.
func theNextAttemptReplacesTheJob(t *testing.T, u *upgrades) {
	u.controllers.Break(standin.AdapterNeverReady, u.app)
	u.givesUp(t, 4*time.Second, onlySources...)
	done := make(chan error, 1)
	go func() {
		_, err := u.upgrade(t, 2*time.Minute, onlySources...)
		done <- err
	}()
	const sigterm = migration.ExitSignal + int(syscall.SIGTERM)
	if old := u.end(t, "core-pre-httpsource-sync"); old.code != migration.ExitPartlyRestored && old.code != sigterm {
		t.Errorf("the Job of the first attempt ended with %d, want %d or %d:\n%s", old.code, migration.ExitPartlyRestored, sigterm, old.said)
	}
	u.controllers.HealAll()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if end := u.end(t, "core-pre-httpsource-sync"); end.code != migration.ExitOK || !strings.Contains(end.said, "finishing an interrupted run") {
		t.Errorf("the Job of the next attempt ended with %d:\n%s", end.code, end.said)
	}
	if !u.sources(t)[u.app] {
		t.Error("there is no HTTPSource")
	}
	u.released(t)
	u.nothingLeft(t)
}

// atomicLosesNothing: Helm goes back to the revision before, and the Job goes on all the same.
func atomicLosesNothing(t *testing.T, u *upgrades) {
	u.must(t, onlySources...)
	u.end(t, "core-pre-httpsource-sync")
	if _, err := standin.Put(t.Context(), u.Config(), 2); err != nil {
		t.Fatal(err)
	}
	const second = "app-0002"
	u.controllers.Break(standin.AdapterNeverReady, second)
	atomic := "--atomic"
	if u.helm.Major == 4 {
		atomic = "--rollback-on-failure"
	}
	u.flags = []string{atomic}
	u.givesUp(t, 4*time.Second, onlySources...)
	u.flags = nil
	u.controllers.HealAll()
	if end := u.end(t, "core-pre-httpsource-sync"); end.code != migration.ExitOK {
		t.Fatalf("the Job ended with %d, want 0:\n%s", end.code, end.said)
	}
	if sources := u.sources(t); !sources[u.app] || !sources[second] {
		t.Errorf("HTTPSources %v", sources)
	}
	u.released(t)
	u.must(t, onlySources...)
	u.nothingLeft(t)
}

// hereToo lets httpsource-sync make HTTPSources in a cluster that has Tiller.
const hereToo = "jobs.httpsource-sync.args[0]=--on-helm2-conflict=create"

// onlySources leaves httpsource-sync alone in the chain. A lock ends soon after its process.
var onlySources = []string{
	hereToo, "jobs.serviceinstance-recreate.enabled=false", "jobs.trigger-sync.enabled=false", "jobs.eventbus-scaledown.enabled=false", "leaseSeconds=3",
}
