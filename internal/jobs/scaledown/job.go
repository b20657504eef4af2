// Package scaledown scales the Event Bus to zero once nothing uses it.
package scaledown

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Job is eventbus-scaledown.
type Job struct {
	podsTimeout time.Duration
	options     options
}

// options are the settings that decide what is done.
type options struct {
	// namespace holds the Event Bus.
	namespace string
	// publisher and controller are its Deployments.
	publisher, controller string
	// integrationNamespace holds the event-services.
	integrationNamespace string
}

var (
	_ migration.Job          = (*Job)(nil)
	_ migration.Configurable = (*Job)(nil)
	_ migration.Rechecker    = (*Job)(nil)
)

// New returns the job with its default settings.
func New() *Job {
	return &Job{
		podsTimeout: 2 * time.Minute,
		options: options{
			namespace:            kyma.SystemNamespace,
			publisher:            kyma.EventPublishService,
			controller:           kyma.SubscriptionController,
			integrationNamespace: kyma.IntegrationNamespace,
		},
	}
}

// Name implements migration.Job.
func (j *Job) Name() string { return "eventbus-scaledown" }

// Doc implements migration.Job.
func (j *Job) Doc() (short, long string) {
	return "Scale the Event Bus to zero once nothing uses it", strings.TrimSpace(manual)
}

const manual = `
After the switch to the event mesh nothing sends events to the Event Bus any more.
This job scales its two Deployments to 0: the publisher first, then the
subscription-controller, and waits until no pod of either exists, terminating ones
included. A Deployment that does not exist counts as 0.

Then it takes the finalizer of the subscription-controller off the
EventActivations: with that controller at 0, nobody else would, and each deletion
of an EventActivation, and of its namespace, would hang. Other finalizers stay.

It does so only when nothing uses the Event Bus: every event-service posts to the
mesh (its Deployment is rolled out and available with the --eventMeshURL of its own
adapter, and no former pod is left, whatever its labels say) and there is no Kyma
Subscription. Otherwise nothing is changed, and what is
missing is reported as deferred. What carries the label
eventmesh-migration.kyma-project.io/skip=true keeps the Event Bus up, too, but is
no failure with --defer=fail. It looks once more right before each Deployment is
scaled, and before each finalizer is removed: if the Event Bus is needed or runs
again by then, the rest is left as it is and reported as deferred.

The former number of replicas is kept in the journal, for rollback and undo, and
in the label eventmesh-migration.kyma-project.io/replicas of the Deployment,
written in the same request; a number of 0 is never kept. If a pod does not end
within --pods-timeout, everything is rolled back.

It is safe to run again, also after it was killed: what is at 0 stays at 0, and
costs reads only. If something scales a Deployment up again (an upgrade of the
event-bus chart does), the next run says so and scales it down again.

It refuses (exit code 4) while the Job mesh-namespaces-migration of Kyma's own
event-bus chart runs.

Exit codes: 0 done, nothing to do or deferred, 1 failed and rolled back, 4 refused
before anything was changed;
"eventmesh-migrate explain" has the others.
`

// Settings implements migration.Configurable.
func (j *Job) Settings() []migration.Setting {
	return []migration.Setting{{
		Name:  "pods-timeout",
		Usage: "how long the pods of a Deployment may take to end, from its scaling on",
		Value: &j.podsTimeout,
	}, {
		Name:  "event-bus-namespace",
		Usage: "namespace of the Event Bus",
		Value: &j.options.namespace,
	}, {
		Name:  "publisher",
		Usage: "Deployment that takes events for the Event Bus",
		Value: &j.options.publisher,
	}, {
		Name:  "subscription-controller",
		Usage: "Deployment that serves the Kyma Subscriptions",
		Value: &j.options.controller,
	}, {
		Name:  "integration-namespace",
		Usage: "namespace of the Applications' event-services",
		Value: &j.options.integrationNamespace,
	}}
}

// Validate implements migration.Configurable.
func (j *Job) Validate() error {
	var same error
	if j.options.publisher == j.options.controller {
		same = fmt.Errorf("--publisher and --subscription-controller are both %q", j.options.publisher)
	}
	return errors.Join(
		migration.PositiveSetting("pods-timeout", j.podsTimeout),
		migration.NamespaceSetting("event-bus-namespace", j.options.namespace),
		migration.NamespaceSetting("integration-namespace", j.options.integrationNamespace),
		migration.NameSetting("publisher", j.options.publisher, "Deployment"),
		migration.NameSetting("subscription-controller", j.options.controller, "Deployment"),
		same,
	)
}

// Plan implements migration.Job.
func (j *Job) Plan(ctx context.Context, c *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	s, err := observe(ctx, c, j.options, c.ExcludeNamespaces)
	if err != nil {
		return nil, err
	}
	return decide(s, j.options), nil
}

// Await implements migration.Job.
func (j *Job) Await(ch *migration.Change) []migration.Condition {
	if ch.Ref.Resource != deployments || ch.Verb != migration.Patch && ch.Verb != migration.Await {
		return nil
	}
	c := noPods(ch)
	c.Timeout = j.podsTimeout
	return []migration.Condition{c}
}
