package act

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/lease"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestLacksDryRun: a dry run that a webhook without sideEffects keeps from being asked
// says nothing about the object. Fails on the commit before: it counted as a refusal.
func TestLacksDryRun(t *testing.T) {
	kind := schema.GroupKind{Group: "eventing.knative.dev", Kind: "Trigger"}
	for name, tc := range map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"Knative": {"what the API server answers for Knative 0.12's webhook", apierrors.NewBadRequest(`admission webhook "webhook.eventing.knative.dev" does not support dry run`), true},
		"Refused": {"a refusal on the merits", apierrors.NewBadRequest("the filter is not valid"), false},
		"Invalid": {"an invalid object", apierrors.NewInvalid(kind, "a", nil), false},
		"Other":   {"no answer of the API server", errors.New("it does not support dry run"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := LacksDryRun(tc.err); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}

// TestErrorsInWords: what a person is told of an error, and whether the server refused on the
// merits or the run only ended.
func TestErrorsInWords(t *testing.T) {
	thing := enginetest.Ref("Thing", "a")
	resource, kind := schema.GroupResource{Resource: "things"}, schema.GroupKind{Kind: "Thing"}
	rbac := apierrors.NewForbidden(resource, "a", errors.New(`User "x" cannot create resource "things"`))
	quota := apierrors.NewForbidden(resource, "a", errors.New("exceeded quota"))
	const refusedHint = "An admission policy, a quota or the schema refuses the object. Change that, and run the job again."
	const loadHint = "The API server took no requests of this job for longer than the job retries, and asks to wait 60 s. " +
		"Find out what loads it, or give the job a lower --qps. Run the job again once it is ready: kubectl get --raw '/readyz?verbose'"
	// Every error that is not known for something else may pass.
	const busyHint = "The API server failed for longer than the job retries. Check its health, and run the job again: kubectl get --raw '/readyz?verbose'"
	for name, tc := range map[string]struct {
		err            error
		problem, hint  string
		refused, ended bool
	}{
		"Waited":     {&wait.Error{Text: "a sign", Status: migration.Status{Message: "none", Note: "look"}, After: time.Minute}, "gave up after 1m0s waiting for a sign: none", "look", false, false},
		"Failed":     {&wait.Error{Text: "a sign", Status: migration.Status{Message: "bad", Note: "look"}}, "waiting for a sign cannot succeed: bad", "look", false, false},
		"CutOff":     {&wait.CutOffError{Cause: &TimeoutError{"the run", "--timeout", "5m"}, Text: "a sign", Status: migration.Status{Message: "none", Note: "look"}}, "the run did not end within 5m (--timeout) while waiting for a sign: none", "look", false, true},
		"Moved":      {&changeError{migration.Delete, thing, &write.ChangedError{Ref: thing, Problem: "was edited"}}, "cannot delete it: Thing shop/a was edited", "Check the object, and run the job again. It makes a new plan.", false, false},
		"Permission": {rbac, rbac.Error(), "Grant the missing verb to the account that runs the job, and run the job again.", true, false},
		"Quota":      {quota, quota.Error(), refusedHint, true, false},
		"Invalid":    {apierrors.NewInvalid(kind, "a", nil), apierrors.NewInvalid(kind, "a", nil).Error(), refusedHint, true, false},
		"BadRequest": {apierrors.NewBadRequest("no"), "no", refusedHint, true, false},
		"Acceptable": {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotAcceptable, Message: "no"}}, "no", "", true, false},
		"Webhook": {
			apierrors.NewInternalError(errors.New(`failed calling webhook "policy.example.com": Post "https://policy.gate.svc:443/": dial tcp: connection refused`)),
			`Internal error occurred: failed calling webhook "policy.example.com": Post "https://policy.gate.svc:443/": dial tcp: connection refused`,
			"The admission webhook policy.example.com does not answer. Start the pods of its Service, and run the job again. To find the Service: " +
				"kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o 'custom-columns=NAME:.metadata.name,WEBHOOKS:.webhooks[*].name,SERVICES:.webhooks[*].clientConfig.service.name'", false, false,
		},
		"Busy":     {apierrors.NewServiceUnavailable("later"), "later", busyHint, false, false},
		"Load":     {apierrors.NewTooManyRequests("later", 60), "later", loadHint, false, false},
		"Named":    {k8sutil.Permanent(errors.New("Thing shop/a: is odd")), "is odd", "", false, false},
		"Signal":   {SignalError{Signal: 15}, SignalError{Signal: 15}.Error(), busyHint, false, true},
		"Locked":   {&lease.LockedError{Holder: "b"}, `another run holds the lock: "b"`, busyHint, false, true},
		"Stopped":  {ErrStopped, ErrStopped.Error(), busyHint, false, true},
		"Canceled": {context.Canceled, "context canceled", "", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ProblemOf(thing, tc.err); got != tc.problem {
				t.Errorf("problem %q", got)
			}
			if got := Advised(migration.Finding{}, tc.err).Advice().String(); got != tc.hint {
				t.Errorf("hint %q", got)
			}
			if got := IsRefusal(tc.err); got != tc.refused {
				t.Errorf("refused: %t", got)
			}
			if got := Ended(tc.err); got != tc.ended {
				t.Errorf("only says that the run ended: %t", got)
			}
		})
	}
	if got := FirstRefusal(errors.Join(errors.New("a"), quota, rbac)); !errors.Is(got, quota) {
		t.Errorf("the first refusal of several: %v", got)
	}
	if got := FirstRefusal(errors.Join(errors.New("a"), errors.New("b"))); got != nil {
		t.Errorf("none is a refusal: %v", got)
	}
}
