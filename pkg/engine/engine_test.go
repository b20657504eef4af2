//go:build !race

// The order that testing/synctest gives to two goroutines is not known to the race detector.

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var (
	refA, refB = enginetest.Ref("Thing", "a"), enginetest.Ref("Thing", "b")
	forbidden  = apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "a", errors.New("no"))
)

// cluster is an API server without a network, and what the engine keeps there.
type cluster struct {
	*testing.T
	api    *enginetest.API
	client *fake.Clientset
	// denied are the permissions that the account lacks, as "verb resource".
	denied []string
	// said are the outcomes of all commands.
	said []string
}

func newCluster(t *testing.T, before ...*unstructured.Unstructured) *cluster {
	t.Helper()
	c := &cluster{T: t, api: enginetest.NewAPI(t, before...), client: fake.NewClientset()}
	c.client.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateActionImpl).Object.(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
		asked := review.Spec.ResourceAttributes
		review.Status.Allowed = !slices.Contains(c.denied, asked.Verb+" "+asked.Resource)
		return true, review, nil
	})
	return c
}

// secretsMetadata serves the metadata of Secrets.
type secretsMetadata struct {
	metadata.Interface
	client *fake.Clientset
}

type secretsGetter struct {
	metadata.Getter
	client *fake.Clientset
}

func (m secretsMetadata) Resource(schema.GroupVersionResource) metadata.Getter {
	return secretsGetter{client: m.client}
}

func (g secretsGetter) Namespace(namespace string) metadata.ResourceInterface {
	return enginetest.Metadata{Secrets: g.client.CoreV1().Secrets(namespace)}
}

// engine is a process of its own.
func (c *cluster) engine(opts Options) *Engine {
	opts.Names, opts.Identity = enginetest.Names, fmt.Sprintf("process-%d", len(c.said))
	opts.setDefaults()
	return &Engine{
		opts: opts, server: "fake", reader: c.api, writer: c.api, lister: c.api.Connection.Lister, served: c.api.Connection.Served,
		core: c.client.CoreV1(), leases: c.client.CoordinationV1(), reviews: c.client.AuthorizationV1().SelfSubjectAccessReviews(),
		metadata: secretsMetadata{client: c.client},
	}
}

// says notes how a command ended: its result, those of the changes that were begun, the objects,
// and the phases of the journals.
func (c *cluster) says(report *migration.Report) {
	words := []string{report.Command, string(report.Result)}
	for _, ch := range report.Changes {
		if ch.Result == migration.ChangeNotStarted {
			continue
		}
		words = append(words, fmt.Sprintf("%s:%s=%s", ch.Verb, ch.Name, ch.Result))
	}
	words = append(words, "| a="+enginetest.Value(c.api.Live(refA)), "b="+enginetest.Value(c.api.Live(refB)), "|")
	secrets, err := c.client.CoreV1().Secrets(enginetest.Names.Program).List(c.Context(), metav1.ListOptions{LabelSelector: enginetest.Names.Key(journal.LabelPhase)})
	if err != nil {
		c.Fatal(err)
	}
	var phases []string
	for i := range secrets.Items {
		phases = append(phases, secrets.Items[i].Labels[enginetest.Names.Key(journal.LabelPhase)])
	}
	slices.Sort(phases)
	words = append(words, phases...)
	c.said = append(c.said, strings.TrimSuffix(strings.Join(words, " "), " |"))
}

func (c *cluster) run(job migration.Job, opts Options) *migration.Report {
	return c.runUntil(c.Context(), job, opts)
}

func (c *cluster) runUntil(ctx context.Context, job migration.Job, opts Options) *migration.Report {
	report := c.engine(opts).Run(ctx, job)
	c.says(report)
	return report
}

func (c *cluster) undo(job migration.Job) *migration.Report {
	report := c.engine(Options{}).Undo(c.Context(), job)
	c.says(report)
	return report
}

// interrupted is a run that a signal ends at its next request of that verb and name.
func (c *cluster) interrupted(job migration.Job, verb, name string) {
	ctx, stop := context.WithCancelCause(c.Context())
	c.api.Fail(enginetest.Fault{Verb: verb, Name: name, Before: func() { stop(SignalError{Signal: 15}) }})
	c.runUntil(ctx, job, Options{})
}

// Units of plans.
func creating(name, value string) migration.Unit {
	return migration.Unit{ID: "create " + name, Changes: []migration.Change{{Verb: migration.Create, Ref: enginetest.Ref("Thing", name), Object: enginetest.Make("Thing", name, value)}}}
}

func patching(name, value string) migration.Unit {
	return migration.Unit{ID: "patch " + name, Changes: []migration.Change{{Verb: migration.Patch, Ref: enginetest.Ref("Thing", name), Patch: json.RawMessage(`{"spec":{"x":"` + value + `"}}`)}}}
}

func deleting(name string) migration.Unit {
	return migration.Unit{ID: "delete " + name, Changes: []migration.Change{{Verb: migration.Delete, Ref: enginetest.Ref("Thing", name)}}}
}

func waiting(name string) migration.Unit {
	return migration.Unit{ID: "await " + name, Changes: []migration.Change{{Verb: migration.Await, Ref: enginetest.Ref("Thing", name)}}}
}

// planning is a job with that plan, which waits until b is ready after whatever changes it.
func planning(units ...migration.Unit) *enginetest.Job {
	ready := enginetest.Shows(refB, "ready")
	ready.Timeout = time.Minute
	return &enginetest.Job{Planned: &migration.Plan{Units: units, Serial: true}, Awaited: map[string][]migration.Condition{"b": {ready}}}
}

func found(severity migration.Severity) *enginetest.Job {
	job := planning()
	job.Planned.Findings = []migration.Finding{{Severity: severity, Object: "Thing shop/a", Problem: "it is odd"}}
	return job
}

// TestRuns plays whole commands, one after the other on one cluster, and holds how each ended.
func TestRuns(t *testing.T) {
	thing := func(name, value string) *unstructured.Unstructured { return enginetest.Make("Thing", name, value) }
	for name, tc := range map[string]struct {
		reason string
		before []*unstructured.Unstructured
		play   func(c *cluster)
		want   []string
	}{
		"Succeeds": {
			reason: "a run, one more, and an undo",
			before: []*unstructured.Unstructured{thing("b", "old")},
			play: func(c *cluster) {
				c.run(planning(creating("a", "new"), patching("b", "ready")), Options{})
				c.run(planning(), Options{})
				c.undo(planning())
				c.undo(planning())
			},
			want: []string{
				"run succeeded create:a=done patch:b=done | a=new b=ready | done",
				"run nothing-to-do | a=new b=ready | done",
				"undo succeeded create:a=rolled-back patch:b=rolled-back | a=gone b=old | undone",
				"undo nothing-to-do | a=gone b=old | undone",
			},
		},
		"RollsBack": {
			reason: "a refusal restores everything, newest change first",
			before: []*unstructured.Unstructured{thing("b", "ready")},
			play: func(c *cluster) {
				c.api.Fail(enginetest.Fault{Verb: "delete", Name: "b", Err: forbidden})
				c.run(planning(creating("a", "new"), deleting("b")), Options{})
			},
			want: []string{"run rolled-back create:a=rolled-back delete:b=failed | a=gone b=ready | rolled-back"},
		},
		"Leaves": {
			reason: "what was done stays if that is asked for, and the next run goes on; its report does not tell again what the first has told",
			before: []*unstructured.Unstructured{thing("b", "ready")},
			play: func(c *cluster) {
				c.api.Fail(enginetest.Fault{Verb: "delete", Name: "b", Err: forbidden})
				if report := c.run(planning(creating("a", "new"), deleting("b")), Options{OnFailure: OnFailureLeave}); report.ExitCode() != migration.ExitPartlyRestored {
					c.Errorf("exit code %d", report.ExitCode())
				}
				c.run(planning(), Options{})
			},
			want: []string{
				"run failed create:a=done delete:b=failed | a=new b=ready | forward",
				"run succeeded | a=new b=ready | done",
			},
		},
		"TimesOut": {
			reason: "what is awaited does not become ready in time: everything is restored",
			before: []*unstructured.Unstructured{thing("b", "old")},
			play: func(c *cluster) {
				c.run(planning(creating("a", "new"), patching("b", "new")), Options{Timeout: 30 * time.Second})
			},
			want: []string{"run timed-out create:a=rolled-back patch:b=rolled-back | a=gone b=old | rolled-back"},
		},
		"GivesUp": {
			reason: "or not within its own limit",
			before: []*unstructured.Unstructured{thing("b", "old")},
			play:   func(c *cluster) { c.run(planning(creating("a", "new"), patching("b", "new")), Options{}) },
			want:   []string{"run rolled-back create:a=rolled-back patch:b=rolled-back | a=gone b=old | rolled-back"},
		},
		"LeavesProgress": {
			reason: "units that are right one by one stay when the time is over, with what comes last; the next run does the rest",
			before: []*unstructured.Unstructured{thing("b", "old")},
			play: func(c *cluster) {
				one, other := creating("c", "new"), patching("b", "new")
				one.Independent, other.Independent = true, true
				job := planning(one, other)
				job.Planned.Last = []migration.Unit{creating("a", "last")}
				c.run(job, Options{Timeout: 30 * time.Second})
				c.api.Edit(refB, enginetest.Set("ready"))
				c.run(planning(), Options{})
			},
			want: []string{
				"run timed-out create:a=done create:c=done patch:b=open | a=last b=new | forward",
				"run succeeded | a=last b=ready | done",
			},
		},
		"NotRestored": {
			reason: "what somebody changed during the rollback is named; another undo has nothing more to do",
			before: []*unstructured.Unstructured{thing("a", "old"), thing("b", "bad")},
			play: func(c *cluster) {
				job := planning(deleting("a"), patching("b", "bad"))
				c.api.Fail(enginetest.Fault{Verb: "patch", Name: "b", Err: forbidden, Before: func() { c.api.Put(thing("a", "theirs")) }})
				c.run(job, Options{})
			},
			want: []string{"run partly-restored delete:a=not-restored patch:b=failed | a=theirs b=bad | rolled-back"},
		},
		"RollbackGoesOn": {
			reason: "a rollback that could not end is finished by the next run, which then does its own work",
			before: []*unstructured.Unstructured{thing("b", "ready")},
			play: func(c *cluster) {
				job := planning(creating("a", "new"), deleting("b"))
				c.api.Fail(enginetest.Fault{Verb: "delete", Name: "b", Err: forbidden}, enginetest.Fault{Verb: "delete", Name: "a", Err: forbidden})
				c.run(job, Options{})
				c.run(planning(patching("b", "ready")), Options{})
			},
			want: []string{
				"run partly-restored create:a=not-restored delete:b=failed | a=new b=ready | rollback",
				"run succeeded create:a=rolled-back patch:b=done | a=gone b=ready | done rolled-back",
			},
		},
		"RollbackGoesOnPartly": {
			reason: "what that rollback cannot restore stays said",
			before: []*unstructured.Unstructured{thing("a", "old"), thing("b", "ready")},
			play: func(c *cluster) {
				job := planning(deleting("a"), deleting("b"))
				c.api.Fail(enginetest.Fault{Verb: "delete", Name: "b", Err: forbidden}, enginetest.Fault{Verb: "create", Name: "a", Err: forbidden})
				c.run(job, Options{})
				c.api.Put(thing("a", "theirs"))
				c.run(planning(), Options{})
			},
			want: []string{
				"run partly-restored delete:a=not-restored delete:b=failed | a=gone b=ready | rollback",
				"run partly-restored delete:a=not-restored | a=theirs b=ready | rolled-back",
			},
		},
		"Interrupted": {
			reason: "a signal leaves the journal open, and the next run goes on with the same plan",
			before: []*unstructured.Unstructured{thing("b", "old")},
			play: func(c *cluster) {
				job := planning(creating("a", "new"), patching("b", "ready"))
				c.interrupted(job, "create", "a")
				c.run(planning(patching("b", "ready")), Options{})
			},
			want: []string{
				"run interrupted create:a=done | a=new b=old | forward",
				"run succeeded create:a=done patch:b=done | a=new b=ready | done",
			},
		},
		"InterruptedBack": {
			reason: "or back, if that is asked for",
			before: []*unstructured.Unstructured{thing("b", "old")},
			play: func(c *cluster) {
				job := planning(creating("a", "new"), patching("b", "ready"))
				c.interrupted(job, "patch", "b")
				c.run(job, Options{Resume: ResumeBack})
			},
			want: []string{
				"run interrupted create:a=done patch:b=open | a=new b=ready | forward",
				"run rolled-back create:a=rolled-back patch:b=rolled-back | a=gone b=old | rolled-back",
			},
		},
		"InterruptedUndone": {
			reason: "an undo undoes it, too",
			before: []*unstructured.Unstructured{thing("b", "old")},
			play: func(c *cluster) {
				c.interrupted(planning(creating("a", "new"), patching("b", "ready")), "create", "a")
				c.undo(planning())
			},
			want: []string{
				"run interrupted create:a=done | a=new b=old | forward",
				"undo succeeded create:a=rolled-back | a=gone b=old | undone",
			},
		},
		"InterruptedOtherPlan": {
			reason: "the plan of now wants another object: the former one is replaced",
			play: func(c *cluster) {
				c.interrupted(planning(creating("a", "new"), creating("c", "new")), "create", "a")
				c.run(planning(creating("a", "other")), Options{})
			},
			want: []string{
				"run interrupted create:a=done | a=new b=gone | forward",
				"run succeeded create:a=done | a=other b=gone | done",
			},
		},
		"InterruptedOtherEdited": {
			reason: "unless somebody has edited it",
			play: func(c *cluster) {
				c.interrupted(planning(creating("a", "new"), creating("c", "new")), "create", "a")
				c.api.Edit(refA, enginetest.Set("edited"))
				c.run(planning(creating("a", "other")), Options{})
			},
			want: []string{
				"run interrupted create:a=done | a=new b=gone | forward",
				"run deferred create:a=done | a=edited b=gone | done",
			},
		},
		"InterruptedRefused": {
			reason: "a plan with an error leaves the interrupted run open",
			play: func(c *cluster) {
				c.interrupted(planning(creating("a", "new"), creating("c", "new")), "create", "a")
				c.run(found(migration.Error), Options{})
			},
			want: []string{
				"run interrupted create:a=done | a=new b=gone | forward",
				"run refused | a=new b=gone | forward",
			},
		},
		"InterruptedEarly": {
			reason: "a signal before the first write changes nothing",
			play: func(c *cluster) {
				ctx, stop := context.WithCancelCause(c.Context())
				stop(SignalError{Signal: 2})
				if report := c.runUntil(ctx, planning(creating("a", "new")), Options{}); report.ExitCode() != 130 {
					c.Errorf("exit code %d", report.ExitCode())
				}
			},
			want: []string{"run interrupted | a=gone b=gone"},
		},
		"Follows": {
			reason: "a unit that follows from one that was begun is done, although no plan shows it, and what comes last",
			play: func(c *cluster) {
				second := creating("c", "new")
				second.Follows = []string{"create a"}
				job := planning(creating("a", "new"), second)
				job.Planned.Last = []migration.Unit{creating("d", "last")}
				c.interrupted(job, "create", "a")
				c.run(planning(), Options{})
			},
			want: []string{
				"run interrupted create:a=done | a=new b=gone | forward",
				"run succeeded create:d=done create:a=done create:c=done | a=new b=gone | done",
			},
		},
		"LastPlannedAgain": {
			reason: "what comes last of the plan of now is done once",
			play: func(c *cluster) {
				job := planning(creating("a", "new"), creating("c", "new"))
				job.Planned.Last = []migration.Unit{creating("d", "last")}
				c.interrupted(job, "create", "a")
				job.Planned.Units = job.Planned.Units[1:]
				c.run(job, Options{})
			},
			want: []string{
				"run interrupted create:a=done | a=new b=gone | forward",
				"run succeeded create:d=done create:a=done create:c=done | a=new b=gone | done",
			},
		},
		"Waits": {
			reason: "a run without a write waits, without a journal",
			before: []*unstructured.Unstructured{thing("b", "ready")},
			play:   func(c *cluster) { c.run(planning(waiting("b")), Options{}) },
			want:   []string{"run nothing-to-do await:b=done | a=gone b=ready"},
		},
		"WaitsInVain": {
			reason: "and fails if what it waits for cannot become true",
			before: []*unstructured.Unstructured{thing("b", "bad")},
			play:   func(c *cluster) { c.run(planning(waiting("b")), Options{}) },
			want:   []string{"run failed await:b=failed | a=gone b=bad"},
		},
		"WaitsAndWrites": {
			reason: "waits and writes go side by side",
			before: []*unstructured.Unstructured{thing("b", "ready")},
			play:   func(c *cluster) { c.run(planning(waiting("b"), creating("a", "new")), Options{}) },
			want:   []string{"run succeeded create:a=done await:b=done | a=new b=ready | done"},
		},
		"Refused":       {reason: "a plan with an error", play: func(c *cluster) { c.run(found(migration.Error), Options{}) }, want: []string{"run refused | a=gone b=gone"}},
		"Deferred":      {reason: "a plan that leaves something for later", play: func(c *cluster) { c.run(found(migration.Deferred), Options{}) }, want: []string{"run deferred | a=gone b=gone"}},
		"DeferredFails": {reason: "which is a failure if that is asked for", play: func(c *cluster) { c.run(found(migration.Deferred), Options{Defer: DeferFail}) }, want: []string{"run failed | a=gone b=gone"}},
		"DeferredWaits": {
			reason: "a wait besides",
			before: []*unstructured.Unstructured{thing("b", "ready")},
			play: func(c *cluster) {
				job := found(migration.Deferred)
				job.Planned.Units = []migration.Unit{waiting("b")}
				c.run(job, Options{})
			},
			want: []string{"run deferred await:b=done | a=gone b=ready"},
		},
		"DeferredWrites": {
			reason: "a write besides: nothing is begun if that is a failure",
			play: func(c *cluster) {
				job := found(migration.Deferred)
				job.Planned.Units = []migration.Unit{creating("a", "new")}
				c.run(job, Options{Defer: DeferFail})
				c.run(job, Options{})
			},
			want: []string{"run failed | a=gone b=gone", "run deferred create:a=done | a=new b=gone | done"},
		},
		"TooLong": {
			reason: "a plan that may take longer than the run is refused, unless each unit may stay",
			play: func(c *cluster) {
				job := planning(creating("a", "new"))
				job.Planned.Estimate = time.Hour
				c.run(job, Options{})
				job.Planned.Units[0].Independent = true
				c.run(job, Options{})
			},
			want: []string{"run refused | a=gone b=gone", "run succeeded create:a=done | a=new b=gone | done"},
		},
		"NotAllowed": {
			reason: "a missing permission is found before the first write",
			play: func(c *cluster) {
				c.denied = []string{"delete Thing"}
				report := c.run(planning(creating("a", "new")), Options{})
				if len(report.Findings) != 1 || !strings.Contains(report.Findings[0].Problem, "delete Thing in namespace shop") {
					c.Errorf("findings %v", report.Findings)
				}
			},
			want: []string{"run refused | a=gone b=gone"},
		},
		"UndoNotAllowed": {
			reason: "also before an undo",
			play: func(c *cluster) {
				c.run(planning(creating("a", "new")), Options{})
				c.denied = []string{"delete Thing"}
				c.undo(planning())
			},
			want: []string{"run succeeded create:a=done | a=new b=gone | done", "undo refused | a=new b=gone | done"},
		},
		"UndoTooEarly": {
			reason: "the job does not allow it yet",
			play: func(c *cluster) {
				c.run(planning(creating("a", "new")), Options{})
				c.undo(&undoGuard{Job: planning(), reasons: []migration.Finding{{Severity: migration.Error, Problem: "b needs a"}}})
				c.undo(&undoGuard{Job: planning(), err: forbidden})
				c.undo(&undoGuard{Job: planning()})
			},
			want: []string{
				"run succeeded create:a=done | a=new b=gone | done", "undo refused | a=new b=gone | done", "undo refused | a=new b=gone | done",
				"undo succeeded create:a=rolled-back | a=gone b=gone | undone",
			},
		},
		"UndoEdited": {
			reason: "what somebody edited since stays, and may be undone later",
			play: func(c *cluster) {
				c.run(planning(creating("a", "new")), Options{})
				c.api.Edit(refA, enginetest.Set("edited"))
				c.undo(planning())
				c.api.Edit(refA, enginetest.Set("new"))
				c.undo(planning())
			},
			want: []string{
				"run succeeded create:a=done | a=new b=gone | done", "undo partly-restored create:a=not-restored | a=edited b=gone | done",
				"undo succeeded create:a=rolled-back | a=gone b=gone | undone",
			},
		},
		"Left": {
			reason: "every object was changed since the plan: nothing is done",
			before: []*unstructured.Unstructured{thing("a", "edited")},
			play: func(c *cluster) {
				u := patching("a", "new")
				u.Changes[0].Object = thing("a", "old")
				c.run(planning(u), Options{})
			},
			want: []string{"run deferred patch:a=left | a=edited b=gone"},
		},
		"Fails": {
			reason: "the job cannot decide",
			play:   func(c *cluster) { c.run(&enginetest.Job{Err: errors.New("no")}, Options{}) },
			want:   []string{"run failed | a=gone b=gone"},
		},
		"Panics": {
			reason: "a panic of the job is its error",
			play:   func(c *cluster) { c.run(&panicking{}, Options{}) },
			want:   []string{"run failed | a=gone b=gone"},
		},
		"NoPlan": {
			reason: "no plan is an empty one",
			play:   func(c *cluster) { c.run(&enginetest.Job{}, Options{}) },
			want:   []string{"run nothing-to-do | a=gone b=gone"},
		},
		"OnlyReads": {
			reason: "a job that is only to read must not plan to write, and takes no lock",
			before: []*unstructured.Unstructured{thing("b", "ready")},
			play: func(c *cluster) {
				c.run(&reading{Job: planning(creating("a", "new"))}, Options{})
				c.run(&reading{Job: planning(waiting("b"))}, Options{})
				if _, err := c.client.CoordinationV1().Leases(enginetest.Names.Program).Get(c.Context(), "mover", metav1.GetOptions{}); err == nil {
					c.Error("it took the lock")
				}
			},
			want: []string{"run failed | a=gone b=ready", "run nothing-to-do await:b=done | a=gone b=ready"},
		},
		"Probes": {
			reason: "what was waited for is tried out",
			before: []*unstructured.Unstructured{thing("b", "ready")},
			play: func(c *cluster) {
				c.run(probing(planning(waiting("b")), migration.Error), Options{})
				c.run(probing(planning(waiting("b")), migration.Warning), Options{})
				c.run(probing(found(migration.Deferred), migration.Error), Options{})
			},
			want: []string{"run failed await:b=done | a=gone b=ready", "run nothing-to-do await:b=done | a=gone b=ready", "run deferred | a=gone b=ready"},
		},
		"Locked": {
			reason: "another run holds the lock",
			play: func(c *cluster) {
				other := c.engine(Options{})
				other.opts.Identity = "other"
				lock := other.newLock(other.opts.Log)
				if _, err := lock.Acquire(c.Context(), "other", 0); err != nil {
					c.Fatal(err)
				}
				defer lock.Release()
				c.run(planning(creating("a", "new")), Options{LockWait: time.Second})
			},
			want: []string{"run locked | a=gone b=gone"},
		},
		"Undecided": {
			reason: "the account may not read what is needed",
			play: func(c *cluster) {
				refuse := true
				c.client.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return refuse, nil, forbidden })
				run, undo := c.engine(Options{}).Run(c.Context(), planning(creating("a", "new"))), c.engine(Options{}).Undo(c.Context(), planning())
				refuse = false
				c.says(run)
				c.says(undo)
			},
			want: []string{"run refused | a=gone b=gone", "undo refused | a=gone b=gone"},
		},
		"Damaged": {
			reason: "a journal without its first Secret is not guessed at",
			play: func(c *cluster) {
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "mover-job-r-0001", Labels: map[string]string{enginetest.Names.Key(journal.LabelJob): "job", enginetest.Names.Key(journal.LabelRun): "r"}}}
				if _, err := c.client.CoreV1().Secrets(enginetest.Names.Program).Create(c.Context(), secret, metav1.CreateOptions{}); err != nil {
					c.Fatal(err)
				}
				c.run(planning(creating("a", "new")), Options{})
			},
			want: []string{"run refused | a=gone b=gone"},
		},
		"NotClosed": {
			reason: "a success whose journal cannot be closed is a success with a warning, and the next run closes it",
			play: func(c *cluster) {
				refuse := true
				c.client.PrependReactor("patch", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return refuse, nil, forbidden })
				if report := c.run(planning(creating("a", "new")), Options{}); len(report.Findings) != 1 {
					c.Errorf("findings %v", report.Findings)
				}
				refuse = false
				c.run(planning(), Options{})
			},
			want: []string{"run succeeded create:a=done | a=new b=gone | forward", "run succeeded create:a=unchanged | a=new b=gone | done"},
		},
		"StateGone": {
			reason: "somebody deletes the journal: what was done stays, and is said",
			before: []*unstructured.Unstructured{thing("b", "ready")},
			play: func(c *cluster) {
				c.api.Fail(enginetest.Fault{Verb: "delete", Name: "b", Err: forbidden})
				c.client.PrependReactor("patch", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "x")
				})
				c.run(planning(creating("a", "new"), deleting("b")), Options{})
			},
			want: []string{"run partly-restored create:a=done delete:b=failed | a=new b=ready | forward"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, tc.before...)
				tc.play(c)
				if diff := cmp.Diff(tc.want, c.said); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

type undoGuard struct {
	*enginetest.Job
	reasons []migration.Finding
	err     error
}

func (g *undoGuard) RefuseUndo(context.Context, *migration.Cluster, []migration.Change) ([]migration.Finding, error) {
	return g.reasons, g.err
}

type panicking struct{ enginetest.Job }

func (*panicking) Plan(context.Context, *migration.Cluster, migration.PlanOptions) (*migration.Plan, error) {
	panic("no")
}

type reading struct{ *enginetest.Job }

func (*reading) OnlyReads() {}

// probing makes the plan of a job find that severity when it is tried out.
func probing(job *enginetest.Job, found migration.Severity) *enginetest.Job {
	job.Planned.Probe = func(context.Context) []migration.Finding {
		return []migration.Finding{{Severity: found, Problem: "it does not answer"}}
	}
	return job
}
