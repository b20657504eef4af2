package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/execute"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/findings"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/lease"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// reporter is the outcome of one command, as it is reported and stored.
type reporter struct {
	engine   *Engine
	command  string
	job      migration.Job
	log      *zap.Logger
	lock     lease.Lease
	findings *findings.List
	recorder *journal.Recorder
	writer   *write.Writer
	started  time.Time
	requests migration.Requests // of the engine when the command began
	// lastPublished is the outcome that was stored last.
	lastPublished outcome

	mu sync.Mutex
	// unjournaled are the reports of changes that are in no journal: planned ones, and waits.
	unjournaled []migration.ChangeReport
	// earlier are the reports of a rollback that this run finished before its own work.
	earlier []migration.ChangeReport
}

func (rp *reporter) add(report migration.ChangeReport) {
	rp.mu.Lock()
	defer rp.mu.Unlock()
	rp.unjournaled = append(rp.unjournaled, report)
}

// changes are the reports of all changes, in the order of the journal.
func (rp *reporter) changes() []migration.ChangeReport {
	all := append([]migration.ChangeReport{}, rp.earlier...)
	if rp.recorder.Journal != nil {
		for _, e := range rp.recorder.Journal.Entries() {
			all = append(all, e.Reports()...)
		}
	}
	return append(all, rp.unjournaled...)
}

// snapshot is the report as things stand.
func (rp *reporter) snapshot(out outcome) *migration.Report {
	rp.mu.Lock()
	defer rp.mu.Unlock()
	report := &migration.Report{
		Job: rp.job.Name(), Command: rp.command, Result: out.result, Message: out.message,
		StartedAt: rp.started.UTC().Truncate(time.Second), Seconds: execute.Seconds(time.Since(rp.started)),
		Requests: migration.Requests{Reads: rp.engine.counter.Reads() - rp.requests.Reads, Writes: rp.engine.counter.Writes() - rp.requests.Writes},
		Changes:  rp.changes(), Findings: nonNil(rp.findings.All()),
		Signal: out.signal, Unrestored: out.unrestored,
	}
	if rp.recorder.Journal != nil {
		report.Run = rp.recorder.Journal.Run
	}
	findings.Redact(report)
	return report
}

// conclude reports how a command ended.
func (rp *reporter) conclude(ctx context.Context, out outcome) *migration.Report {
	if rp.command != "plan" && rp.command != "undo-plan" && out.result != migration.Locked && rp.lastPublished != out {
		rp.publish(ctx, out)
	}
	// Publishing took requests, too.
	final := rp.snapshot(out)
	rp.log.Info("finished", zap.String("result", string(final.Result)), zap.String("summary", final.Message),
		zap.Int("changes", len(final.Changes)), zap.Int("findings", len(final.Findings)), zap.Float64("seconds", final.Seconds),
		zap.Int64("reads", final.Requests.Reads), zap.Int64("writes", final.Requests.Writes))
	return final
}

// published is what outlives the pod.
type published struct {
	migration.Report
	LeftOut int `json:"leftOut,omitempty"`
}

// reportBytes bounds what the report's ConfigMap holds; the full list of changes
// is on stdout.
const reportBytes = 256 << 10

// publish writes the report into its ConfigMap, if that says something else
// than the truth, and one Event into each namespace with changes. A report that
// cannot be written is no failure of the migration.
func (rp *reporter) publish(ctx context.Context, out outcome) {
	rp.lastPublished = out
	report := rp.snapshot(out)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease.CallTimeout)
	defer cancel()
	if !rp.engine.connected.Load() || rp.lock.LossCause() != nil {
		return
	}
	name := rp.engine.opts.Names.Program + "-" + rp.job.Name()
	maps := rp.engine.core.ConfigMaps(rp.engine.opts.StateNamespace)
	var stored *corev1.ConfigMap
	err := rp.engine.read(ctx, func(ctx context.Context) error {
		var err error
		stored, err = maps.Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		rp.log.Warn("cannot read the stored report", zap.Error(err))
		return
	}
	exists := err == nil
	if !exists && report.Result == migration.NothingToDo {
		return
	}
	if exists && upToDate(stored, report) {
		return
	}
	data, err := reportData(report)
	if err != nil {
		rp.log.Warn("cannot encode the report", zap.Error(err))
		return
	}
	write := rp.writer.Write
	if !rp.lock.WasTaken() {
		// Nothing was changed: the report is no part of the migration's state.
		write = func(ctx context.Context, op func(context.Context) error) error {
			return k8sutil.Retry(ctx, lease.CallTimeout, nil, op)
		}
	}
	err = write(ctx, func(ctx context.Context) error {
		configMap := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{rp.engine.opts.Names.Key(journal.LabelJob): rp.job.Name()}}, Data: data,
		}
		if !exists {
			_, err := maps.Create(ctx, configMap, metav1.CreateOptions{})
			if k8sutil.NamespaceGone(err) && !rp.lock.WasTaken() {
				// The first write of all.
				if err := rp.engine.makeStateNamespace(ctx, err); err != nil {
					return err
				}
				_, err = maps.Create(ctx, configMap, metav1.CreateOptions{})
			}
			switch {
			case k8sutil.NamespaceGone(err):
				return err
			case !apierrors.IsAlreadyExists(err):
				return k8sutil.RetryConflict(err)
			}
		}
		_, err := maps.Update(ctx, configMap, metav1.UpdateOptions{})
		exists = !apierrors.IsNotFound(err)
		return k8sutil.RetryConflict(err)
	})
	if err != nil {
		rp.log.Warn("cannot write the report", zap.String("configMap", rp.engine.opts.StateNamespace+"/"+name), zap.Error(err))
	}
	if rp.lock.WasTaken() {
		rp.emitEvents(ctx, report)
	}
}

// upToDate says whether the stored report says the same, the time it took and
// the requests it cost aside. After success, "nothing to do" is no news.
func upToDate(stored *corev1.ConfigMap, report *migration.Report) bool {
	var old published
	if json.Unmarshal([]byte(stored.Data["report.json"]), &old) != nil {
		return false
	}
	// What is too long is stored in part: parts are compared.
	short, _, err := shortened(report)
	if err != nil || !slices.Equal(old.Findings, nonNil(short.Findings)) {
		return false
	}
	if report.Result == migration.NothingToDo && (old.Result == migration.Succeeded || old.Result == migration.NothingToDo) {
		return old.Command != "undo"
	}
	if report.Result == migration.DeferredResult && report.Run == "" && old.Result == migration.DeferredResult {
		return old.Command != "undo" // the run before deferred the same, and said what else it did
	}
	return old.Result == report.Result && old.Message == report.Message && old.Run == report.Run
}

// nonNil is never nil, as what was read from JSON.
func nonNil(findings []migration.Finding) []migration.Finding {
	return append([]migration.Finding{}, findings...)
}

func reportData(report *migration.Report) (map[string]string, error) {
	_, raw, err := shortened(report)
	if err != nil {
		return nil, err
	}
	summary := fmt.Sprintf("%s: %s (%s, %s)", report.Result, report.Message, migration.Count(len(report.Changes), "change"), migration.Count(len(report.Findings), "finding"))
	return map[string]string{"report.json": string(raw), "summary": summary}, nil
}

// shortened is as much of a report as its ConfigMap holds.
func shortened(report *migration.Report) (published, []byte, error) {
	short := published{Report: *report}
	short.Changes = []migration.ChangeReport{}
	for _, ch := range report.Changes {
		if ch.Result != migration.ChangeDone && ch.Result != migration.ChangeUnchanged {
			short.Changes = append(short.Changes, ch)
		}
	}
	for {
		raw, err := json.MarshalIndent(short, "", "  ")
		if err != nil || len(raw) <= reportBytes || len(short.Changes)+len(short.Findings) == 0 {
			return short, raw, err
		}
		short.LeftOut += (len(short.Changes)+1)/2 + (len(short.Findings)+1)/2
		short.Changes = short.Changes[:len(short.Changes)/2]
		short.Findings = short.Findings[:len(short.Findings)/2]
	}
}

// EventReason is that of the Events that runs leave. Their source is Names.Program.
const EventReason = "Migration"

// emitEvents leaves one Event in each namespace that the run changed objects in.
func (rp *reporter) emitEvents(ctx context.Context, report *migration.Report) {
	touched := rp.recorder.ChangedIn(rp.earlier)
	kind := corev1.EventTypeNormal
	if report.ExitCode() != migration.ExitOK {
		kind = corev1.EventTypeWarning
	}
	now := metav1.Now()
	var events errgroup.Group
	events.SetLimit(eventParallelism)
	for namespace, n := range touched {
		event := &corev1.Event{
			// One for each run and result: a repeated call finds it there.
			ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%s-%s-%s", rp.engine.opts.Names.Program, rp.job.Name(), report.Run, report.Result)},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: namespace, Namespace: namespace},
			Type:           kind, Reason: EventReason, Count: 1, FirstTimestamp: now, LastTimestamp: now,
			Source:  corev1.EventSource{Component: rp.engine.opts.Names.Program},
			Message: fmt.Sprintf("%s %s: %s in this namespace. %s: %s", rp.job.Name(), rp.command, migration.Count(n, "change"), report.Result, report.Message),
		}
		events.Go(func() error {
			err := rp.writer.Write(ctx, func(ctx context.Context) error {
				_, err := rp.engine.core.Events(namespace).Create(ctx, event, metav1.CreateOptions{})
				switch {
				case apierrors.IsAlreadyExists(err):
					return nil
				case k8sutil.NamespaceGone(err):
					return err // the namespace of the changes is gone
				}
				return k8sutil.RetryConflict(err)
			})
			if err != nil {
				rp.log.Debug("cannot leave an event", zap.String("namespace", namespace), zap.Error(err))
			}
			return nil // an Event is a courtesy
		})
	}
	_ = events.Wait()
}

// eventParallelism is how many Events are written at once.
const eventParallelism = 8
