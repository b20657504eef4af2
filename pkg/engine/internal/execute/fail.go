package execute

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// failStep records why a step failed that began then, and lets nothing new begin.
func (x *Executor) failStep(s journal.Step, err error, began time.Time) {
	x.fail(s.Ref, err)
	s.Report(endOf(s.Result(), err))
	s.ReportSeconds(Seconds(time.Since(began)))
}

// fail records why the unit of an object failed, and lets nothing new begin.
func (x *Executor) fail(ref migration.Ref, err error) {
	var cutOff *wait.CutOffError
	var timeout *act.TimeoutError
	// Conditions that were still pending when the time ran out are named, too. So has a webhook
	// that did not answer until then.
	if !act.Ended(err) || errors.As(err, &timeout) && (errors.As(err, &cutOff) || k8sutil.FailedWebhook(err) != "") {
		finding := act.Advised(migration.Finding{Severity: migration.Error, Object: ref.String(), Problem: act.ProblemOf(ref, err)}, err)
		x.actor.Findings.Add(finding)
		x.actor.Log.Error("failed", zap.String("object", finding.Object), zap.String("problem", finding.Problem), zap.String("hint", finding.Advice().String()))
	}
	x.failRun(err)
}

func (x *Executor) failRun(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.Failures = append(x.Failures, err)
	x.Stop(act.ErrStopped)
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
