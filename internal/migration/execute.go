package migration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// executor makes the changes of one run: journal, write, wait, mark.
type executor struct {
	r      *run
	waiter *waiter
	serial bool

	// slots bound writes under way; unready bounds units that wait for objects
	// they made, so that a thousand new ones do not starve each other.
	slots, unready chan struct{}

	// work ends when a unit failed: nothing new is begun, what waits already
	// comes to its own end, so that every bad object is named.
	work context.Context
	stop context.CancelCauseFunc

	units sync.WaitGroup

	mu            sync.Mutex
	done, waiting int
	failures      []error
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
		r: r, waiter: newWaiter(ctx, r.cluster), serial: serial,
		slots: make(chan struct{}, max(1, parallelism)), unready: make(chan struct{}, unready),
		work: work, stop: stop,
	}
}

// run does all units: entries that are in the journal already, then units that
// are put into it in batches, just ahead of their execution. ctx is the run's
// forward context.
func (x *executor) run(ctx context.Context, entries []*entry, units, waits []Unit) error {
	defer x.stop(nil)
	for i := range waits {
		x.units.Go(func() {
			defer x.recovered(&waits[i])
			x.await(ctx, &waits[i])
		})
	}
	for _, e := range entries {
		if !x.start(ctx, e) {
			break
		}
	}
	for batch := range x.journaled(units) {
		for _, e := range batch {
			if !x.start(ctx, e) {
				break
			}
		}
	}
	return x.finish()
}

// journaled puts units into the journal, batch by batch, one batch ahead of what
// is being executed: the next one is durable when the last one is under way.
func (x *executor) journaled(units []Unit) <-chan []*entry {
	batches := make(chan []*entry)
	go func() {
		defer close(batches)
		next := x.r.nextSeq()
		for len(units) > 0 && x.work.Err() == nil {
			batch := nextBatch(&units)
			entries := make([]*entry, len(batch))
			for i := range batch {
				pre, err := x.r.preimages(x.work, &batch[i])
				if err != nil {
					x.fail(&batch[i], 0, fmt.Errorf("cannot take the pre-image of %s: %w", batch[i].ID, err))
					return
				}
				entries[i] = newEntry(next, batch[i], pre)
				next++
			}
			if err := x.r.journals.append(x.work, x.r.journal, entries); err != nil {
				if x.work.Err() == nil {
					x.failRun(err)
				}
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

func newEntry(seq int, u Unit, pre []preimage) *entry {
	e := &entry{Seq: seq, Unit: u, Pre: pre, hashes: make([]string, len(u.Changes))}
	for i := range u.Changes {
		e.reports = append(e.reports, reportOf(&u.Changes[i], ChangeNotStarted))
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

// start begins a unit as soon as there is room; false if no more may begin.
func (x *executor) start(ctx context.Context, e *entry) bool {
	room := x.slots
	if x.serial || x.r.waits(&e.Unit) {
		room = x.unready
	}
	select {
	case <-x.work.Done():
		return false
	case room <- struct{}{}:
	}
	if x.work.Err() != nil {
		<-room
		return false
	}
	x.units.Go(func() {
		defer func() { <-room }()
		defer x.recovered(&e.Unit)
		x.unit(ctx, e, room)
	})
	return true
}

// recovered makes a panic, such as one in a job's condition, the unit's failure:
// it must not keep the run from being rolled back.
func (x *executor) recovered(u *Unit) {
	if p := recover(); p != nil {
		x.fail(u, 0, k8sutil.Permanent(fmt.Errorf("panic: %v", p)))
	}
}

// unit makes the changes of one unit in order. room is what start took; a unit
// that took an unready slot takes a write slot for each write besides.
func (x *executor) unit(ctx context.Context, e *entry, room chan struct{}) {
	begun := false
	for i := range e.Unit.Changes {
		ch := &e.Unit.Changes[i]
		began := time.Now()
		report := &e.reports[i]
		result := ChangeDone
		if ch.Writes() {
			if x.work.Err() != nil {
				return // the report says not-started, or open if the unit had begun
			}
			begun = true
			report.Result = ChangeOpen
			var err error
			result, err = x.write(e, i, room)
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
			err := x.r.touching(limit, x.waiter, ch, func() error { return x.waiter.wait(limit, conditions, time.Now()) })
			x.step(0, -1, "")
			if err != nil {
				x.fail(&e.Unit, i, fmt.Errorf("%s: %w", ch.Ref, err))
				x.report(report, err, time.Since(began))
				return
			}
		}
		report.Result, report.Seconds = result, seconds(time.Since(began))
		if ch.Writes() {
			x.r.log.Info(pastTense(ch.Verb, result), zap.String("object", ch.Ref.String()), zap.Float64("seconds", report.Seconds))
		}
	}
	if x.r.complete(e) {
		// Not in the unit's own slot: nothing waits for a mark.
		x.units.Go(func() { x.r.markDone(x.work, e.chunk) })
	}
	x.step(1, 0, e.Unit.ID)
}

// write makes one change in a write slot.
func (x *executor) write(e *entry, i int, room chan struct{}) (string, error) {
	if room != x.slots {
		x.slots <- struct{}{}
		defer func() { <-x.slots }()
	}
	return x.r.apply(x.work, e, i)
}

// await is a unit that writes nothing: it is in no journal.
func (x *executor) await(ctx context.Context, u *Unit) {
	for i := range u.Changes {
		ch := &u.Changes[i]
		began := time.Now()
		report := reportOf(ch, ChangeDone)
		x.step(0, 1, "")
		err := x.waiter.wait(ctx, x.r.job.Await(ch), began)
		x.step(0, -1, "")
		if err != nil {
			x.fail(u, i, fmt.Errorf("%s: %w", ch.Ref, err))
		}
		x.report(&report, err, time.Since(began))
		x.r.addReport(report)
		if err != nil {
			return
		}
	}
	x.step(1, 0, u.ID)
}

func (x *executor) report(report *ChangeReport, err error, took time.Duration) {
	report.Seconds = seconds(took)
	switch {
	case err == nil:
	case x.r.ended(err):
		if report.Result != ChangeNotStarted {
			report.Result = ChangeOpen
		}
		report.Message = err.Error()
	default:
		report.Result, report.Message = ChangeFailed, err.Error()
	}
}

// fail records why a unit failed, and lets nothing new begin.
func (x *executor) fail(u *Unit, i int, err error) {
	var cutOff *cutOffError
	var timeout *timeoutError
	// What was still waited for when the time ran out has a name, too.
	if !x.r.ended(err) || errors.As(err, &cutOff) && errors.As(err, &timeout) {
		ref := u.Changes[i].Ref
		finding := Finding{Severity: Error, Object: ref.String(), Problem: problemOf(ref, err), Hint: hintFor(err)}
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
	x.r.e.opts.Progress.Step(x.done, x.waiting, what)
}

// complete takes a unit as done, and says whether to write that into the
// journal now: when its whole chunk is done, since a missing mark costs a look
// and no more; at once if a finished unit must survive a later failure. The first
// chunk's marks go with the end of the run.
func (r *run) complete(e *entry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.done = true
	e.chunk.left--
	return e.Unit.Commit || e.chunk.left == 0 && e.chunk.index > 0
}

func (r *run) markDone(ctx context.Context, c *chunk) {
	r.marking.Lock()
	defer r.marking.Unlock()
	if err := r.journals.mark(ctx, c.name, r.marks(c)); err != nil && ctx.Err() == nil {
		r.log.Warn("cannot mark what is done in the journal; a later run will look again", zap.Error(err))
	}
}

// waits says whether any change of the unit is waited for.
func (r *run) waits(u *Unit) bool {
	for i := range u.Changes {
		if u.Changes[i].Verb == Delete || u.Changes[i].Verb == Restart || len(r.job.Await(&u.Changes[i])) > 0 {
			return true
		}
	}
	return false
}

func nextBatch(units *[]Unit) []Unit {
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
func (r *run) refused(ctx context.Context, units []Unit) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var open []*Unit
	journaled := map[string]bool{}
	for _, e := range r.journal.entries() {
		journaled[e.Unit.ID] = true
		if !e.done && len(e.reports) > 0 && e.reports[0].Result == ChangeNotStarted {
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
		if first < 0 || u.Changes[first].Verb != Create || ctx.Err() != nil {
			continue
		}
		ch := &u.Changes[first]
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			_, err := resourceIn(r.e.writer, ch.Ref.Resource, ch.Ref.Namespace).
				Create(ctx, ch.Object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil && isRefusal(err) {
				r.addFinding(Finding{Severity: Error, Object: ch.Ref.String(), Problem: "would be refused too: " + err.Error(), Hint: hintFor(err)})
			}
		})
	}
	all.Wait()
}

func seconds(d time.Duration) float64 {
	return float64(d.Round(time.Millisecond)) / float64(time.Second)
}

func pastTense(v Verb, result string) string {
	if result == ChangeUnchanged {
		return "found done already: " + string(v)
	}
	switch v {
	case Patch:
		return "patched"
	case Restart:
		return "restarted"
	default:
		return string(v) + "d"
	}
}
