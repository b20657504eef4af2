package execute

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Executor makes the changes of one run: journal, write, wait, mark.
type Executor struct {
	actor  *act.Actor
	waiter *wait.Waiter
	serial bool

	// slots bound writes under way; unready bounds units that wait for objects
	// they made, so that a thousand new ones do not starve each other.
	// resumed bounds those of an earlier process that wait: they must not take the room of
	// the units that do what they wait for.
	// asking bounds those that have waited and are in a recheck, checked those that go
	// on after it.
	slots, unready, resumed, asking, checked chan struct{}

	// progress is told how far the run is, reported which waits have ended.
	progress Progress
	reported func(migration.ChangeReport)

	// shared are the reads of rechecks.
	shared *wait.SharedReads
	// Last are the entries that come after all others.
	Last []*journal.Entry

	// work ends when a unit failed: nothing new is begun, what waits already
	// comes to its own end, so that every bad object is named.
	work context.Context
	Stop context.CancelCauseFunc

	units sync.WaitGroup

	mu       sync.Mutex
	done     int
	waiting  []*Wait // the longest first
	Failures []error
	// turns are held by the units whose turn it is (see Change.Turn).
	turns map[string]chan struct{}
	// follow is what becomes of units that others follow, or wait for.
	follow *followed
	// raising keeps what is written of the units that begin in order.
	raising sync.Mutex
}

// Options of an executor.
type Options struct {
	// parallelism is how many writes are under way at once, unready how many units wait for
	// new objects at once.
	Parallelism, Unready int
	// Serial: a unit waits until the one before it is done, with all it waits for.
	Serial bool
	// Progress is told how far the run is, reported which waits have ended.
	Progress Progress
	Reported func(migration.ChangeReport)
}

// New returns an executor of the run that a belongs to. Its waits end with ctx.
func New(ctx context.Context, a *act.Actor, o Options) *Executor {
	work, stop := context.WithCancelCause(ctx)
	if o.Serial {
		o.Unready = 1
	}
	return &Executor{
		actor: a, waiter: wait.New(ctx, a.Writer.Cluster), serial: o.Serial, shared: wait.NewSharedReads(a.NewCluster),
		progress: o.Progress, reported: o.Reported,
		slots: make(chan struct{}, max(1, o.Parallelism)), unready: make(chan struct{}, o.Unready),
		resumed: make(chan struct{}, o.Unready), asking: make(chan struct{}, askingAtOnce), checked: make(chan struct{}, o.Unready),
		work: work, Stop: stop, turns: map[string]chan struct{}{}, follow: newFollowed(),
	}
}

// askingAtOnce is how many units wait for the answer of a recheck: with a read each
// freshEvery, twice as many may go on in a second. More would take memory, and their
// answers would be too old when their turn comes.
const askingAtOnce = 256

// Todo is what a run is about to do.
type Todo struct {
	// Entries are in the journal already; units are put into it in batches, just ahead
	// of their execution; waits write nothing and are in no journal.
	Entries      []*journal.Entry
	Units, Waits []migration.Unit
	// LastEntries and last come after all others.
	LastEntries []*journal.Entry
	Last        []migration.Unit
}

// Size is the number of units.
func (t *Todo) Size() int {
	return len(t.Entries) + len(t.Units) + len(t.Waits) + len(t.LastEntries) + len(t.Last)
}

// Run does everything. ctx is the run's forward context.
func (x *Executor) Run(ctx context.Context, t Todo) error {
	defer x.Stop(nil)
	x.Last = t.LastEntries
	x.shared.Counted(len(t.Entries)+len(t.Units)+len(t.Waits), 0)
	for i := range t.Waits {
		x.units.Go(func() {
			defer x.shared.Counted(-1, 0)
			defer x.recovered(&t.Waits[i])
			x.await(ctx, &t.Waits[i])
		})
	}
	x.follow.expect(t)
	resume := func() {
		for _, e := range t.Entries {
			if !x.start(ctx, e) {
				break
			}
		}
	}
	if x.serial {
		resume()
	} else {
		// Beside the new units: those may do what these wait for.
		x.units.Go(resume)
	}
	for batch := range x.journaled(t.Units, t.Last) {
		for _, e := range batch {
			if !x.start(ctx, e) {
				break
			}
		}
	}
	if err := x.finish(); err != nil {
		return err
	}
	return x.Finally(ctx)
}

// Finally does what comes after all others, one unit after the other.
func (x *Executor) Finally(ctx context.Context) error {
	x.shared.Counted(len(x.Last), 0)
	for _, e := range x.Last {
		if !x.start(ctx, e) {
			break
		}
		if err := x.finish(); err != nil {
			return err
		}
	}
	return nil
}

// start begins a unit as soon as there is room, or when the units that it follows have ended;
// false if no more may begin.
func (x *Executor) start(ctx context.Context, e *journal.Entry) bool {
	if len(e.Unit.Follows) == 0 || x.serial {
		return x.begin(ctx, e, time.Time{})
	}
	// It has no room meanwhile: those that it follows need that.
	x.units.Go(func() {
		if x.follow.await(x.work, e) {
			x.begin(ctx, e, time.Now())
		}
	})
	return x.work.Err() == nil
}

// begin begins a unit as soon as there is room; false if no more may begin. waited is when it
// has waited for others, if it has.
func (x *Executor) begin(ctx context.Context, e *journal.Entry, waited time.Time) bool {
	p := &place{room: x.slots}
	switch waits := x.actor.Waits(&e.Unit); {
	case x.serial, waits && !e.Read:
		p.room = x.unready
	case waits:
		p.room = x.resumed
	}
	if !p.take(x.work) {
		return false
	}
	if x.follow.lost(e) {
		x.follow.leave(x.actor, e)
		x.shared.Counted(-1, 0)
		x.end(e)
		p.leave()
		return true
	}
	x.raising.Lock()
	err := x.actor.Recorder.Journals.Raise(x.work, e)
	x.raising.Unlock()
	if err != nil {
		p.leave()
		if x.work.Err() == nil {
			x.failRun(err)
		}
		return false
	}
	x.units.Go(func() {
		defer x.shared.Counted(-1, 0)
		defer p.leave()
		defer x.recovered(&e.Unit)
		(&unitRun{x: x, entry: e, place: p, waited: waited}).run(ctx)
	})
	return true
}

// recovered makes a panic, such as one in a job's condition, the unit's failure:
// it must not keep the run from being rolled back.
func (x *Executor) recovered(u *migration.Unit) {
	if p := recover(); p != nil {
		x.fail(u.Changes[0].Ref, k8sutil.Permanent(fmt.Errorf("panic: %v", p)))
	}
}

// end is that of a unit with which nothing went wrong.
func (x *Executor) end(e *journal.Entry) {
	e.Unload()
	if e.Complete() {
		// Not in the unit's own slot: nothing waits for a mark.
		x.units.Go(func() { x.actor.Recorder.MarkDone(x.work, e.Chunk) })
	}
	x.follow.conclude(e)
	x.step(1, e.Unit.ID)
}

// finish waits for all units and returns what failed.
func (x *Executor) finish() error {
	x.units.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	return errors.Join(x.Failures...)
}

// await is a unit that writes nothing: it is in no journal.
func (x *Executor) await(ctx context.Context, u *migration.Unit) {
	for i := range u.Changes {
		ch := &u.Changes[i]
		began := time.Now()
		report := migration.ReportOf(ch, migration.ChangeDone)
		err := x.waits(ch.Ref, func(tell func(string)) error { return x.waiter.WaitTelling(ctx, x.actor.Job.Await(ch), began, tell) })
		if err != nil {
			x.fail(ch.Ref, fmt.Errorf("%s: %w", ch.Ref, err))
			report.Result, report.Message = endOf(report.Result, err)
		}
		report.Seconds = Seconds(time.Since(began))
		x.reported(report)
		if err != nil {
			return
		}
	}
	x.step(1, u.ID)
}

// Seconds is a duration as reports have it, to the millisecond.
func Seconds(d time.Duration) float64 {
	return float64(d.Round(time.Millisecond)) / float64(time.Second)
}

func pastTense(v migration.Verb, result string) string {
	if result == migration.ChangeUnchanged {
		return "found done already: " + string(v)
	}
	switch v {
	case migration.Patch:
		return "patched"
	case migration.Restart:
		return "restarted"
	default:
		return string(v) + "d"
	}
}
