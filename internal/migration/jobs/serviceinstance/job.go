// Package serviceinstance gives ServiceInstances of Applications what they lack
// in the event mesh: in place where that is possible, else by provisioning them
// again, with all that depends on them.
package serviceinstance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var strategies = []string{auto, repair, recreate, always}

// Values of --strategy.
const (
	auto     = "auto"
	repair   = "repair"
	recreate = "recreate"
	always   = "always"
)

// Job is serviceinstance-recreate.
type Job struct {
	options options
}

// options are the settings that decide what is done.
type options struct {
	strategy string
	// integrationNamespace holds application-broker, and what belongs to
	// Applications.
	integrationNamespace                                           string
	readyTimeout, activationTimeout, deleteTimeout, restartTimeout time.Duration
}

var (
	_ migration.Job            = (*Job)(nil)
	_ migration.Configurable   = (*Job)(nil)
	_ migration.Protector      = (*Job)(nil)
	_ migration.ProtectReader  = (*Job)(nil)
	_ migration.ProtectAdviser = (*Job)(nil)
	_ migration.EditIgnorer    = (*Job)(nil)
	_ migration.Recreator      = (*Job)(nil)
	_ migration.Rechecker      = (*Job)(nil)
)

// New returns the job with its default settings.
func New() *Job {
	return &Job{
		options: options{
			strategy: auto, integrationNamespace: kyma.IntegrationNamespace,
			readyTimeout: 2 * time.Minute, activationTimeout: 2 * time.Minute, deleteTimeout: 2 * time.Minute, restartTimeout: 2 * time.Minute,
		},
	}
}

// Name implements migration.Job.
func (j *Job) Name() string { return "serviceinstance-recreate" }

// Doc implements migration.Job.
func (j *Job) Doc() (short, long string) {
	return "Give ServiceInstances of Applications what they lack in the event mesh", strings.TrimSpace(manual)
}

const manual = `
Since Kyma 1.9, application-broker creates three things for each ServiceInstance
of a service with events. They are an EventActivation, a Knative Subscription in
kyma-integration, and a label on the namespace. An instance that was provisioned
before lacks them, and its namespace gets no events through the mesh. For each
instance in a user namespace, this job does one of these:

  nothing   if nothing is missing.
  repair    if the instance is provisioned. The job creates what is missing, as
            application-broker would. application-broker finds it and uses it.
            The instance is not changed.
  recreate  if no repair can help. Either the provisioning has failed
            permanently, or the EventActivation belongs to another Application.
            The job deletes the bindings, their usages, and then the instance.
            It restarts application-broker if that would refuse the instance
            otherwise. Then it creates all of them again, each as it was, and
            waits for them. It works on one instance at a time.

--strategy=repair recreates nothing. --strategy=recreate repairs nothing.
--strategy=always recreates every instance, as the first migration to 1.11 did.
Each workload is then without its credentials for a while.

The plan names for each instance the change and its reason. It names the
bindings and the workloads that restart or lose their credentials for a while.
It also names the time. If that is longer than --timeout, the run is refused.

An instance that could not be created again is not deleted. Examples: its class
or plan is removed from the catalog, there is no ApplicationMapping, or a second
instance of the service exists. The plan names the reason. All of this is
decided again right before the first deletion of each recreation.

application-broker removes the label accessLabel of the namespace with an
instance. If the label was there, a recreation sets it again, unless another
program has set it by then.

The job never changes:
  - cluster-wide service classes, and classes of other brokers
  - system namespaces
  - objects with the label eventmesh-migration.kyma-project.io/skip=true
  - what exists already; a Knative Subscription that exists is used
  - in a rollback or undo, a Broker with live events, or with a Trigger

The journal has all that a recreation needs, before anything is deleted. If a
run was killed, the next one finishes it. A finished recreation stays, also if
something fails later. A rollback finishes an unfinished recreation; it does not
undo it. What cannot be finished stays in the journal, and the exit code is 3.

Exit code 0: done, nothing to do, or deferred. 1: failed and rolled back. 3:
failed and not fully restored. 4: refused before anything was changed.
"eventmesh-migrate explain" has the others.
`

// Settings implements migration.Configurable.
func (j *Job) Settings() []migration.Setting {
	return []migration.Setting{{
		Name:  "strategy",
		Usage: "what to do about an instance that lacks something. auto: repair it, or recreate it if no repair can help. repair: never recreate. recreate: each. always: also those that lack nothing",
		Value: &j.options.strategy,
		Words: strategies,
	}, {
		Name:  "activation-timeout",
		Usage: "how long an EventActivation may be without a ready Knative Subscription, and how long it may take to be deleted with its instance",
		Value: &j.options.activationTimeout,
	}, {
		Name:  "ready-timeout",
		Usage: "how long an instance, a binding, a usage or a Broker may take to become ready, each from its creation",
		Value: &j.options.readyTimeout,
	}, {
		Name:  "delete-timeout",
		Usage: "how long an instance, a binding or a usage may still exist after it was deleted",
		Value: &j.options.deleteTimeout,
	}, {
		Name:  "restart-timeout",
		Usage: "how long application-broker may take to restart",
		Value: &j.options.restartTimeout,
	}, {
		Name:  "integration-namespace",
		Usage: "namespace of application-broker and of the Applications' Channels",
		Value: &j.options.integrationNamespace,
	}}
}

// Validate implements migration.Configurable.
func (j *Job) Validate() error {
	var strategy error
	if !slices.Contains(strategies, j.options.strategy) {
		strategy = fmt.Errorf("--strategy must be one of %s, not %q", strings.Join(strategies, ", "), j.options.strategy)
	}
	return errors.Join(
		strategy,
		migration.PositiveSetting("activation-timeout", j.options.activationTimeout),
		migration.PositiveSetting("ready-timeout", j.options.readyTimeout),
		migration.PositiveSetting("delete-timeout", j.options.deleteTimeout),
		migration.PositiveSetting("restart-timeout", j.options.restartTimeout),
		migration.NamespaceSetting("integration-namespace", j.options.integrationNamespace),
	)
}

// LimitsNamespace implements migration.NamespaceLimiter.
func (j *Job) LimitsNamespace() {}

// Plan implements migration.Job.
func (j *Job) Plan(ctx context.Context, c *migration.Cluster, o migration.PlanOptions) (*migration.Plan, error) {
	return j.plan(ctx, c, c.LeavesOut, o.Preview)
}

func (j *Job) plan(ctx context.Context, c reader, leavesOut func(string) bool, dryRun bool) (*migration.Plan, error) {
	s, err := observe(ctx, c, j.options, leavesOut)
	if err != nil {
		return nil, err
	}
	d := newDecision(s, j.options, dryRun)
	d.assess()
	if len(d.recreations) > 0 {
		instances := make([]*unstructured.Unstructured, len(d.recreations))
		for i, c := range d.recreations {
			instances[i] = c.obj
		}
		if err := s.observeRecreation(ctx, c, j.options, instances); err != nil {
			return nil, err
		}
	}
	return d.finish(), nil
}

func (j *Job) checks() checks { return checks{j.options} }

// Await implements migration.Job.
func (j *Job) Await(ch *migration.Change) []migration.Condition {
	return installable(j.await(ch))
}

// installable makes conditions say which component installs what they look at.
func installable(conditions []migration.Condition) []migration.Condition {
	for i := range conditions {
		conditions[i].Unserved = kyma.Install
	}
	return conditions
}

func (j *Job) await(ch *migration.Change) []migration.Condition {
	c, o := j.checks(), j.options
	e := expectationOf(ch)
	switch {
	case ch.Verb == migration.Delete && ch.Ref.Kind == kyma.ServiceInstance.Kind:
		return []migration.Condition{c.deletable(ch.Ref)}
	case ch.Verb == migration.Await && ch.Ref.Kind == kyma.ServiceInstance.Kind && e.Kind == expectQuiet:
		return []migration.Condition{c.quiet(ch.Ref, e)}
	case ch.Verb == migration.Await && ch.Ref.Kind == kyma.ServiceInstance.Kind:
		return []migration.Condition{c.provisioned(ch.Ref), c.activated(ch.Ref.Namespace, e)}
	case ch.Verb == migration.Await && ch.Ref.Kind == kyma.EventActivation.Kind:
		return []migration.Condition{c.gone(ch.Ref, e)}
	case ch.Verb == migration.Await && (ch.Ref.Kind == kyma.ServiceBinding.Kind || ch.Ref.Kind == kyma.ServiceBindingUsage.Kind):
		return []migration.Condition{c.dependentReady(ch.Ref)}
	case ch.Verb == migration.Create && ch.Ref.Kind == kyma.ChannelSubscription.Kind:
		describe := migration.Kind{GroupKind: kyma.ChannelSubscription}.Describe(ch.Ref.Namespace, ch.Ref.Name)
		return []migration.Condition{c.ready(ch.Ref.Subject(), o.activationTimeout, describe), c.single(ch.Object)}
	case (ch.Verb == migration.Create || ch.Verb == migration.Await) && ch.Ref.Kind == knative.Broker.Kind:
		return []migration.Condition{c.brokerReady(ch.Ref.Subject())}
	case ch.Verb == migration.Patch && ch.Ref.Kind == namespaces.Kind && len(ch.SideEffects) > 0:
		return []migration.Condition{c.brokerReady(migration.SubjectOf(knative.Broker, ch.Ref.Name, kyma.DefaultBroker))}
	}
	return nil
}

func (c checks) brokerReady(ref migration.Subject) migration.Condition {
	return c.ready(ref, c.options.readyTimeout, migration.Kubectl(kyma.EventingNamespace, "logs", "deployment/eventing-controller"))
}

func (c checks) dependentReady(ref migration.Ref) migration.Condition {
	return c.ready(ref.Subject(), c.options.readyTimeout, migration.Kubectl(ref.Namespace, "describe", strings.ToLower(ref.Kind), ref.Name))
}

// AwaitRestored implements migration.Restorer: what worked before works again.
func (j *Job) AwaitRestored(ch *migration.Change) []migration.Condition {
	return installable(j.awaitRestored(ch))
}

func (j *Job) awaitRestored(ch *migration.Change) []migration.Condition {
	c := j.checks()
	if ch.Object == nil {
		return nil
	}
	switch ch.Ref.Kind {
	case kyma.ServiceInstance.Kind:
		if kyma.InstanceOf(ch.Object).Provisioned {
			return []migration.Condition{c.provisioned(ch.Ref)}
		}
	case kyma.ServiceBinding.Kind, kyma.ServiceBindingUsage.Kind:
		if k8sobject.ConditionOf(ch.Object, "Ready").True() {
			return []migration.Condition{c.dependentReady(ch.Ref)}
		}
	}
	return nil
}

// Assess implements migration.Recreator.
func (j *Job) Assess(ctx context.Context, c *migration.Cluster, live *unstructured.Unstructured) (migration.Assessment, error) {
	return j.checks().judge(ctx, c, live)
}

// Stuck implements migration.Recreator.
func (j *Job) Stuck(ch *migration.Change) *migration.Condition {
	if ch.Ref.Kind != kyma.ServiceInstance.Kind {
		return nil
	}
	stuck := j.checks().stuck(ch.Ref)
	return &stuck
}

// Protect implements migration.Protector.
func (j *Job) Protect(ctx context.Context, c *migration.Cluster, refs []migration.Ref) (map[migration.Ref]string, error) {
	k, err := servedKinds(ctx, c)
	if err != nil {
		return nil, err
	}
	return keep(ctx, c, k, j.options, refs)
}

// ProtectAdvice implements migration.ProtectAdviser.
func (j *Job) ProtectAdvice(reason string) migration.Advice {
	return migration.Advice(eventpath.WayOut(reason))
}

// ProtectReads implements migration.ProtectReader.
func (j *Job) ProtectReads() []migration.Subject {
	return append(migration.Workloads(j.options.integrationNamespace), j.checks().links(), migration.Subject{GroupKind: knative.Trigger})
}

// IgnoredKeys implements migration.EditIgnorer: what webhooks own.
func (j *Job) IgnoredKeys() []string {
	return append(kyma.WebhookKeys(), kyma.ServiceClassRefLabel, kyma.ServicePlanRefLabel)
}
