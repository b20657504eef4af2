package jobmanager

import (
	"context"
	"fmt"
	"time"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Adapted is a migration.Job with its hooks. Whether it is needed is what its own
// plan says: jobs are decided by the state of the cluster.
type Adapted struct {
	job      migration.Job
	hooks    []Hook
	timeout  time.Duration
	goneBy   string
	requires []Requirement
	unless   []func(context.Context, Input) (string, error)
	noUndo   string
}

var (
	_ Job        = (*Adapted)(nil)
	_ Undoer     = (*Adapted)(nil)
	_ Requirer   = (*Adapted)(nil)
	_ Limited    = (*Adapted)(nil)
	_ Deprecated = (*Adapted)(nil)
)

// Adapt makes a job of the engine one of the manager.
func Adapt(job migration.Job, hooks ...Hook) *Adapted { return &Adapted{job: job, hooks: hooks} }

// WithTimeout limits its work.
func (a *Adapted) WithTimeout(d time.Duration) *Adapted { a.timeout = d; return a }

// Until names the release in which the job must be gone.
func (a *Adapted) Until(release string) *Adapted { a.goneBy = release; return a }

// Requiring names the APIs it cannot work without.
func (a *Adapted) Requiring(r ...Requirement) *Adapted {
	a.requires = append(a.requires, r...)
	return a
}

// Unless takes the job out of runs for which why returns a reason.
func (a *Adapted) Unless(why func(context.Context, Input) (string, error)) *Adapted {
	a.unless = append(a.unless, why)
	return a
}

// WithoutUndo says why there is nothing to take back.
func (a *Adapted) WithoutUndo(why string) *Adapted { a.noUndo = why; return a }

// Name implements Job.
func (a *Adapted) Name() string { return a.job.Name() }

// Hooks implements Job.
func (a *Adapted) Hooks() []Hook { return a.hooks }

// Migration implements Job.
func (a *Adapted) Migration() migration.Job { return a.job }

// Requires implements Requirer.
func (a *Adapted) Requires() []Requirement { return a.requires }

// Timeout implements Limited.
func (a *Adapted) Timeout() time.Duration { return a.timeout }

// GoneBy implements Deprecated.
func (a *Adapted) GoneBy() string { return a.goneBy }

// Undo implements Undoer.
func (a *Adapted) Undo(ctx context.Context, e Engine) *migration.Report {
	if a.noUndo != "" {
		return &migration.Report{
			Job: a.Name(), Command: "undo", Result: migration.NothingToDo, Message: a.noUndo, StartedAt: time.Now().UTC().Truncate(time.Second),
			Changes: []migration.ChangeReport{}, Findings: []migration.Finding{},
		}
	}
	return e.Undo(ctx, a.job)
}

// Needed implements Job.
func (a *Adapted) Needed(ctx context.Context, in Input) (Need, error) {
	for _, why := range a.unless {
		reason, err := why(ctx, in)
		if err != nil {
			return Need{}, err
		}
		if reason != "" {
			return Need{Verdict: NotNeeded, Reason: reason}, nil
		}
	}
	plan, err := in.Decide(ctx, a.job)
	if err != nil {
		return Need{}, err
	}
	return need(plan), nil
}

// need says what a plan means.
func need(plan *migration.Plan) Need {
	n := Need{Verdict: NotNeeded, Reason: "nothing is left to do", Findings: plan.Findings}
	counts := map[migration.Severity]int{}
	first := map[migration.Severity]migration.Finding{}
	for _, f := range plan.Findings {
		if counts[f.Severity]++; counts[f.Severity] == 1 {
			first[f.Severity] = f
		}
	}
	changes, waits := 0, 0
	for i := range plan.Units {
		if !plan.Units[i].Writes() {
			waits++
			continue
		}
		for j := range plan.Units[i].Changes {
			if plan.Units[i].Changes[j].Writes() {
				changes++
			}
		}
	}
	told := func(s migration.Severity) string {
		f := first[s]
		f.Hint = ""
		if counts[s] == 1 {
			return f.String()
		}
		return fmt.Sprintf("%d problems, the first: %s", counts[s], f)
	}
	switch {
	case counts[migration.Error] > 0:
		n.Verdict, n.Reason = Blocked, told(migration.Error)
	case changes > 0:
		n.Verdict, n.Reason = Needed, plural(changes, "change")+" left to make"
	case waits > 0:
		n.Verdict, n.Reason = Needed, plural(waits, "object")+" to wait for"
	case counts[migration.Deferred] > 0:
		n.Verdict, n.Reason = Deferred, told(migration.Deferred)
	}
	return n
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
