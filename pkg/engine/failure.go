package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// problemOf words an error for a finding that names ref already.
func problemOf(ref migration.Ref, err error) string {
	var change *changeError
	if errors.As(err, &change) {
		return fmt.Sprintf("cannot %s it: %v", change.verb, change.err)
	}
	return strings.TrimPrefix(err.Error(), ref.String()+": ")
}

// hintFor returns the next action for an error; "" if there is none but reading it.
func hintFor(err error) string {
	var waited *WaitError
	var cutOff *cutOffError
	var moved *changedError
	switch {
	case errors.As(err, &waited):
		return waited.Hint
	case errors.As(err, &cutOff):
		return cutOff.status.Hint
	case errors.As(err, &moved):
		return "look at the object, and run the job again: it plans afresh"
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot"):
		return "grant the missing verb to the account that runs the job, and run it again"
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return "an admission policy, a quota or the schema refuses the object: change that, and run the job again"
	case k8sutil.IsTransient(err):
		return "the API server did not answer well for a while: look at its health, and run the job again"
	}
	return ""
}

// isRefusal says whether the server refused on the merits.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotAcceptable(err)
}

// lacksDryRun says whether a dry run was refused only since a webhook does not say
// that it has no side effects: those of Knative up to 0.12 do not.
func lacksDryRun(err error) bool {
	return apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "does not support dry run")
}

// ended says whether an error only says that the run itself ended: signal,
// timeout, lost lock, or another unit's failure.
func ended(err error) bool {
	var signal SignalError
	var locked *LockedError
	var timeout *timeoutError
	return errors.As(err, &signal) || errors.As(err, &locked) || errors.As(err, &timeout) ||
		errors.Is(err, errStopped) || errors.Is(err, context.Canceled)
}

// timeoutError is the cause of a context whose limit ran out.
type timeoutError struct{ what, flag, limit string }

func (e *timeoutError) Error() string {
	return fmt.Sprintf("%s did not end within %s (%s)", e.what, e.limit, e.flag)
}
