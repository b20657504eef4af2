package execute

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Executor makes the changes of one run: journal, write, wait, mark.
type Executor struct {
	r      *act.Actor
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
		r: a, waiter: wait.New(ctx, a.Writer.Cluster), serial: o.Serial, shared: wait.NewSharedReads(a.NewCluster),
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

// journaled puts units into the journal, batch by batch, one batch ahead of what
// is being executed: the next one is durable when the last one is under way. Those
// that come last are in it before all others: a run that goes on after a kill must
// know of them.
func (x *Executor) journaled(units, last []migration.Unit) <-chan []*journal.Entry {
	batches := make(chan []*journal.Entry)
	go func() {
		defer close(batches)
		next := x.r.Recorder.NextSeq()
		if len(last) > 0 {
			entries, ok := x.journal(last, &next, true)
			if !ok {
				return
			}
			x.Last = append(x.Last, entries...)
		}
		for len(units) > 0 && x.work.Err() == nil {
			entries, ok := x.journal(nextBatch(&units), &next, false)
			if !ok {
				return
			}
			select {
			case batches <- entries:
			case <-x.work.Done():
				return
			}
		}
	}()
	return batches
}

// journal makes one batch durable. A unit whose objects are not what it was planned
// for any more is left out. It returns false if the run cannot go on.
func (x *Executor) journal(batch []migration.Unit, next *int, last bool) ([]*journal.Entry, bool) {
	var entries []*journal.Entry
	for i := range batch {
		journal.Build(&batch[i])
		pre, err := x.r.Preimages(x.work, &batch[i], last)
		if moved, ok := errors.AsType[*write.ChangedError](err); ok {
			x.leaveUnit(&batch[i], moved)
			for j := range batch[i].Changes {
				x.follow.abandon(&batch[i].Changes[j])
			}
			x.follow.ended(batch[i].ID, false, true)
			if !last {
				x.shared.Counted(-1, 0)
			}
			continue
		}
		if err != nil {
			x.fail(batch[i].Changes[0].Ref, fmt.Errorf("cannot read the pre-image of %s: %w", batch[i].ID, err))
			return nil, false
		}
		e := journal.NewEntry(*next, batch[i], pre)
		if last {
			e.ComeLast()
		}
		entries = append(entries, e)
		*next++
	}
	if len(entries) == 0 {
		return nil, true
	}
	if err := x.r.Recorder.Journals.Append(x.work, x.r.Recorder.Journal, entries); err != nil {
		if x.work.Err() == nil {
			x.failRun(err)
		}
		return nil, false
	}
	return entries, true
}

// finish waits for all units and returns what failed.
func (x *Executor) finish() error {
	x.units.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	return errors.Join(x.Failures...)
}

// place is a unit's place among those that run at once.
type place struct {
	room chan struct{}
	held bool
}

func (p *place) leave() {
	if p.held {
		<-p.room
		p.held = false
	}
}

// take waits for room; false if no more may begin.
func (p *place) take(work context.Context) bool {
	select {
	case <-work.Done():
		return false
	case p.room <- struct{}{}:
	}
	p.held = true
	if work.Err() != nil {
		p.leave()
	}
	return p.held
}

// turn is what a unit holds from a guarded change on, up to the change until.
type turn struct {
	held  chan struct{}
	until int
}

func (t *turn) end() {
	if t.held != nil {
		<-t.held
		t.held = nil
	}
}

// take waits for the turn of that name; false if no more may begin. While it waits, the
// unit gives up its place: the one that has the turn may need it.
func (x *Executor) take(name string, until int, p *place) (turn, bool) {
	x.mu.Lock()
	held := x.turns[name]
	if held == nil {
		held = make(chan struct{}, 1)
		x.turns[name] = held
	}
	x.mu.Unlock()
	t := turn{held, until}
	select {
	case held <- struct{}{}:
		return t, true
	default:
	}
	p.leave()
	select {
	case held <- struct{}{}:
	case <-x.work.Done():
		return turn{}, false
	}
	if !p.take(x.work) {
		t.end()
		return turn{}, false
	}
	return t, true
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
	switch waits := x.r.Waits(&e.Unit); {
	case x.serial, waits && !e.Read:
		p.room = x.unready
	case waits:
		p.room = x.resumed
	}
	if !p.take(x.work) {
		return false
	}
	if x.follow.lost(e) {
		x.follow.leave(x.r, e)
		x.shared.Counted(-1, 0)
		x.end(e)
		p.leave()
		return true
	}
	x.raising.Lock()
	err := x.r.Recorder.Journals.Raise(x.work, e)
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
		x.unit(ctx, e, p, waited)
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

// unit makes the changes of one unit in order. p is its place; a unit that is
// among the unready takes a write slot for each write in addition.
func (x *Executor) unit(ctx context.Context, e *journal.Entry, p *place, waited time.Time) {
	begun := false
	var answer wait.Answer // of the job, about the guarded step
	var own turn
	defer func() { own.end() }()
	for _, s := range e.Steps() {
		if s.Index == own.until {
			own.end()
		}
		began := time.Now()
		switch state := s.State(); {
		case state == journal.StepLeft:
			if s.Result() == migration.ChangeNotStarted {
				s.ReportResult(migration.ChangeLeft)
			}
			continue
		case state.IsDone() && s.Writes() && !journal.Recreates(&e.Unit) && !s.GaveUp():
			s.ReportResult(state.Result())
			begun = true
			continue
		}
		if s.Guard {
			answer = wait.Answer{}
		}
		if guard, gaveUp, ask := s.GuardToAsk(!answer.Read.IsZero()); ask {
			if guard.Turn != "" && own.held == nil {
				var ok bool
				if own, ok = x.take(guard.Turn, s.Index+len(s.Guarded()), p); !ok {
					return // the report says not-started, or open if the unit had begun
				}
			}
			var left bool
			var err error
			if left, answer, err = x.decide(ctx, guard, p, waited, gaveUp); err != nil {
				x.failStep(s, fmt.Errorf("%s: %w", s.Ref, err), began)
				return
			}
			if left {
				continue
			}
		}
		result := migration.ChangeDone
		if s.Writes() {
			if x.work.Err() != nil {
				return // the report says not-started, or open if the unit had begun
			}
			begun = true
			s.ReportResult(migration.ChangeOpen)
			var err error
			var left bool
			if result, left, err = writeDecided(ctx, x, s, p, waited, &answer); left && err == nil {
				continue
			}
			if moved, ok := errors.AsType[*write.ChangedError](err); ok && moved.NoEffect {
				if from, can := s.LeavesFrom(); can {
					if err = x.leave(ctx, from, act.NotAsDecided(moved)); err == nil {
						continue
					}
				}
			}
			if err != nil {
				x.failStep(s, err, began)
				return
			}
		}
		conditions := x.r.After(s)
		if s.Verb != migration.Delete || !s.IsShown() {
			// What an earlier process has deleted is looked after by the plan of now.
			conditions = append(conditions, x.r.Job.Await(s.Change)...)
		}
		conditions = append(sees(x.r, s, conditions), conditions...)
		if len(conditions) > 0 {
			limit := ctx
			if _, more := s.NextWrite(); more && !begun {
				limit = x.work // what is waited for is there for a write that will not be
			}
			err := x.waits(s.Ref, func(tell func(string)) error {
				return x.follow.unlessLeft(limit, s, func(limit context.Context) error {
					return x.r.Nudging(limit, x.waiter, s.Change, func() error { return x.waiter.WaitTelling(limit, conditions, time.Now(), tell) })
				})
			})
			if err != nil {
				x.failStep(s, fmt.Errorf("%s: %w", s.Ref, err), began)
				return
			}
			waited = time.Now()
		}
		x.recordEffects(ctx, s)
		switch state := s.State(); {
		case s.Writes() && state == journal.StepNotBegun:
			// It was so already: this run has nothing to undo.
			s.SetState(journal.StepLeft)
		case s.Writes() && state == journal.StepUnknown:
			s.SetState(journal.StepFound)
		default:
			s.SetState(journal.StepDone)
		}
		took := Seconds(time.Since(began))
		s.ReportResult(result)
		s.ReportSeconds(took)
		if s.Writes() {
			x.r.Log.Info(pastTense(s.Verb, result), zap.String("object", s.Ref.String()), zap.Float64("seconds", took))
		}
	}
	x.end(e)
}

// end is that of a unit with which nothing went wrong.
func (x *Executor) end(e *journal.Entry) {
	e.Unload()
	if e.Complete() {
		// Not in the unit's own slot: nothing waits for a mark.
		x.units.Go(func() { x.r.Recorder.MarkDone(x.work, e.Chunk) })
	}
	x.follow.conclude(e)
	x.step(1, e.Unit.ID)
}

// writeDecided makes one change. As often as the answer of the job is too old when a request is
// to be sent, the job is asked again; left: the change is given up, with what belongs to it.
func writeDecided(ctx context.Context, x *Executor, s journal.Step, p *place, waited time.Time, answer *wait.Answer) (result string, left bool, err error) {
	var asks wait.Asks
	for {
		result, err = x.write(s, p, *answer)
		if !errors.Is(err, write.ErrOldDecision) {
			return result, false, err
		}
		guard, _ := s.GuardedBy()
		if old := asks.Again(*answer); old != nil {
			return "", true, x.leave(ctx, guard, *tooOld(s.Ref, fmt.Errorf("%w; %w", old, err)))
		}
		if left, *answer, err = x.decide(ctx, guard, p, waited, false); left || err != nil {
			return "", left, err
		}
	}
}

// write makes one change in a write slot. answer is the job's; zero if it was not asked.
func (x *Executor) write(s journal.Step, p *place, answer wait.Answer) (string, error) {
	if p.room != x.slots {
		x.slots <- struct{}{}
		defer func() { <-x.slots }()
	}
	ctx := x.work
	if !answer.Read.IsZero() && s.Decides() {
		ctx = write.WithDecision(ctx, &write.Decision{Answer: answer, Once: s.Entry.Unit.Commit})
	}
	return x.r.Apply(ctx, s)
}

// await is a unit that writes nothing: it is in no journal.
func (x *Executor) await(ctx context.Context, u *migration.Unit) {
	for i := range u.Changes {
		ch := &u.Changes[i]
		began := time.Now()
		report := migration.ReportOf(ch, migration.ChangeDone)
		err := x.waits(ch.Ref, func(tell func(string)) error { return x.waiter.WaitTelling(ctx, x.r.Job.Await(ch), began, tell) })
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

// failStep records why a step failed that began then, and lets nothing new begin.
func (x *Executor) failStep(s journal.Step, err error, began time.Time) {
	x.fail(s.Ref, err)
	s.Report(endOf(s.Result(), err))
	s.ReportSeconds(Seconds(time.Since(began)))
}

// endOf is what a report says of a change that has failed, or that the end of the run cut off.
func endOf(result string, err error) (_, message string) {
	switch {
	case !act.Ended(err):
		result = migration.ChangeFailed
	case result != migration.ChangeNotStarted:
		result = migration.ChangeOpen
	}
	return result, err.Error()
}

// fail records why the unit of an object failed, and lets nothing new begin.
func (x *Executor) fail(ref migration.Ref, err error) {
	var cutOff *wait.CutOffError
	var timeout *act.TimeoutError
	// What was still waited for when the time ran out has a name, too.
	if !act.Ended(err) || errors.As(err, &cutOff) && errors.As(err, &timeout) {
		finding := act.Advised(migration.Finding{Severity: migration.Error, Object: ref.String(), Problem: act.ProblemOf(ref, err)}, err)
		x.r.Findings.Add(finding)
		x.r.Log.Error("failed", zap.String("object", finding.Object), zap.String("problem", finding.Problem), zap.String("hint", finding.Advice().String()))
	}
	x.failRun(err)
}

func (x *Executor) failRun(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.Failures = append(x.Failures, err)
	x.Stop(act.ErrStopped)
}

// waits counts an object among those that are waited for while wait goes on, also if a
// condition of the job panics. After firstReminder, and every reminder, the log names the one that
// has taken the longest, and why.
func (x *Executor) waits(ref migration.Ref, wait func(tell func(reason string)) error) error {
	w := &Wait{Object: ref.String(), Since: time.Now()}
	x.mu.Lock()
	x.waiting = append(x.waiting, w)
	var timer *time.Timer
	timer = time.AfterFunc(firstReminder, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		place := slices.Index(x.waiting, w)
		if place < 0 {
			return // it has just ended
		}
		if place == 0 {
			x.r.Log.Info("still waiting", zap.String("object", w.Object), zap.String("reason", w.Reason), zap.Float64("seconds", Seconds(time.Since(w.Since))), zap.Int("objects", len(x.waiting)))
		}
		timer.Reset(reminder)
	})
	x.mu.Unlock()
	x.step(0, "")
	defer func() {
		timer.Stop()
		x.mu.Lock()
		x.waiting = slices.DeleteFunc(x.waiting, func(other *Wait) bool { return other == w })
		x.mu.Unlock()
		x.step(0, "")
	}()
	return wait(func(reason string) {
		x.mu.Lock()
		changed := w.Reason != reason
		w.Reason = reason
		x.mu.Unlock()
		if changed {
			x.step(0, "")
		}
	})
}

// firstReminder is after how long the log names an object that is waited for, reminder how often
// from then on.
const (
	firstReminder = 5 * time.Second
	reminder      = 30 * time.Second
)

func (x *Executor) step(done int, what string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.done += done
	var longest Wait
	if len(x.waiting) > 0 {
		longest = *x.waiting[0]
	}
	x.progress.Step(x.done, len(x.waiting), longest, what)
}

func nextBatch(units *[]migration.Unit) []migration.Unit {
	changes, n := 0, 0
	for n < len(*units) {
		changes += len((*units)[n].Changes)
		if n > 0 && changes > journal.ChunkChanges {
			break
		}
		n++
	}
	batch := (*units)[:n]
	*units = (*units)[n:]
	return batch
}

// DryRunRemaining asks the server, without writing, which of the creations that were not
// begun it would refuse too: after the first failure, one run names them all.
func DryRunRemaining(ctx context.Context, a *act.Actor, units []migration.Unit) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var open []*migration.Unit
	journaled := map[string]bool{}
	for _, e := range a.Recorder.Journal.Entries() {
		journaled[e.Unit.ID] = true
		if reports := e.Reports(); !e.Done && len(reports) > 0 && reports[0].Result == migration.ChangeNotStarted {
			open = append(open, &e.Unit)
		}
	}
	for i := range units {
		if !journaled[units[i].ID] {
			open = append(open, &units[i])
		}
	}
	slots := make(chan struct{}, 16)
	var all sync.WaitGroup
	for _, u := range open {
		// Units may begin with a wait: for the Broker of a Trigger.
		first := journal.FirstWrite(u.Changes)
		if first < 0 || u.Changes[first].Verb != migration.Create || ctx.Err() != nil {
			continue
		}
		ch := &u.Changes[first]
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			_, err := ch.Ref.Resource.In(a.Writer.Client, ch.Ref.Namespace).
				Create(ctx, ch.Built(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil && act.IsRefusal(err) && !act.LacksDryRun(err) {
				a.Findings.Add(act.Advised(migration.Finding{Severity: migration.Error, Object: ch.Ref.String(), Problem: "would be refused too: " + err.Error()}, err))
			}
		})
	}
	all.Wait()
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

// Wait is an object that is waited for.
type Wait struct {
	Object string
	Since  time.Time
	// Reason is why it is not as it is to be, "" if that is not known.
	Reason string
}

// Progress is told how far a run is.
type Progress interface {
	// Start is called once there is something to do, with the number of units.
	Start(total int)
	// Step is called when something changed: done units, how many objects are waited for, which
	// of them for the longest time (zero if there is none), and what just happened.
	Step(done, waiting int, longest Wait, what string)
	// Stop is called when the run ends, also if Start never was.
	Stop()
}
