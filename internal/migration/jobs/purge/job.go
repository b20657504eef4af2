// Package purge removes what the Event Bus leaves behind once its Helm release is
// gone.
package purge

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Job is eventbus-purge.
type Job struct {
	deleteTimeout time.Duration
	yes           bool
	failIfInUse   bool
	ignoreRelease bool
	options       options
}

// options are the settings that decide what is done.
type options struct {
	// namespace holds the Event Bus, its Channels and Knative Subscriptions.
	namespace string
	// publisher and controller are its Deployments.
	publisher, controller string
	// release is its Helm release.
	release string
	// tillerNamespace holds the records of Helm 2.
	tillerNamespace string
}

var (
	_ migration.Job          = (*Job)(nil)
	_ migration.Configurable = (*Job)(nil)
	_ migration.Defaulter    = (*Job)(nil)
	_ migration.Rechecker    = (*Job)(nil)
	_ migration.EditIgnorer  = (*Job)(nil)
)

// New returns the job with its default settings.
func New() *Job {
	return &Job{
		deleteTimeout: 2 * time.Minute,
		options: options{
			namespace:       kyma.SystemNamespace,
			publisher:       kyma.EventPublishService,
			controller:      kyma.SubscriptionController,
			release:         kyma.EventBusRelease,
			tillerNamespace: kyma.TillerNamespace,
		},
	}
}

// Name implements migration.Job.
func (j *Job) Name() string { return "eventbus-purge" }

// DefaultCommand implements migration.Defaulter: it deletes only if asked to.
func (j *Job) DefaultCommand() string { return "plan" }

// Asked says whether the job may delete.
func (j *Job) Asked() bool { return j.yes }

// Doc implements migration.Job.
func (j *Job) Doc() (short, long string) {
	return "Remove what the Event Bus leaves behind", strings.TrimSpace(manual)
}

const manual = `
Kyma 1.12 removes the Helm release event-bus. Its controller is deleted, and
what the controller created stays: Channels and Knative Subscriptions in
kyma-system, and finalizers on EventActivations and Kyma Subscriptions. No
program removes these finalizers, so the objects and their namespaces cannot be
deleted. This job
  - removes the Channels and Knative Subscriptions with the label kyma-source-id
  - removes these two finalizers, and no others
  - removes the CustomResourceDefinition subscriptions.eventing.kyma-project.io
    at last
It also names Channels that have no subscriber and that the controller left.

Right before each removal the job checks again whether the Event Bus is used. If
it is, the rest stays as it is and is reported as deferred.

The job is refused (exit code 4) while the Event Bus is used. It is used if
there are Kyma Subscriptions, pods of the Event Bus, or Triggers that are not
ready. The job is also refused while the release exists, and prints the command
that removes it. It never uninstalls.

It leaves the CustomResourceDefinition as it is if a newer version of Kyma uses
it. Then it serves another version than v1alpha1, or has Subscriptions of
another form. EventActivations stay. Kyma 1.12 uses them.

A CustomResourceDefinition that was created at apiextensions v1beta1 is restored
at that version. Kubernetes 1.22 and later serve v1 only. There, it is restored
in the form that v1 accepts. If v1 would refuse it, the plan says that it is
deleted permanently.

Without a command, the job plans. It deletes only with: run --yes. With
"plan --fail-if-in-use" the exit code says whether a run would be refused.

The job is safe to run again, also after it was killed. A run that fails
restores the objects that it deleted, with new UIDs. It does not restore objects
that were being deleted already and waited for a finalizer.

Exit code 0: done, or nothing to do. 1: failed and rolled back. 4: in use, or
--yes is missing. "eventmesh-migrate explain" has the others.
`

// Settings implements migration.Configurable.
func (j *Job) Settings() []migration.Setting {
	return []migration.Setting{{
		Name:  "yes",
		Usage: "delete; without it, run refuses",
		Value: &j.yes,
	}, {
		Name:  "fail-if-in-use",
		Usage: "let plan end with exit code 4, too, if anything is still in use",
		Value: &j.failIfInUse,
	}, {
		Name:  "ignore-release",
		Usage: "let plan not look for the Helm release of the Event Bus: before an upgrade of Kyma that removes it",
		Value: &j.ignoreRelease,
	}, {
		Name:  "delete-timeout",
		Usage: "how long an object may take to be gone, from its deletion on",
		Value: &j.deleteTimeout,
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
		Name:  "release",
		Usage: "Helm release of the Event Bus",
		Value: &j.options.release,
	}, {
		Name:  "tiller-namespace",
		Usage: "namespace of the ConfigMaps in which Tiller (Helm 2) stores releases; empty if the cluster has no Tiller",
		Value: &j.options.tillerNamespace,
	}}
}

// Validate implements migration.Configurable.
func (j *Job) Validate() error {
	return errors.Join(
		migration.PositiveSetting("delete-timeout", j.deleteTimeout),
		migration.NamespaceSetting("event-bus-namespace", j.options.namespace),
		migration.OptionalNamespaceSetting("tiller-namespace", j.options.tillerNamespace),
		migration.NameSetting("publisher", j.options.publisher, "Deployment"),
		migration.NameSetting("subscription-controller", j.options.controller, "Deployment"),
		migration.NameSetting("release", j.options.release, "release"),
	)
}

// Plan implements migration.Job.
func (j *Job) Plan(ctx context.Context, c *migration.Cluster, o migration.PlanOptions) (*migration.Plan, error) {
	s, err := observe(ctx, c, j.options, c.ExcludeNamespaces, j.mindsRelease(o.Preview))
	if err != nil {
		return nil, err
	}
	return decide(s, j.options, mode{dryRun: o.Preview, failIfInUse: j.failIfInUse, yes: j.yes, deleteTimeout: j.deleteTimeout}), nil
}

// mindsRelease says whether the Helm release of the Event Bus counts as its use: a run
// reads it in any case.
func (j *Job) mindsRelease(dryRun bool) bool { return !dryRun || !j.ignoreRelease }

// Await implements migration.Job. What is deleted, the engine waits for; a
// finalizer is off at once.
func (j *Job) Await(*migration.Change) []migration.Condition { return nil }

// IgnoredKeys implements migration.EditIgnorer: the subscribers of a Channel are removed
// by Knative when the job deletes their Knative Subscriptions.
func (j *Job) IgnoredKeys() []string {
	return append(kyma.WebhookKeys(), migration.IgnoredSpecs(kyma.SubscriberFields()...)...)
}
