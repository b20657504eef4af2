package execute

import (
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// journaled puts units into the journal, batch by batch, one batch ahead of what
// is being executed: the next one is durable when the last one is under way. Those
// that come last are in it before all others: a run that goes on after a kill must
// know of them.
func (x *Executor) journaled(units, last []migration.Unit) <-chan []*journal.Entry {
	batches := make(chan []*journal.Entry)
	go func() {
		defer close(batches)
		next := x.actor.Recorder.NextSeq()
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
		pre, err := x.actor.Preimages(x.work, &batch[i], last)
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
	if err := x.actor.Recorder.Journals.Append(x.work, x.actor.Recorder.Journal, entries); err != nil {
		if x.work.Err() == nil {
			x.failRun(err)
		}
		return nil, false
	}
	return entries, true
}

// leaveUnit reports a unit that is not begun, since an object of it is not what
// it was planned for any more.
func (x *Executor) leaveUnit(u *migration.Unit, moved *write.ChangedError) {
	f := act.NotAsDecided(moved)
	x.actor.Findings.Add(f)
	for i := range u.Changes {
		report := migration.ReportOf(&u.Changes[i], migration.ChangeLeft)
		report.Message = f.Problem
		x.reported(report)
	}
	x.actor.Log.Warn("not done: it was changed since the plan was made", zap.String("object", f.Object), zap.String("problem", f.Problem))
	x.step(1, u.ID)
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
