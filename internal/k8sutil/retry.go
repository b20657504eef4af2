package k8sutil

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// IsTransient says whether the same request may succeed a moment later: the
// server is overloaded, restarting or unreachable, or the connection broke
// (then the request may also have been carried out). What the server decided on
// the merits (conflict, invalid, forbidden, not found) is not transient.
func IsTransient(err error) bool {
	var readOnly *ReadOnlyError
	var permanent *permanentError
	var status apierrors.APIStatus
	var certificate *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var gone *AccountGoneError
	var refused *refusedForNow
	var retryable retryableError
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.As(err, &readOnly), errors.As(err, &permanent):
		return false
	case errors.As(err, &certificate), errors.As(err, &authority), errors.As(err, &hostname):
		return false
	case errors.As(err, &gone):
		return false
	case errors.As(err, &refused), errors.As(err, &retryable):
		return true
	case errors.As(err, &status):
		switch code := status.Status().Code; RefusalOf(err).Kind {
		case TooLarge, StorageFull:
			// etcd's own words come with code 500. It says them again until somebody acts.
			return false
		default:
			return code == 429 || code >= 500
		}
	default:
		// Anything that is not an answer of the API server is the transport's:
		// resets, refused connections, timeouts of one call, broken bodies.
		return true
	}
}

// IsRefusedUnread says whether it is certain that a request had no effect, and that another attempt
// may have one: it was refused before it was looked at, or in conflict with what is there.
func IsRefusedUnread(err error) bool {
	var retryable retryableError
	return err != nil && (apierrors.IsTooManyRequests(err) || apierrors.IsUnauthorized(err) || errors.As(err, &retryable))
}

var failedWebhook = regexp.MustCompile(`failed calling (?:admission )?webhook \\?"([^"\\]+)`)

// FailedWebhook is the admission webhook that did not answer the API server, "" if the error is of
// something else.
func FailedWebhook(err error) string {
	if match := failedWebhook.FindStringSubmatch(err.Error()); match != nil {
		return match[1]
	}
	return ""
}

// Retryable marks an answer of the API server, decided on the merits, that another
// attempt may well not get, such as a conflict over an object that is gone. It hides the
// answer from errors.As: the caller that gives up must not take it for the last word.
func Retryable(err error) error { return retryableError{err} }

type retryableError struct{ err error }

func (e retryableError) Error() string { return e.err.Error() }

// RetryBudget is how long a call is repeated that fails for a moment: an API
// server that restarts is back within it.
const RetryBudget = time.Minute

// Permanent marks an error of the caller's own as not transient: trying again
// cannot help.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// backoff is the pause between attempts: quick at first, since most faults last for less
// than a second, and never so long that a recovered server is left waiting.
func backoff() wait.Backoff {
	return wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.3, Steps: 8, Cap: 3 * time.Second}
}

// Retry calls op until it succeeds, fails with an error that is not transient,
// the budget is used up, or ctx ends. It waits as long as the server asks
// (Retry-After), else with exponential back-off. notify, if not nil, hears of
// each failed attempt that will be repeated.
//
// The last error of op is returned; if ctx ended while another attempt was due, or
// before the first, ctx's cause, which comes with that error's text.
func Retry(ctx context.Context, budget time.Duration, notify func(error), op func(context.Context) error) error {
	deadline := time.Now().Add(budget)
	steps := backoff()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var last error
	for {
		err := op(ctx)
		if err == nil || !IsTransient(err) {
			return err
		}
		if last == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()) && !errors.Is(err, context.Cause(ctx)) {
			last = err // an attempt that was cut off says less than the answer before
		}
		if ctx.Err() != nil {
			return endedAt(ctx, last)
		}
		delay := steps.Step()
		if steps.Steps == 0 {
			delay = wait.Jitter(steps.Cap, 0.3)
		}
		seconds, delayed := apierrors.SuggestsClientDelay(err)
		if delayed {
			delay = max(delay, time.Duration(seconds)*time.Second)
		}
		if left := time.Until(deadline); delay > left {
			if left <= steps.Cap || !delayed {
				return err
			}
			delay = left // the server asks for more than there is: once more at the end
		}
		if notify != nil {
			notify(err)
		}
		timer := time.NewTimer(delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return endedAt(ctx, last)
		case <-timer.C:
		}
	}
}

// endedAt says that the retries ended with their context, and not because the API server failed for
// too long.
func endedAt(ctx context.Context, last error) error {
	return fmt.Errorf("%w (the last answer: %s)", context.Cause(ctx), last.Error())
}

// Sleep waits for d or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// NamespaceGone says whether the API server refuses an object because its namespace
// does not exist or is being deleted.
func NamespaceGone(err error) bool {
	return apierrors.IsNotFound(err) || NamespaceTerminating(err)
}

// NamespaceTerminating says whether the API server refuses an object because its namespace is
// being deleted. Kubernetes 1.16 has no cause for that, only the text.
func NamespaceTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) ||
		apierrors.IsForbidden(err) && strings.HasSuffix(err.Error(), "because it is being terminated")
}

// Retrying is Retry with a budget for each op: what a Collection repeats its reads with.
func Retrying(budget time.Duration, notify func(error)) func(context.Context, func(context.Context) error) error {
	return func(ctx context.Context, op func(context.Context) error) error { return Retry(ctx, budget, notify, op) }
}

// RetryConflict makes "conflict" and "not found" retryable: for writes without a
// precondition, to objects that only the holder of the lock writes. There they follow on
// "already exists", and the next attempt gets another answer.
func RetryConflict(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return Retryable(err)
	}
	return err
}
