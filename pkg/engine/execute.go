package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// executor makes the changes of one run: journal, write, wait, mark.
type executor struct {
	r      *actor
	waiter *waiter
	serial bool

	// slots bound writes under way; unready bounds units that wait for objects
	// they made, so that a thousand new ones do not starve each other.
	// asking bounds those that have waited and are in a recheck, checked those that go
	// on after it.
	slots, unready, asking, checked chan struct{}

	// progress is told how far the run is, reported which waits have ended.
	progress Progress
	reported func(migration.ChangeReport)

	// shared are the reads of rechecks.
	shared *sharedReads
	// last are the entries that come after all others.
	last []*entry

	// work ends when a unit failed: nothing new is begun, what waits already
	// comes to its own end, so that every bad object is named.
	work context.Context
	stop context.CancelCauseFunc

	units sync.WaitGroup

	mu            sync.Mutex
	done, waiting int
	failures      []error
	// turns are held by the units whose turn it is (see Change.Turn).
	turns map[string]chan struct{}
}

// errStopped is the cause that ends new work after a failure.
var errStopped = errors.New("not started: another change failed")

func (r *run) newExecutor(ctx context.Context, parallelism int, serial bool) *executor {
	work, stop := context.WithCancelCause(ctx)
	unready := r.e.opts.MaxUnready
	if serial {
		unready = 1
	}
	return &executor{
		r: r.actor, waiter: newWaiter(ctx, r.cluster), serial: serial, shared: newSharedReads(r.newCluster),
		progress: r.e.opts.Progress, reported: r.addReport,
		slots: make(chan struct{}, max(1, parallelism)), unready: make(chan struct{}, unready),
		asking: make(chan struct{}, askingAtOnce), checked: make(chan struct{}, unready),
		work: work, stop: stop, turns: map[string]chan struct{}{},
	}
}

// askingAtOnce is how many units wait for the answer of a recheck: with a read each
// freshEvery, twice as many may go on in a second. More would take memory, and their
// answers would be too old when their turn comes.
const askingAtOnce = 256

// todo is what a run is about to do.
type todo struct {
	// entries are in the journal already; units are put into it in batches, just ahead
	// of their execution; waits write nothing and are in no journal.
	entries      []*entry
	units, waits []migration.Unit
	// lastEntries and last come after all others.
	lastEntries []*entry
	last        []migration.Unit
}

func (t *todo) size() int {
	return len(t.entries) + len(t.units) + len(t.waits) + len(t.lastEntries) + len(t.last)
}

// run does everything. ctx is the run's forward context.
func (x *executor) run(ctx context.Context, t todo) error {
	defer x.stop(nil)
	x.last = t.lastEntries
	x.shared.counted(len(t.entries)+len(t.units)+len(t.waits), 0)
	for i := range t.waits {
		x.units.Go(func() {
			defer x.shared.counted(-1, 0)
			defer x.recovered(&t.waits[i])
			x.await(ctx, &t.waits[i])
		})
	}
	for _, e := range t.entries {
		if !x.start(ctx, e) {
			break
		}
	}
	for batch := range x.journaled(t.units, t.last) {
		for _, e := range batch {
			if !x.start(ctx, e) {
				break
			}
		}
	}
	if err := x.finish(); err != nil {
		return err
	}
	return x.finally(ctx)
}

// finally does what comes after all others, one unit after the other.
func (x *executor) finally(ctx context.Context) error {
	x.shared.counted(len(x.last), 0)
	for _, e := range x.last {
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
func (x *executor) journaled(units, last []migration.Unit) <-chan []*entry {
	batches := make(chan []*entry)
	go func() {
		defer close(batches)
		next := x.r.nextSeq()
		if len(last) > 0 {
			entries, ok := x.journal(last, &next, true)
			if !ok {
				return
			}
			x.last = append(x.last, entries...)
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
func (x *executor) journal(batch []migration.Unit, next *int, last bool) ([]*entry, bool) {
	var entries []*entry
	for i := range batch {
		build(&batch[i])
		pre, err := x.r.preimages(x.work, &batch[i], last)
		if moved, ok := errors.AsType[*changedError](err); ok {
			x.leaveUnit(&batch[i], moved)
			if !last {
				x.shared.counted(-1, 0)
			}
			continue
		}
		if err != nil {
			x.fail(&batch[i], 0, fmt.Errorf("cannot read the pre-image of %s: %w", batch[i].ID, err))
			return nil, false
		}
		e := newEntry(*next, batch[i], pre)
		e.Last = last
		entries = append(entries, e)
		*next++
	}
	if len(entries) == 0 {
		return nil, true
	}
	if err := x.r.journals.append(x.work, x.r.journal, entries); err != nil {
		if x.work.Err() == nil {
			x.failRun(err)
		}
		return nil, false
	}
	return entries, true
}

func newEntry(seq int, u migration.Unit, pre []preimage) *entry {
	e := &entry{Seq: seq, Unit: u, Pre: pre, steps: make([]step, len(u.Changes)), reports: make([]migration.ChangeReport, 0, len(u.Changes))}
	for i := range u.Changes {
		e.steps[i].state = stepNotBegun
		e.reports = append(e.reports, changeReport(&u.Changes[i], migration.ChangeNotStarted))
	}
	return e
}

// finish waits for all units and returns what failed.
func (x *executor) finish() error {
	x.units.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	return errors.Join(x.failures...)
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
// unit gives up its place: whoever has the turn may need it.
func (x *executor) take(name string, until int, p *place) (turn, bool) {
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

// start begins a unit as soon as there is room; false if no more may begin.
func (x *executor) start(ctx context.Context, e *entry) bool {
	p := &place{room: x.slots}
	if x.serial || x.r.waits(&e.Unit) {
		p.room = x.unready
	}
	if !p.take(x.work) {
		return false
	}
	if err := x.r.journals.raise(x.work, e); err != nil {
		p.leave()
		if x.work.Err() == nil {
			x.failRun(err)
		}
		return false
	}
	x.units.Go(func() {
		defer x.shared.counted(-1, 0)
		defer p.leave()
		defer x.recovered(&e.Unit)
		x.unit(ctx, e, p)
	})
	return true
}

// recovered makes a panic, such as one in a job's condition, the unit's failure:
// it must not keep the run from being rolled back.
func (x *executor) recovered(u *migration.Unit) {
	if p := recover(); p != nil {
		x.fail(u, 0, k8sutil.Permanent(fmt.Errorf("panic: %v", p)))
	}
}

// unit makes the changes of one unit in order. p is its place; a unit that is
// among the unready takes a write slot for each write besides.
func (x *executor) unit(ctx context.Context, e *entry, p *place) {
	begun := false
	var waited, asked time.Time
	var own turn
	defer func() { own.end() }()
	for i := range e.Unit.Changes {
		ch := &e.Unit.Changes[i]
		if i == own.until {
			own.end()
		}
		began := time.Now()
		report := &e.reports[i]
		switch state := x.r.stateOf(e, i); {
		case state == stepLeft:
			if report.Result == migration.ChangeNotStarted {
				report.Result = migration.ChangeLeft
			}
			continue
		case state.isDone() && ch.Writes() && !recreatesAny(&e.Unit):
			report.Result = migration.ChangeDone
			begun = true
			continue
		}
		if ch.Guard {
			asked = time.Time{}
		}
		if ask, gaveUp := x.r.undecided(e, i); ch.Guard && (ask || gaveUp) {
			if ch.Turn != "" && own.held == nil {
				var ok bool
				if own, ok = x.take(ch.Turn, guardEnd(&e.Unit, i), p); !ok {
					return // the report says not-started, or open if the unit had begun
				}
			}
			var left bool
			var err error
			if left, asked, err = x.decide(ctx, e, i, p, waited, gaveUp); err != nil {
				x.fail(&e.Unit, i, fmt.Errorf("%s: %w", ch.Ref, err))
				x.report(report, err, time.Since(began))
				return
			}
			if left {
				continue
			}
		}
		result := migration.ChangeDone
		if ch.Writes() {
			if x.work.Err() != nil {
				return // the report says not-started, or open if the unit had begun
			}
			begun = true
			report.Result = migration.ChangeOpen
			var err error
			result, err = x.write(e, i, p, asked)
			left := false
			for errors.Is(err, errOldDecision) && !left {
				if left, asked, err = x.decide(ctx, e, e.guardOf(i), p, waited, false); err == nil && !left {
					result, err = x.write(e, i, p, asked)
				}
			}
			if left && err == nil {
				continue
			}
			if moved, ok := errors.AsType[*changedError](err); ok && moved.noEffect {
				if from := e.leavesFrom(i); from >= 0 {
					if err = x.leave(ctx, e, from, notAsDecided(moved)); err == nil {
						continue
					}
				}
			}
			if err != nil {
				x.fail(&e.Unit, i, err)
				x.report(report, err, time.Since(began))
				return
			}
		}
		conditions := append(x.r.after(e, i), x.r.job.Await(ch)...)
		if len(conditions) > 0 {
			x.step(0, 1, "")
			limit := ctx
			if !begun && firstWrite(e.Unit.Changes[i:]) >= 0 {
				limit = x.work // what is waited for is there for a write that will not be
			}
			err := x.r.nudging(limit, x.waiter, ch, func() error { return x.waiter.wait(limit, conditions, time.Now()) })
			x.step(0, -1, "")
			if err != nil {
				x.fail(&e.Unit, i, fmt.Errorf("%s: %w", ch.Ref, err))
				x.report(report, err, time.Since(began))
				return
			}
			waited = time.Now()
		}
		x.recordEffects(ctx, e, i)
		switch state := x.r.stateOf(e, i); {
		case ch.Writes() && state == stepNotBegun:
			// It was so already: this run has nothing to undo.
			x.r.setState(e, i, stepLeft)
		case ch.Writes() && state == stepUnknown:
			x.r.setState(e, i, stepFound)
		default:
			x.r.setState(e, i, stepDone)
		}
		report.Result, report.Seconds = result, seconds(time.Since(began))
		if ch.Writes() {
			x.r.log.Info(pastTense(ch.Verb, result), zap.String("object", ch.Ref.String()), zap.Float64("seconds", report.Seconds))
		}
	}
	x.r.unload(e)
	if x.r.complete(e) {
		// Not in the unit's own slot: nothing waits for a mark.
		x.units.Go(func() { x.r.markDone(x.work, e.chunk) })
	}
	x.step(1, 0, e.Unit.ID)
}

// write makes one change in a write slot. asked is when the job decided on it; zero if
// it was not asked.
func (x *executor) write(e *entry, i int, p *place, asked time.Time) (string, error) {
	if p.room != x.slots {
		x.slots <- struct{}{}
		defer func() { <-x.slots }()
	}
	ctx := x.work
	if !asked.IsZero() && e.decides(i) {
		ctx = decided(ctx, &decision{asked: asked, once: e.Unit.Commit})
	}
	return x.r.apply(ctx, e, i)
}

// await is a unit that writes nothing: it is in no journal.
func (x *executor) await(ctx context.Context, u *migration.Unit) {
	for i := range u.Changes {
		ch := &u.Changes[i]
		began := time.Now()
		report := changeReport(ch, migration.ChangeDone)
		x.step(0, 1, "")
		err := x.waiter.wait(ctx, x.r.job.Await(ch), began)
		x.step(0, -1, "")
		if err != nil {
			x.fail(u, i, fmt.Errorf("%s: %w", ch.Ref, err))
		}
		x.report(&report, err, time.Since(began))
		x.reported(report)
		if err != nil {
			return
		}
	}
	x.step(1, 0, u.ID)
}

func (x *executor) report(report *migration.ChangeReport, err error, took time.Duration) {
	report.Seconds = seconds(took)
	switch {
	case err == nil:
	case ended(err):
		if report.Result != migration.ChangeNotStarted {
			report.Result = migration.ChangeOpen
		}
		report.Message = err.Error()
	default:
		report.Result, report.Message = migration.ChangeFailed, err.Error()
	}
}

// fail records why a unit failed, and lets nothing new begin.
func (x *executor) fail(u *migration.Unit, i int, err error) {
	var cutOff *cutOffError
	var timeout *timeoutError
	// What was still waited for when the time ran out has a name, too.
	if !ended(err) || errors.As(err, &cutOff) && errors.As(err, &timeout) {
		ref := u.Changes[i].Ref
		finding := migration.Finding{Severity: migration.Error, Object: ref.String(), Problem: problemOf(ref, err), Hint: hintFor(err)}
		x.r.addFinding(finding)
		x.r.log.Error("failed", zap.String("object", finding.Object), zap.String("problem", finding.Problem), zap.String("hint", finding.Hint))
	}
	x.failRun(err)
}

func (x *executor) failRun(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.failures = append(x.failures, err)
	x.stop(errStopped)
}

func (x *executor) step(done, waiting int, what string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.done += done
	x.waiting += waiting
	x.progress.Step(x.done, x.waiting, what)
}

// complete takes a unit as done, and says whether to write that into the
// journal now: when its whole chunk is done, since a missing mark costs a look
// and no more; at once if a finished unit must survive a later failure. The first
// chunk's marks go with the end of the run.
func (rec *recorder) complete(e *entry) bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	e.done = true
	e.chunk.left--
	return e.Unit.Commit || e.chunk.left == 0 && e.chunk.index > 0
}

// forget drops the objects of a unit that has ended: the journal has them, and a
// rollback reads them from there. What is remade is looked at again by others.
func (rec *recorder) unload(e *entry) {
	if e.Unit.Commit || recreatesAny(&e.Unit) {
		return
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	for i := range e.steps {
		if e.Unit.Changes[i].Verb == migration.Create && e.steps[i].hash == "" {
			return // what was planned is all there is to know it by
		}
	}
	e.unloaded = make([]types.UID, len(e.Pre))
	for i := range e.Pre {
		if e.Pre[i].Object != nil {
			e.unloaded[i] = e.Pre[i].Object.GetUID()
		}
		e.Pre[i].Object, e.Unit.Changes[i].Object, e.Unit.Changes[i].Build = nil, nil, nil
	}
	e.latest = nil
}

// recall reads what was forgotten of a unit, and of the others of its chunk.
func (rec *recorder) reload(ctx context.Context, e *entry) error {
	if e.unloaded == nil {
		return nil
	}
	stored, err := rec.journals.loadChunk(ctx, rec.journal.header, e.chunk)
	if err != nil {
		return err
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	bySeq := map[int]*entry{}
	for _, s := range stored.entries {
		bySeq[s.Seq] = s
	}
	for _, e := range e.chunk.entries {
		s := bySeq[e.Seq]
		if e.unloaded == nil || s == nil {
			continue
		}
		for i := range e.Pre {
			e.Pre[i].Object, e.Unit.Changes[i].Object = s.Pre[i].Object, s.Unit.Changes[i].Object
		}
		e.unloaded = nil
	}
	return nil
}

func (rec *recorder) stateOf(e *entry, i int) stepState {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return e.steps[i].state
}

// hasBegun says whether any write of the entry was, or may have been, begun.
func (rec *recorder) hasBegun(e *entry) bool {
	for i := range e.Unit.Changes {
		if e.Unit.Changes[i].Writes() && rec.stateOf(e, i).begun() {
			return true
		}
	}
	return false
}

func (rec *recorder) setState(e *entry, i int, s stepState) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if e.steps[i].state != stepLeft {
		e.steps[i].state = s
	}
}

func (rec *recorder) markDone(ctx context.Context, c *chunk) {
	rec.marking.Lock()
	defer rec.marking.Unlock()
	if err := rec.journals.mark(ctx, c.name, rec.marks(c)); err != nil && ctx.Err() == nil {
		rec.log.Warn("cannot mark what is done in the journal; a later run will look again", zap.Error(err))
	}
}

// waits says whether any change of the unit is waited for.
func (a *actor) waits(u *migration.Unit) bool {
	for i := range u.Changes {
		if u.Changes[i].Verb == migration.Delete || u.Changes[i].Verb == migration.Restart || len(a.job.Await(&u.Changes[i])) > 0 {
			return true
		}
	}
	return false
}

func nextBatch(units *[]migration.Unit) []migration.Unit {
	changes, n := 0, 0
	for n < len(*units) {
		changes += len((*units)[n].Changes)
		if n > 0 && changes > chunkChanges {
			break
		}
		n++
	}
	batch := (*units)[:n]
	*units = (*units)[n:]
	return batch
}

// refused asks the server, without writing, which of the creations that were not
// begun it would refuse too: after the first failure, one run names them all.
func (r *run) dryRunRemaining(ctx context.Context, units []migration.Unit) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var open []*migration.Unit
	journaled := map[string]bool{}
	for _, e := range r.journal.entries() {
		journaled[e.Unit.ID] = true
		if !e.done && len(e.reports) > 0 && e.reports[0].Result == migration.ChangeNotStarted {
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
		first := firstWrite(u.Changes)
		if first < 0 || u.Changes[first].Verb != migration.Create || ctx.Err() != nil {
			continue
		}
		ch := &u.Changes[first]
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			_, err := ch.Ref.Resource.In(r.client, ch.Ref.Namespace).
				Create(ctx, ch.Built(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil && isRefusal(err) && !lacksDryRun(err) {
				r.addFinding(migration.Finding{Severity: migration.Error, Object: ch.Ref.String(), Problem: "would be refused too: " + err.Error(), Hint: hintFor(err)})
			}
		})
	}
	all.Wait()
}

func seconds(d time.Duration) float64 {
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

// build makes all objects of the unit.
func build(u *migration.Unit) {
	for i := range u.Changes {
		u.Changes[i].Object = u.Changes[i].Built()
	}
}
