// Package trigger turns every Kyma Subscription into a Trigger of the event mesh,
// and deletes it once the mesh has taken over.
package trigger

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/eventbus"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/route"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Values of --legacy-traffic.
const (
	respect = "respect"
	ignore  = "ignore"
)

// Job is trigger-sync.
type Job struct {
	readyTimeout, activationTimeout time.Duration
	natsURL                         string
	options                         options

	// looks are all that is left between Plan and Recheck. They are what this process has
	// observed, and no decision: in another process nobody has looked in between, so that
	// it must begin again. A change that is journaled must not hold them.
	looks eventbus.Looks
}

// options are the settings that decide what is done.
type options struct {
	// integrationNamespace holds what belongs to Applications.
	integrationNamespace        string
	deleteTimeout, drainTimeout time.Duration
	legacyTraffic               string
	// observePublishers is how long a channel of a source that has switched is
	// watched for events that somebody still publishes.
	observePublishers time.Duration
	// requireTriggers refuses a run that leaves a Subscription without its Trigger.
	requireTriggers bool
}

var (
	_ migration.Job            = (*Job)(nil)
	_ migration.Configurable   = (*Job)(nil)
	_ migration.Protector      = (*Job)(nil)
	_ migration.EditIgnorer    = (*Job)(nil)
	_ migration.UndoGuard      = (*Job)(nil)
	_ migration.ProtectReader  = (*Job)(nil)
	_ migration.ProtectAdviser = (*Job)(nil)
	_ migration.Rechecker      = (*Job)(nil)
)

// New returns the job with its default settings.
func New() *Job {
	return &Job{
		readyTimeout: 2 * time.Minute, activationTimeout: 2 * time.Minute,
		options: options{
			integrationNamespace: kyma.IntegrationNamespace,
			deleteTimeout:        5 * time.Minute, drainTimeout: 2 * time.Minute,
			legacyTraffic: respect, observePublishers: 30 * time.Second,
		},
	}
}

// Name implements migration.Job.
func (j *Job) Name() string { return "trigger-sync" }

// Doc implements migration.Job.
func (j *Job) Doc() (short, long string) {
	return "Turn every Kyma Subscription into a Trigger, and delete it once that is safe", strings.TrimSpace(manual)
}

const manual = `
In the event mesh, a Trigger sends events to a subscriber. In the Event Bus, a
Kyma Subscription does. This job works in two steps. What the cluster holds
decides each.

Expand: each Subscription gets a Trigger in its namespace, on the Broker
  "default". The Trigger has the same events and the same endpoint. A Trigger
  that does the same already is used. A namespace without a Broker gets one. The
  job waits until Brokers and Triggers are ready. It also waits until each
  EventActivation has its Knative Subscription. No event takes both paths, so
  this step is safe at any time. System namespaces are left out.

Contract: a Subscription is deleted only when all of this is true.
  - The mesh takes the events of its source: HTTPSource, Channel and adapter are
    ready.
  - Exactly one Knative Subscription sends them to the Broker of the namespace.
  - The Broker and the Trigger are ready.
  - Every pod of the source's event-service posts to the adapter of that source.
  - NATS Streaming holds no event for the Subscription.
  Any other Subscription is left for a later run. The report names the first
  thing that is missing.

The job reads the monitoring port of NATS Streaming through the API server. If
it cannot read it, it deletes nothing. A run waits at most --drain-timeout for
events that are not delivered yet. The report names an endpoint that does not
answer, with the number of its events.

The job checks all of that again right before each deletion. If something is no
longer true, the Subscription stays. The job also watches for events that still
come to the Event Bus, for --observe-publishers after the source has switched.
If one comes, the Subscription stays: a program still posts to
event-publish-service under the name of the Application. A program that posts
less often is not noticed.

The subscription-controller of the Event Bus cleans up after a deleted
Subscription.
  - If it runs, the job waits for it. It runs if a pod is ready and no container
    has restarted within 5 minutes. Subscriptions of the same kind of event are
    then deleted one after the other. The controller deletes their Channel only
    with the last of them.
  - If it is scaled to 0 or gone, the job does its work. The job deletes the
    Knative Subscription, and the Channel if it has no other subscriber. It
    removes the finalizers of the controller. Other finalizers stay.
  - If it crashes or is too slow, the job scales it to 0 and does its work. The
    controller deletes 1.5 Subscriptions in a second. The job restores the
    replicas at the end. The label eventmesh-migration.kyma-project.io/skip=true
    on the Deployment prevents this. A run that is then out of time leaves what
    is finished. The next run goes on.

Some Subscriptions have no equivalent in the mesh. They are reported, and stop
no other:
  - the endpoint is not absolute
  - the source is no Application
  - a value fits into no filter
  - the namespace is being deleted

The job never changes:
  - Triggers, Brokers and Subscriptions that belong to others
  - system namespaces
  - objects and namespaces with the label
    eventmesh-migration.kyma-project.io/skip=true
  - in a rollback or undo, a Trigger or Broker that carries live events,
    or a Broker with a Trigger of somebody else

The job is safe to run again, also after it was killed. What exists is left as
it is. But a Trigger that the job made, and that nobody edited, follows its
Subscription if that is edited. A run with nothing to do writes nothing. The Trigger's name follows from
the Subscription. For those of the Console, it is the name by which the Console
deletes it.

Exit code 0: done, nothing to do, or deferred. 1: failed and rolled back. 4:
refused before anything was changed. "eventmesh-migrate explain" has the others.
`

// Settings implements migration.Configurable.
func (j *Job) Settings() []migration.Setting {
	return []migration.Setting{{
		Name:  "ready-timeout",
		Usage: "how long a Broker or Trigger may take to become ready, each from its creation (an existing one: from the start of the wait)",
		Value: &j.readyTimeout,
	}, {
		Name:  "activation-timeout",
		Usage: "how long an EventActivation may be without its Knative Subscription",
		Value: &j.activationTimeout,
	}, {
		Name:  "delete-timeout",
		Usage: "how long a Subscription may still exist after it was deleted",
		Value: &j.options.deleteTimeout,
	}, {
		Name:  "drain-timeout",
		Usage: "how long to wait for events that are on the way through NATS Streaming. What is not delivered by then is reported, and its Subscription stays",
		Value: &j.options.drainTimeout,
	}, {
		Name:  "nats-monitoring-url",
		Usage: "URL of NATS Streaming's monitoring port; default: port 8222 of its pods in namespace natss, through the API server",
		Value: &j.natsURL,
	}, {
		Name:  "legacy-traffic",
		Usage: "what becomes of events on the old path. respect: a Subscription stays while there may be any. ignore: it is deleted, and they are dropped; the report says how many",
		Value: &j.options.legacyTraffic,
		Words: []string{respect, ignore},
	}, {
		Name: "observe-publishers",
		Usage: "after the source of a Subscription has switched, how long no event may come to the Event Bus for it before it is deleted. " +
			"Somebody else may publish there under the same name. 0: no check",
		Value: &j.options.observePublishers,
	}, {
		Name:  "require-triggers",
		Usage: "refuse to run if a Subscription cannot get its Trigger, which is deferred otherwise: for the last run before the switch",
		Value: &j.options.requireTriggers,
	}, {
		Name:  "integration-namespace",
		Usage: "namespace of the Applications' HTTPSources, Channels and event-services",
		Value: &j.options.integrationNamespace,
	}}
}

// Validate implements migration.Configurable.
func (j *Job) Validate() error {
	errs := []error{
		migration.PositiveSetting("ready-timeout", j.readyTimeout),
		migration.PositiveSetting("activation-timeout", j.activationTimeout),
		migration.PositiveSetting("delete-timeout", j.options.deleteTimeout),
		migration.NamespaceSetting("integration-namespace", j.options.integrationNamespace),
	}
	if d := j.options.drainTimeout; d < 0 {
		errs = append(errs, fmt.Errorf("--drain-timeout must not be negative: %s", d))
	}
	if d := j.options.observePublishers; d < 0 {
		errs = append(errs, fmt.Errorf("--observe-publishers must not be negative: %s", d))
	}
	if v := j.options.legacyTraffic; v != respect && v != ignore {
		errs = append(errs, fmt.Errorf("--legacy-traffic must be %s or %s, not %q", respect, ignore, v))
	}
	if j.natsURL != "" {
		if u, err := url.Parse(j.natsURL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			errs = append(errs, fmt.Errorf("--nats-monitoring-url %q is not an absolute HTTP URL", j.natsURL))
		}
	}
	return errors.Join(errs...)
}

// LimitsNamespace implements migration.NamespaceLimiter.
func (j *Job) LimitsNamespace() {}

// Plan implements migration.Job.
func (j *Job) Plan(ctx context.Context, c *migration.Cluster, o migration.PlanOptions) (*migration.Plan, error) {
	return j.plan(ctx, c, c.LeavesOut, c.Budget, c.Made, o.Preview)
}

func (j *Job) plan(ctx context.Context, c reader, leavesOut func(string) bool, budget time.Duration, made func(*unstructured.Unstructured) bool, preview bool) (*migration.Plan, error) {
	began := time.Now()
	s, err := observe(ctx, c, j.options, leavesOut, made)
	if err != nil {
		return nil, err
	}
	j.looks.Clear()
	d := newDecision(s, j.options)
	d.preview = preview
	d.expand()
	var candidates []*group
	if len(d.groups) > 0 {
		if err := s.observeMesh(ctx, c, j.options); err != nil {
			return nil, err
		}
		candidates = d.candidates()
	}
	if len(candidates) == 0 {
		if some, err := eventbus.HasChannels(ctx, c, s.kinds.channel); err != nil || !some {
			return d.contract(nil), err
		}
	}
	if s.bus, err = eventbus.Observe(ctx, c, s.kinds.link, s.kinds.channel); err != nil {
		return nil, err
	}
	d.orphans = s.bus.Unused(s.wants.Channel)
	if err := j.drain(ctx, c, s.bus, candidates, j.patience(preview)); err != nil {
		return nil, err
	}
	if budget > 0 {
		d.left = max(budget-time.Since(began), time.Second)
	}
	return d.contract(candidates), nil
}

// NATSUnreadable says why the job cannot read what NATS Streaming holds, "" if it can.
func (j *Job) NATSUnreadable(ctx context.Context, c *migration.Cluster) string {
	held := eventbus.ReadInFlight(ctx, j.monitor(c))
	return held.Unreadable
}

func (j *Job) monitor(c reader) eventbus.Monitor {
	if j.natsURL != "" {
		return eventbus.MonitorAt(j.natsURL)
	}
	return eventbus.MonitorInCluster(c)
}

// drainInterval is how often NATS Streaming is asked, which cannot be watched.
const drainInterval = 2 * time.Second

// patience is how long what is in flight may take to arrive.
func (j *Job) patience(preview bool) time.Duration {
	if preview || j.options.legacyTraffic == ignore {
		return 0
	}
	return j.options.drainTimeout
}

// drain reads what is in flight, and gives what is time to arrive.
func (j *Job) drain(ctx context.Context, c reader, b *eventbus.Bus, candidates []*group, patience time.Duration) error {
	get := j.monitor(c)
	deadline := time.Now().Add(patience)
	for {
		asked, waiting := false, false
		for _, g := range candidates {
			for _, sub := range g.subscriptions {
				if b.LegacyLink(sub) == nil {
					continue
				}
				if !asked {
					asked = true
					b.InFlight = eventbus.ReadInFlight(ctx, get)
				}
				j.looks.First(b.ChannelOf(sub), b.InFlight)
				n, why := b.Waiting(sub)
				waiting = waiting || n > 0 || why != "" && b.InFlight.Unreadable != "" && !b.InFlight.Denied
			}
		}
		left := time.Until(deadline)
		if !waiting || left <= 0 {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(min(left, drainInterval)):
		}
	}
}

// Await implements migration.Job.
func (j *Job) Await(ch *migration.Change) []migration.Condition {
	if ch.Verb == migration.Delete && ch.Guard && ch.Ref.GVK().GroupKind() == kyma.Subscription {
		return []migration.Condition{eventbus.CleanedUp(ch, route.Unparsable)}
	}
	if ch.Verb != migration.Create && ch.Verb != migration.Await && ch.Verb != migration.Patch {
		return nil
	}
	var c migration.Condition
	switch {
	case ch.Ref.Kind == namespaces.Kind:
		c = ready(ch, migration.SubjectOf(knative.Broker, ch.Ref.Name, kyma.DefaultBroker))
		c.Timeout = j.readyTimeout
	case ch.Ref == eventbus.ControllerRef:
		if ch.Verb == migration.Patch && !eventbus.Stops(ch) {
			return nil
		}
		c = eventbus.AtZero(ch)
		c.Timeout = j.options.deleteTimeout
	case ch.Verb == migration.Patch && ch.Ref.Kind == knative.Trigger.Kind:
		c = corrected(ch)
		c.Timeout = j.readyTimeout
	case ch.Verb == migration.Patch:
		return nil
	case ch.Ref.Kind == knative.Broker.Kind, ch.Ref.Kind == knative.Trigger.Kind:
		c = ready(ch, ch.Ref.Subject())
		c.Timeout = j.readyTimeout
	case ch.Ref.Kind == kyma.EventActivation.Kind:
		c = activated(ch, j.options.integrationNamespace)
		c.Timeout = j.activationTimeout
	case ch.Ref.Kind == kyma.Channel.Kind && ch.Verb == migration.Await:
		c = eventbus.Unsubscribed(ch)
		c.Timeout = j.options.deleteTimeout
	default:
		return nil
	}
	c.Unserved = kyma.Install
	return []migration.Condition{c}
}

// Protect implements migration.Protector.
func (j *Job) Protect(ctx context.Context, c *migration.Cluster, refs []migration.Ref) (map[migration.Ref]string, error) {
	k, err := servedKinds(ctx, c)
	if err != nil {
		return nil, err
	}
	return keep(ctx, c, k, j.options.integrationNamespace, refs)
}

// ProtectAdvice implements migration.ProtectAdviser.
func (j *Job) ProtectAdvice(reason string) migration.Advice {
	return migration.Advice(eventpath.WayOut(reason))
}

// ProtectReads implements migration.ProtectReader.
func (j *Job) ProtectReads() []migration.Subject {
	return append(migration.Workloads(j.options.integrationNamespace), migration.Subject{GroupKind: knative.Trigger})
}

// RefuseUndo implements migration.UndoGuard.
func (j *Job) RefuseUndo(ctx context.Context, c *migration.Cluster, changes []migration.Change) ([]migration.Finding, error) {
	return eventbus.RefuseUndo(ctx, c, changes)
}

// IgnoredKeys implements migration.EditIgnorer: what Knative's webhooks and controllers
// own.
func (j *Job) IgnoredKeys() []string {
	return append(kyma.WebhookKeys(), migration.IgnoredSpecs(kyma.SubscriberFields()...)...)
}
