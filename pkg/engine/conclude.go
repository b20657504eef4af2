package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unique"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// reportBytes bounds what the report's ConfigMap holds; the full list of changes
// is on stdout.
const reportBytes = 256 << 10

// reporter is the outcome of one command, as it is reported and stored.
type reporter struct {
	*actor
	e        *Engine
	lock     lease
	command  string
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

func changeReport(ch *migration.Change, result string) migration.ChangeReport {
	return migration.ChangeReport{
		// Thousands of reports share one version.
		Verb: ch.Verb, Kind: ch.Ref.Kind, APIVersion: unique.Make(ch.Ref.GroupVersion().String()).Value(),
		Namespace: ch.Ref.Namespace, Name: ch.Ref.Name, Result: result, Change: ch,
	}
}

func (rp *reporter) addReport(report migration.ChangeReport) {
	rp.mu.Lock()
	defer rp.mu.Unlock()
	rp.unjournaled = append(rp.unjournaled, report)
}

// changes are the reports of all changes, in the order of the journal.
func (rp *reporter) changes() []migration.ChangeReport {
	all := append([]migration.ChangeReport{}, rp.earlier...)
	if rp.journal != nil {
		for _, e := range rp.journal.entries() {
			all = append(all, e.reports...)
		}
	}
	return append(all, rp.unjournaled...)
}

// fillReports gives entries that came out of a journal their reports.
func (rec *recorder) fillReports() {
	for _, e := range rec.journal.entries() {
		for i := len(e.reports); i < len(e.Unit.Changes); i++ {
			e.reports = append(e.reports, changeReport(&e.Unit.Changes[i], migration.ChangeNotStarted))
		}
	}
}

func (rec *recorder) nextSeq() int {
	if rec.journal == nil {
		return 0 // a run that only waits
	}
	next := 0
	for _, e := range rec.journal.entries() {
		next = max(next, e.Seq+1)
	}
	return next
}

func (rec *recorder) marks(c *chunk) map[int]marks {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return c.marks()
}

// reportOf is the report as things stand.
func (rp *reporter) snapshot(out outcome) *migration.Report {
	rp.mu.Lock()
	defer rp.mu.Unlock()
	report := &migration.Report{
		Job: rp.job.Name(), Command: rp.command, Result: out.result, Message: out.message,
		StartedAt: rp.started.UTC().Truncate(time.Second), Seconds: seconds(time.Since(rp.started)),
		Requests: migration.Requests{Reads: rp.e.counter.Reads() - rp.requests.Reads, Writes: rp.e.counter.Writes() - rp.requests.Writes},
		Changes:  rp.changes(), Findings: nonNil(rp.allFindings()),
		Signal: out.signal, Unrestored: out.unrestored,
	}
	if rp.journal != nil {
		report.Run = rp.journal.Run
	}
	redacted(report)
	return report
}

// redacted leaves out of the texts of a report what others must not read: they quote
// addresses, and what the API server and controllers said.
func redacted(r *migration.Report) {
	r.Message = redact.URLs(r.Message)
	for i := range r.Findings {
		r.Findings[i].Problem, r.Findings[i].Hint = redact.URLs(r.Findings[i].Problem), redact.URLs(r.Findings[i].Hint)
	}
	for i := range r.Changes {
		r.Changes[i].Message = redact.URLs(r.Changes[i].Message)
	}
}

// conclude reports how a command ended.
func (rp *reporter) conclude(ctx context.Context, out outcome) *migration.Report {
	if rp.command != "plan" && out.result != migration.Locked && rp.lastPublished != out {
		rp.publish(ctx, out)
	}
	// Publishing took requests, too.
	final := rp.snapshot(out)
	rp.log.Info("finished", zap.String("result", string(final.Result)), zap.String("message", final.Message),
		zap.Int("changes", len(final.Changes)), zap.Int("findings", len(final.Findings)), zap.Float64("seconds", final.Seconds),
		zap.Int64("reads", final.Requests.Reads), zap.Int64("writes", final.Requests.Writes))
	return final
}

// published is what outlives the pod.
type published struct {
	migration.Report
	LeftOut int `json:"leftOut,omitempty"`
}

// publish writes the report into its ConfigMap, if that says something else
// than the truth, and one Event into each namespace touched. A report that
// cannot be written is no failure of the migration.
func (rp *reporter) publish(ctx context.Context, out outcome) {
	rp.lastPublished = out
	report := rp.snapshot(out)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if !rp.e.connected.Load() || rp.lock.lossCause() != nil {
		return
	}
	name := "eventmesh-migration-" + rp.job.Name()
	maps := rp.e.core.ConfigMaps(rp.e.opts.StateNamespace)
	var stored *corev1.ConfigMap
	err := rp.e.read(ctx, func(ctx context.Context) error {
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
	write := rp.write
	if !rp.lock.wasTaken() {
		// Nothing was changed: the report is no part of the migration's state.
		write = func(ctx context.Context, op func(context.Context) error) error {
			return k8sutil.Retry(ctx, callTimeout, nil, op)
		}
	}
	err = write(ctx, func(ctx context.Context) error {
		configMap := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{labelJob: rp.job.Name()}}, Data: data,
		}
		if !exists {
			_, err := maps.Create(ctx, configMap, metav1.CreateOptions{})
			if stateGone(err) && !rp.lock.wasTaken() {
				// The first write of all.
				if err := rp.e.makeStateNamespace(ctx, err); err != nil {
					return err
				}
				_, err = maps.Create(ctx, configMap, metav1.CreateOptions{})
			}
			switch {
			case stateGone(err):
				return err
			case !apierrors.IsAlreadyExists(err):
				return again(err)
			}
		}
		_, err := maps.Update(ctx, configMap, metav1.UpdateOptions{})
		exists = !apierrors.IsNotFound(err)
		return again(err)
	})
	if err != nil {
		rp.log.Warn("cannot write the report", zap.String("configMap", rp.e.opts.StateNamespace+"/"+name), zap.Error(err))
	}
	if rp.lock.wasTaken() {
		rp.emitEvents(ctx, report)
	}
}

// tellsTruth says whether the stored report says the same, the time it took and
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
		return old.Command != "undo" // the run before deferred the same, and said what it did besides
	}
	return old.Result == report.Result && old.Message == report.Message && old.Run == report.Run
}

// stable is never nil, as what was read from JSON.
func nonNil(findings []migration.Finding) []migration.Finding {
	return append([]migration.Finding{}, findings...)
}

func reportData(report *migration.Report) (map[string]string, error) {
	_, raw, err := shortened(report)
	if err != nil {
		return nil, err
	}
	summary := fmt.Sprintf("%s: %s (%d changes, %d findings)", report.Result, report.Message, len(report.Changes), len(report.Findings))
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

// announce leaves one Event in each namespace that the run touched.
func (rp *reporter) emitEvents(ctx context.Context, report *migration.Report) {
	touched := map[string]int{}
	for _, ch := range report.Changes {
		if ch.Verb != migration.Await && ch.Result != migration.ChangeNotStarted && ch.Result != migration.ChangeUnchanged && ch.Namespace != "" {
			touched[ch.Namespace]++
		}
	}
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
			ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("eventmesh-migration-%s-%s-%s", rp.job.Name(), report.Run, report.Result)},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: namespace, Namespace: namespace},
			Type:           kind, Reason: "EventMeshMigration", Count: 1, FirstTimestamp: now, LastTimestamp: now,
			Source:  corev1.EventSource{Component: "eventmesh-migration"},
			Message: fmt.Sprintf("%s %s: %s in this namespace; %s: %s", rp.job.Name(), rp.command, count(n, "change"), report.Result, report.Message),
		}
		events.Go(func() error {
			err := rp.write(ctx, func(ctx context.Context) error {
				_, err := rp.e.core.Events(namespace).Create(ctx, event, metav1.CreateOptions{})
				switch {
				case apierrors.IsAlreadyExists(err):
					return nil
				case stateGone(err):
					return err // the namespace that the run touched is gone
				}
				return again(err)
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

func hasErrors(plan *migration.Plan) bool {
	return slices.ContainsFunc(plan.Findings, func(f migration.Finding) bool { return f.Severity == migration.Error })
}

func hasDeferred(findings []migration.Finding) bool {
	return slices.ContainsFunc(findings, func(f migration.Finding) bool { return f.Severity == migration.Deferred })
}

func firstError(findings []migration.Finding) string {
	for _, f := range findings {
		if f.Severity == migration.Error {
			if f.Object == "" {
				return f.Problem
			}
			return f.Object + ": " + f.Problem
		}
	}
	return ""
}

// firstRefusal returns the first of joined errors that is a refusal on the
// merits, nil if none is.
func firstRefusal(err error) error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		for _, one := range joined.Unwrap() {
			if isRefusal(one) {
				return one
			}
		}
		return nil
	}
	return err
}

func writingUnits(plan *migration.Plan) int {
	n := 0
	for _, u := range slices.Concat(plan.Units, plan.Last) {
		if u.Writes() {
			n++
		}
	}
	return n
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func verbWas(n int) string {
	if n == 1 {
		return " was"
	}
	return " were"
}

func verbIs(n int) string {
	if n == 1 {
		return " is"
	}
	return " are"
}
