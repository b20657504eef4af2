package act

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/lease"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// FirstRefusal returns the first of joined errors that is a refusal on the
// merits, nil if none is.
func FirstRefusal(err error) error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		for _, one := range joined.Unwrap() {
			if IsRefusal(one) {
				return one
			}
		}
		return nil
	}
	return err
}

// ErrStopped is the cause that ends new work after a failure.
var ErrStopped = errors.New("not started: another change failed")

// ProblemOf words an error for a finding that names ref already.
func ProblemOf(ref migration.Ref, err error) string {
	var change *changeError
	if errors.As(err, &change) {
		return fmt.Sprintf("cannot %s it: %v", change.verb, change.err)
	}
	return strings.TrimPrefix(err.Error(), ref.String()+": ")
}

// Advised returns the finding about an error with its ID and the next action; there may be none but
// reading it.
func Advised(f migration.Finding, err error) migration.Finding {
	var waited *wait.Error
	var cutOff *wait.CutOffError
	var moved *write.ChangedError
	of := func(st migration.Status) migration.Finding {
		f.ID, f.Command, f.Note = cmp.Or(st.ID, "not-ready"), st.Command, st.Note
		return f
	}
	if told, ok := limited(f, err, ""); ok && !errors.As(err, &waited) {
		return told
	}
	switch {
	case errors.As(err, &waited):
		return of(waited.Status)
	case errors.As(err, &cutOff):
		return of(cutOff.Status)
	case errors.As(err, &moved):
		f.ID, f.Note = "changed-meanwhile", "Check the object, and run the job again. It makes a new plan."
	case k8sutil.RefusalOf(err).Kind == k8sutil.NoPermission:
		f.ID, f.Note = "permission-missing", "Grant the missing verb to the account that runs the job, and run the job again."
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		f.ID, f.Note = "refused", "An admission policy, a quota or the schema refuses the object. Change that, and run the job again."
	case k8sutil.FailedWebhook(err) != "":
		f.ID, f.Command = "webhook-down", findWebhooks
		f.Note = fmt.Sprintf("The admission webhook %s does not answer. Start the pods of its Service, and run the job again. To find the Service:", k8sutil.FailedWebhook(err))
	case k8sutil.IsTransient(err):
		f.ID, f.Command = "api-server-trouble", "kubectl get --raw '/readyz?verbose'"
		f.Note = "The API server failed for longer than the job retries. Check its health, and run the job again."
	default:
		f.ID = "failed"
	}
	return f
}

// IsRefusal says whether the server refused on the merits.
func IsRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotAcceptable(err)
}

// LacksDryRun says whether a dry run was refused only since a webhook does not say
// that it has no side effects: those of Knative up to 0.12 do not.
func LacksDryRun(err error) bool {
	return apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "does not support dry run")
}

// Ended says whether an error only says that the run itself ended: signal,
// timeout, lost lock, or another unit's failure.
func Ended(err error) bool {
	var signal SignalError
	var locked *lease.LockedError
	var timeout *TimeoutError
	return errors.As(err, &signal) || errors.As(err, &locked) || errors.As(err, &timeout) ||
		errors.Is(err, ErrStopped) || errors.Is(err, context.Canceled)
}

// TimeoutError is the cause of a context whose limit ran out.
type TimeoutError struct{ What, Flag, Limit string }

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("%s did not end within %s (%s)", e.What, e.Limit, e.Flag)
}

// NotAsDecided is the finding about an object that somebody changed since the plan.
func NotAsDecided(moved *write.ChangedError) migration.Finding {
	return migration.Finding{ID: "changed-meanwhile", Severity: migration.Deferred, Object: moved.Ref.String(), Problem: "not done: it " + moved.Problem, Note: "Run the job again. It decides on the object as it is then."}
}

// SignalError is the cause of a context that a signal ended.
type SignalError struct{ Signal syscall.Signal }

func (e SignalError) Error() string {
	return fmt.Sprintf("interrupted by signal %d (%s)", int(e.Signal), e.Signal)
}
