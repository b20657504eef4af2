package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/findings"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// StoredJournal is one run of a job as its journal tells, or, for an account that may
// not read journals, as the mark on the Lease does.
type StoredJournal struct {
	Job string `json:"job"`
	// Run is "" if only the mark is known, and Phase is PhaseUnknown then.
	Run string `json:"run"`
	// Number puts runs in order, the newest last; 0 for those of older versions.
	Number    int       `json:"number,omitempty"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"startedAt"`
	Phase     string    `json:"phase"`
	// Open: the run was interrupted, or its rollback did not end.
	Open bool `json:"open"`
}

// PhaseUnknown is that of a run of which only the mark on the Lease is known.
const PhaseUnknown = "its journal cannot be read"

// What names the run in a sentence.
func (j *StoredJournal) What() string {
	if j.Run == "" {
		return "a run begun at " + j.StartedAt.UTC().Format(time.RFC3339)
	}
	return "run " + j.Run
}

// StoredReport is the last report of a job that said something new.
type StoredReport struct {
	migration.Report
	// LeftOut counts the changes and findings that its ConfigMap had no room for.
	LeftOut int `json:"leftOut,omitempty"`
}

// HeldLock is a Lease that somebody holds, or held until he was killed.
type HeldLock struct {
	Holder string `json:"holder"`
	// User, Host and Jobs are what the holder says of itself; empty for older versions.
	User     string        `json:"user,omitempty"`
	Host     string        `json:"host,omitempty"`
	Jobs     []string      `json:"jobs,omitempty"`
	Acquired time.Time     `json:"acquired"`
	Renewed  time.Time     `json:"renewed"`
	Duration time.Duration `json:"-"`
}

// Live says whether the holder renewed the Lease within its duration, by the
// clock of the one that asks: for messages to people. Who takes the lock compares no
// clocks.
func (l *HeldLock) Live(now time.Time) bool { return l != nil && now.Before(l.Renewed.Add(l.Duration)) }

// Who names the holder for people: user, host and jobs, as far as they are known.
func (l *HeldLock) Who() string {
	who := fmt.Sprintf("%q", l.Holder)
	if l.User != "" {
		who = "user " + l.User + ", process " + who
	}
	if l.Host != "" {
		who += " on " + l.Host
	}
	if len(l.Jobs) > 0 {
		who += " (" + strings.Join(l.Jobs, ", ") + ")"
	}
	return who
}

// String is who holds it since when, for people.
func (l *HeldLock) String() string {
	return fmt.Sprintf("%s holds the lock since %s, and renewed it at %s", l.Who(), l.Acquired.UTC().Format(time.RFC3339), l.Renewed.UTC().Format(time.RFC3339))
}

// State is what the jobs keep in the state namespace.
type State struct {
	// Journals, newest first.
	Journals []StoredJournal
	// Reports by job.
	Reports map[string]*StoredReport
	// Lock is nil if nobody holds it; from OpenState also if no run is open.
	Lock *HeldLock
}

// Open returns the job's run that was interrupted, nil if there is none.
func (s *State) Open(job string) *StoredJournal {
	for i := range s.Journals {
		if s.Journals[i].Job == job && s.Journals[i].Open {
			return &s.Journals[i]
		}
	}
	return nil
}

// OpenState reads what a manager of jobs has to know: the open journals and the
// stored reports.
func (e *Engine) OpenState(ctx context.Context) (*State, error) {
	names := make([]string, len(journal.OpenPhases))
	for i, p := range journal.OpenPhases {
		names[i] = string(p)
	}
	s, err := e.state(ctx, fmt.Sprintf("%s,%s in (%s)", e.opts.Names.Key(journal.LabelJob), e.opts.Names.Key(journal.LabelPhase), strings.Join(names, ",")))
	if err != nil || len(s.Journals) == 0 {
		return s, asker{e}.refused(ctx, migration.WriterState(e.opts.StateNamespace), err)
	}
	// Whether a process is at work on them. Not to know is no reason to stop.
	if s.Lock, err = e.heldLock(ctx); apierrors.IsForbidden(err) {
		err = nil
	}
	return s, err
}

// State reads all that the jobs keep, the lock included.
func (e *Engine) State(ctx context.Context) (*State, error) {
	s, err := e.state(ctx, e.opts.Names.Key(journal.LabelJob)+","+e.opts.Names.Key(journal.LabelPhase))
	if err != nil {
		return nil, err
	}
	s.Lock, err = e.heldLock(ctx)
	return s, err
}

func (e *Engine) heldLock(ctx context.Context) (*HeldLock, error) {
	lock := e.newLock(e.opts.Log)
	if err := lock.Peek(ctx); err != nil {
		return nil, err
	}
	if lock.Seen == nil || lock.Seen.HolderIdentity == "" {
		return nil, nil
	}
	about := lock.Introduced()
	return &HeldLock{
		User: about.User, Host: about.Host, Jobs: about.Jobs,
		Holder: lock.Seen.HolderIdentity, Acquired: lock.Seen.AcquireTime.Time, Renewed: lock.Seen.RenewTime.Time,
		Duration: time.Duration(lock.Seen.LeaseDurationSeconds) * time.Second,
	}, nil
}

// marked returns the open runs of all jobs, as the Lease tells them.
func (e *Engine) marked(ctx context.Context) ([]StoredJournal, error) {
	lock := e.newLock(e.opts.Log)
	if err := lock.Peek(ctx); err != nil {
		return nil, err
	}
	var all []StoredJournal
	for _, o := range lock.OpenRuns() {
		all = append(all, StoredJournal{Job: o.Job, StartedAt: o.Since, Phase: PhaseUnknown, Open: true})
	}
	return all, nil
}

func (e *Engine) state(ctx context.Context, selector string) (*State, error) {
	s := &State{Reports: map[string]*StoredReport{}}
	store := e.journals("")
	secrets, err := store.List(ctx, selector)
	if apierrors.IsForbidden(err) {
		// Who may not read journals is told by the Lease what is open.
		s.Journals, err = e.marked(ctx)
	}
	if err != nil {
		return nil, err
	}
	for i := range secrets {
		secret := &secrets[i]
		h := journal.Header{Job: secret.Labels[e.opts.Names.Key(journal.LabelJob)], Run: secret.Labels[e.opts.Names.Key(journal.LabelRun)]}
		if err := json.Unmarshal(secret.Data["run"], &h); err != nil {
			// The labels tell the run. It hides no other one.
			e.opts.Log.Warn("cannot read the journal of a run", zap.String("secret", secret.Namespace+"/"+secret.Name), zap.Error(err))
		}
		p := journal.Phase(secret.Labels[e.opts.Names.Key(journal.LabelPhase)])
		if p == journal.PhaseIncomplete {
			continue // nothing was done
		}
		s.Journals = append(s.Journals, StoredJournal{
			Job: h.Job, Run: h.Run, Number: h.Number, Version: h.Version, StartedAt: h.StartedAt, Phase: string(p), Open: slices.Contains(journal.OpenPhases, p),
		})
	}
	slices.SortFunc(s.Journals, func(a, b StoredJournal) int {
		return cmp.Or(cmp.Compare(b.Number, a.Number), cmp.Compare(b.Run, a.Run), cmp.Compare(a.Job, b.Job))
	})
	p := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		var page *corev1.ConfigMapList
		err := e.read(ctx, func(ctx context.Context) error {
			var err error
			page, err = e.core.ConfigMaps(e.opts.StateNamespace).List(ctx, opts)
			return err
		})
		return page, err
	})
	err = p.EachListItem(ctx, metav1.ListOptions{LabelSelector: e.opts.Names.Key(journal.LabelJob)}, func(obj runtime.Object) error {
		stored, ok := obj.(*corev1.ConfigMap)
		if !ok {
			return nil
		}
		report := &StoredReport{}
		if err := json.Unmarshal([]byte(stored.Data["report.json"]), report); err != nil {
			// Reports of other jobs can be read.
			e.opts.Log.Warn("cannot read the last report of a job", zap.String("configMap", stored.Namespace+"/"+stored.Name), zap.Error(err))
			return nil
		}
		s.Reports[stored.Labels[e.opts.Names.Key(journal.LabelJob)]] = report
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("cannot list the stored reports: %w", err)
	}
	return s, nil
}

// Cluster returns a view of the cluster that refuses every write.
func (e *Engine) Cluster() *migration.Cluster { return e.newCluster() }

// Decide asks the job what is left to do, as for a plan that is only shown. If a permission is
// missing, the error is a PermissionError that names all that are.
func (e *Engine) Decide(ctx context.Context, job migration.Job) (*migration.Plan, error) {
	plan, err := e.begin("plan", job).plan(ctx, migration.PlanOptions{Preview: true})
	if plan != nil {
		plan.Findings = findings.WithHints(plan.Findings)
	}
	return plan, asker{e}.refused(ctx, asker{e}.accessOf(job), err)
}
