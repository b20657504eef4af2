package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/findings"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/lease"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// explainer makes outcomes of errors, with the findings that say what to do.
type explainer struct {
	engine   *Engine
	job      migration.Job
	lock     lease.Lease
	findings *findings.List
	recorder *journal.Recorder
	actor    *act.Actor
}

// nothingChanged is the outcome of an error before the first write.
func (x *explainer) nothingChanged(ctx context.Context, err error) outcome {
	var locked *lease.LockedError
	var timeout *act.TimeoutError
	var signal act.SignalError
	var home *stateNamespaceError
	var large *journal.TooLargeError
	switch {
	case errors.As(err, &locked):
		return outcome{result: migration.Locked, message: locked.Error() + "; nothing was changed"}
	case errors.As(err, &signal):
		return outcome{result: migration.Interrupted, signal: int(signal.Signal), message: signal.Error() + "; nothing was changed"}
	case ctx.Err() != nil && errors.As(context.Cause(ctx), &timeout):
		return outcome{result: migration.TimedOut, message: timeout.Error() + "; nothing was changed"}
	case ctx.Err() != nil && errors.As(context.Cause(ctx), &signal):
		return outcome{result: migration.Interrupted, signal: int(signal.Signal), message: signal.Error() + "; nothing was changed"}
	case ctx.Err() != nil:
		return outcome{result: migration.Interrupted, signal: int(syscall.SIGTERM), message: context.Cause(ctx).Error() + "; nothing was changed"}
	case IsDamaged(err) != nil:
		x.findings.Add(migration.Finding{ID: "journal-damaged", Severity: migration.Error, Problem: err.Error(), Note: IsDamaged(err).Advice().Note, Command: IsDamaged(err).Advice().Command})
		return outcome{result: migration.Refused, message: err.Error() + "; nothing was changed"}
	case errors.As(err, &home):
		x.findings.Add(migration.Finding{ID: "state-namespace-unusable", Severity: migration.Error, Object: "Namespace " + home.namespace, Problem: home.Error(), Note: home.advice().Note, Command: home.advice().Command})
		return outcome{result: migration.Refused, message: home.Error() + "; nothing was changed"}
	case errors.As(err, &large):
		x.findings.Add(act.Advised(migration.Finding{Severity: migration.Error, Problem: err.Error()}, err))
		return outcome{result: migration.Refused, message: err.Error() + "; nothing was changed"}
	case k8sutil.RefusalOf(err).Kind == k8sutil.NoPermission:
		var all *PermissionError
		if errors.As(asker{x.engine}.refused(ctx, asker{x.engine}.accessOf(x.job), err), &all) {
			x.findings.Add(all.Findings...)
			return outcome{result: migration.Refused, message: migration.Count(len(all.Findings), "missing permission") + "; nothing was changed"}
		}
		x.findings.Add(migration.Finding{ID: "permission-missing", Severity: migration.Error, Problem: err.Error(), Note: grant})
		return outcome{result: migration.Refused, message: "a permission is missing; nothing was changed"}
	case k8sutil.RefusalOf(err) == (k8sutil.Refusal{Kind: k8sutil.ByPolicy}):
		// Who refuses it, nobody says.
		x.findings.Add(act.Advised(migration.Finding{Severity: migration.Error, Problem: err.Error()}, err))
		return outcome{result: migration.Refused, message: err.Error() + "; nothing was changed"}
	case k8sutil.RefusalOf(err).Kind == k8sutil.NoAccount:
		x.findings.Add(migration.Finding{ID: "credentials-refused", Severity: migration.Error, Problem: err.Error(), Note: "Log in again, or use another --context.", Command: "kubectl config get-contexts"})
		return outcome{result: migration.FailedResult, message: "the API server " + x.engine.server + " does not accept the credentials; nothing was changed"}
	case !x.engine.connected.Load() && k8sutil.IsPluginFailure(err):
		x.findings.Add(migration.Finding{ID: "credentials-refused", Severity: migration.Error, Problem: err.Error(), Note: "The credential plugin of the kubeconfig failed, and the cluster was not asked. Log in again, or use another --context.", Command: "kubectl config get-contexts"})
		return outcome{result: migration.FailedResult, message: "the credential plugin of the kubeconfig failed; nothing was changed"}
	case !x.engine.connected.Load() && k8sutil.IsTransient(err):
		x.findings.Add(migration.Finding{
			ID: "api-server-unreachable", Severity: migration.Error, Problem: fmt.Sprintf("cannot reach the API server %s: %v", x.engine.server, err),
			Note:    "Check the address in the kubeconfig (--kubeconfig, --context), the network, and that the server runs.",
			Command: "kubectl cluster-info",
		})
		return outcome{result: migration.FailedResult, message: "cannot reach the API server " + x.engine.server + "; nothing was changed"}
	}
	if f, ok := act.OfState(err, x.engine.opts.StateNamespace); ok && !x.findings.HasError() {
		x.findings.Add(f)
	}
	if !x.findings.HasError() {
		x.findings.Add(act.Advised(migration.Finding{Severity: migration.Error, Problem: err.Error()}, err))
	}
	return outcome{result: migration.FailedResult, message: x.reason(ctx, err) + "; nothing was changed"}
}

// reason is why a run failed, in one clause.
func (x *explainer) reason(ctx context.Context, err error) string {
	var timeout *act.TimeoutError
	if ctx.Err() != nil && errors.As(context.Cause(ctx), &timeout) {
		return timeout.Error()
	}
	found := x.findings.All()
	n := 0
	for _, f := range found {
		if f.Severity == migration.Error {
			n++
		}
	}
	if n > 1 {
		return fmt.Sprintf("%s failed, the first: %s", migration.Count(n, "object"), findings.FirstError(found))
	}
	if n == 1 {
		return findings.FirstError(found)
	}
	return err.Error()
}

func (x *explainer) refusal(plan *migration.Plan) outcome {
	x.findings.Add(plan.Findings...)
	n := 0
	for _, f := range plan.Findings {
		if f.Severity == migration.Error {
			n++
		}
	}
	return outcome{result: migration.Refused, message: fmt.Sprintf("refused: fix %s and run again; nothing was changed", migration.Count(n, "problem"))}
}

// interruption says whether err means that the process was asked to stop, or lost
// the lock: then nothing more may be written, and the journal stays open.
func (x *explainer) interruption(parent context.Context, err error) (outcome, bool) {
	var locked *lease.LockedError
	if lost := x.lock.LossCause(); lost != nil {
		err = errors.Join(lost, err)
	}
	if errors.As(err, &locked) {
		return outcome{result: migration.Locked, message: locked.Error() + "; this run stopped before its next write, its journal is open"}, true
	}
	if parent.Err() == nil {
		return outcome{}, false
	}
	var signal act.SignalError
	number := syscall.SIGTERM
	if errors.As(context.Cause(parent), &signal) {
		number = signal.Signal
	}
	message := context.Cause(parent).Error()
	if x.recorder.Journal != nil && !x.recorder.Journal.Empty() {
		message += "; the journal is open: run again to finish, or undo"
	} else {
		message += "; nothing was changed"
	}
	return outcome{result: migration.Interrupted, message: message, signal: int(number)}, true
}

// stranded says whether a run can neither go on nor roll back: its account is gone,
// or its journal is. What it has done stays, and the report is all there is.
func (x *explainer) stranded(parent context.Context, err error) (outcome, bool) {
	lost := x.lock.LossCause()
	err = errors.Join(err, lost)
	if x.recorder.Journal == nil || x.recorder.Journal.Empty() {
		return outcome{}, false
	}
	if gone, ok := errors.AsType[*k8sutil.AccountGoneError](err); ok {
		x.findings.Add(migration.Finding{
			ID: "account-gone", Severity: migration.Error, Problem: lease.GoneIn(err, gone).Error(),
			Note: "Recreate the account with its permissions, or use another one. Run the job again: it goes on where this run stopped. " +
				"The next upgrade by Helm recreates the account of a hook. If one is running already, there is nothing to do.",
		})
		return outcome{result: migration.PartlyRestored, message: "this account is gone: nothing could be written any more; what was done stays, and the journal is open"}, true
	}
	if refused, ok := errors.AsType[*lease.RefusedError](err); ok {
		x.findings.Add(act.PermissionLost("Lease "+refused.Lease, refused))
		return outcome{result: migration.PartlyRestored, message: refused.Error() + "; nothing could be written any more; what was done stays, and the journal is open"}, true
	}
	gone, ok := errors.AsType[*journal.StateGoneError](err)
	if locked, isLocked := errors.AsType[*lease.LockedError](err); !ok && isLocked && locked.Deleted {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), lease.CallTimeout)
		defer cancel()
		list, err := x.recorder.Journals.Metadata(ctx, journal.Selects(x.engine.opts.Names, x.job.Name(), x.recorder.Journal.Run))
		if err == nil && len(list) == 0 {
			gone, ok = &journal.StateGoneError{Namespace: x.engine.opts.StateNamespace, Err: locked}, true
		}
	}
	if !ok {
		return outcome{}, false
	}
	x.findings.Add(migration.Finding{
		ID: "state-gone", Severity: migration.Error, Object: "Namespace " + x.engine.opts.StateNamespace, Problem: gone.Error(),
		Note:    "What this run changed is listed above. No command can undo it. If the namespace is gone, create it. Then run the job again.",
		Command: createNamespace(x.engine.opts.StateNamespace),
	})
	return outcome{result: migration.PartlyRestored, message: fmt.Sprintf("%v; this run stopped, and what was done stays", gone)}, true
}

func (x *explainer) cutOff(parent context.Context, err error) outcome {
	if out, ok := x.stranded(parent, err); ok {
		return out
	}
	if out, interrupted := x.interruption(parent, err); interrupted {
		return out
	}
	if written, ok := errors.AsType[*journal.WriteError](err); ok && k8sutil.RefusalOf(err).Kind == k8sutil.NoPermission {
		x.findings.Add(act.PermissionLost("Secret "+written.Namespace+"/"+written.Name, err))
		return outcome{result: migration.PartlyRestored, message: written.Error() + "; what was done stays, and the journal is open"}
	}
	advice := x.actor.RestoreAdvice()
	if cut, ok := errors.AsType[*wait.CutOffError](err); ok {
		// What to do first: the undo comes after it.
		advice.Note = strings.TrimSpace(cut.Status.Note + " " + advice.Note)
		advice.Command = cmp.Or(cut.Status.Command, advice.Command)
	}
	x.findings.Add(migration.Finding{ID: "rollback-not-finished", Severity: migration.Error, Problem: "the rollback did not end: " + err.Error(), Note: advice.Note, Command: advice.Command})
	return outcome{result: migration.PartlyRestored, message: "the rollback did not end: " + err.Error() + "; the journal keeps everything"}
}

// IsDamaged returns the error that a journal lost a Secret, nil if it is another.
func IsDamaged(err error) *journal.DamagedError {
	damaged, _ := errors.AsType[*journal.DamagedError](err)
	return damaged
}
