package execute

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

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

// Wait is an object that is waited for.
type Wait struct {
	Object string
	Since  time.Time
	// Reason is why it is not as it is to be, "" if that is not known.
	Reason string
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
			x.actor.Log.Info("still waiting", zap.String("object", w.Object), zap.String("reason", w.Reason), zap.Float64("seconds", Seconds(time.Since(w.Since))), zap.Int("objects", len(x.waiting)))
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
