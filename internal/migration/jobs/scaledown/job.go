// Package scaledown scales the Event Bus to zero once nothing uses it.
package scaledown

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
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
After the switch to the event mesh, nothing sends events to the Event Bus. This
job scales its two Deployments to 0: first the publisher, then the
subscription-controller. It waits until no pod of either exists, terminating
pods included. A Deployment that does not exist counts as 0.

Then it removes the finalizer of the subscription-controller from
EventActivations. The controller is at 0 and cannot remove it. Without this, an
EventActivation and its namespace could not be deleted. Other finalizers stay.

The job does so only if nothing uses the Event Bus:
  - Every event-service posts to the mesh. Its Deployment is rolled out and
    available, with the --eventMeshURL of its own adapter. No former pod is
    left, whatever its labels say.
  - There is no Kyma Subscription.
Otherwise nothing is changed, and the report names what is missing, as deferred.
An object with the label eventmesh-migration.kyma-project.io/skip=true keeps the
Event Bus running, too. It is no failure with --defer=fail.

The job checks again right before each Deployment is scaled, and before each
finalizer is removed. If the Event Bus is needed or runs again by then, the rest
stays as it is and is reported as deferred.

The journal has the former number of replicas, for rollback and undo. The label
eventmesh-migration.kyma-project.io/replicas of the Deployment has it, too,
written in the same request. A number of 0 is never stored. If a pod does not
end within --pods-timeout, everything is rolled back.

The job is safe to run again, also after it was killed. What is at 0 stays at 0,
and only reads are needed. If something scales a Deployment up again, the next
run says so and scales it down. An upgrade of the event-bus chart does that.

The job is refused (exit code 4) while the Job mesh-namespaces-migration of
Kyma's own event-bus chart runs.

Exit code 0: done, nothing to do, or deferred. 1: failed and rolled back. 4:
refused before anything was changed. "eventmesh-migrate explain" has the others.
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
