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

	"github.com/kyma-project/eventmesh-migration/internal/jobs/trigger/eventbus"
	"github.com/kyma-project/eventmesh-migration/internal/kyma"
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
	looks looks
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
	_ migration.Job           = (*Job)(nil)
	_ migration.Configurable  = (*Job)(nil)
	_ migration.Protector     = (*Job)(nil)
	_ migration.EditIgnorer   = (*Job)(nil)
	_ migration.UndoGuard     = (*Job)(nil)
	_ migration.ProtectReader = (*Job)(nil)
	_ migration.Rechecker     = (*Job)(nil)
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
In the event mesh, a Trigger brings events to their subscriber, and not a Kyma
Subscription. This job works in two steps, each decided by what is in the cluster:

  Expand: each Subscription outside of system namespaces gets a Trigger in its
  namespace, on the Broker "default", for the same events and the same endpoint.
  A Trigger that does the same already is used. Where a namespace has no Broker,
  it gets one. The job waits until Brokers and Triggers are ready, and until every
  EventActivation has its Knative Subscription. Old and new path carry no event
  both, so that this is safe at any time.

  Contract: a Subscription is deleted when, and only when, the mesh takes the
  events of its source (HTTPSource, Channel and adapter are ready), exactly one
  Knative Subscription brings them to the Broker of the namespace, Broker and
  Trigger are ready, the event-service of the source, down to its last pod, posts to
  the adapter of that source, and NATS Streaming holds no event for it any more. Any other is left for a later run, with the first thing
  that is missing.

What NATS Streaming holds is read from its monitoring port, through the API
server. If it cannot be read, nothing is deleted. A run waits up to
--drain-timeout for events on the way; an endpoint that does not answer never
drains, and is reported with the number of its events.

All of that is checked a second time right before each deletion: what does not
hold any more keeps the Subscription. A third thing is only known then: for
--observe-publishers after the source has switched, no event may have come to the
Event Bus for the Subscription. Somebody may still post to event-publish-service
under the name of the Application; who posts less often is not noticed.

If the subscription-controller of the Event Bus runs (a pod of it is ready, and no
container of it has restarted within 5 minutes), it cleans up after a deleted
Subscription, and the job waits for that. Subscriptions of the same kind of event are
deleted one after the other: the controller deletes their Channel only with the last
of them, and leaves it if two go at once. If it is scaled to 0 or gone, the job
does what it would have done: it deletes the Knative Subscription, the Channel if
nobody else subscribes to it, and removes the controller's finalizers. Any other
finalizer is left to its owner. If the controller crashes, or is too slow for the
number of Subscriptions and --timeout (it deletes 1.5 in a second), the job scales
it to 0, does its part, and restores its replicas at the end. With the label
eventmesh-migration.kyma-project.io/skip=true on its Deployment it stays as it is;
then a run that is out of time keeps what is finished, and the next one goes on.

A Subscription that has no equivalent in the mesh is reported, and keeps none of
the others: without an absolute endpoint, of a source that is no Application, with
values that no filter can carry, in a namespace that is being deleted.

It never changes:
  - a Trigger, Broker or Subscription of somebody else, system namespaces, and
    what carries the label eventmesh-migration.kyma-project.io/skip=true, or is in
    a namespace that does.
  - in a rollback or undo: a Trigger or Broker that live events go through.

It is safe to run again, also after it was killed: what is there is left alone, and
a run with nothing to do reads and writes nothing. Names follow from the
Subscription: those of the Console are the ones by which it deletes a Trigger.

Exit codes: 0 done, nothing to do, or deferred; 1 failed and rolled back; 4 refused
before anything was changed;
"eventmesh-migrate explain" has the others.
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
	j.looks.clear()
	d := newDecision(s, j.options)
	d.preview = preview
	d.expand()
	if len(d.groups) == 0 {
		return d.contract(nil), nil
	}
	if err := s.observeMesh(ctx, c, j.options); err != nil {
		return nil, err
	}
	candidates := d.candidates()
	if len(candidates) == 0 {
		return d.contract(nil), nil
	}
	if s.bus, err = eventbus.Observe(ctx, c, s.kinds.link, s.kinds.channel); err != nil {
		return nil, err
	}
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
				j.looks.first(b.ChannelOf(sub), b.InFlight)
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
	if ch.Verb != migration.Create && ch.Verb != migration.Await && ch.Verb != migration.Patch {
		return nil
	}
	var c migration.Condition
	switch {
	case ch.Ref.Kind == namespaces.Kind:
		c = ready(ch, migration.SubjectOf(kyma.Broker, ch.Ref.Name, kyma.DefaultBroker))
		c.Timeout = j.readyTimeout
	case ch.Ref == eventbus.ControllerRef:
		if ch.Verb == migration.Patch && !eventbus.Stops(ch) {
			return nil
		}
		c = eventbus.AtZero(ch)
		c.Timeout = j.options.deleteTimeout
	case ch.Verb == migration.Patch:
		return nil
	case ch.Ref.Kind == kyma.Broker.Kind, ch.Ref.Kind == kyma.Trigger.Kind:
		c = ready(ch, ch.Ref.Subject())
		c.Timeout = j.readyTimeout
	case ch.Ref.Kind == kyma.EventActivation.Kind:
		c = activated(ch, j.options.integrationNamespace)
		c.Timeout = j.activationTimeout
	case ch.Ref.Kind == kyma.Channel.Kind && ch.Verb == migration.Await:
		c = unsubscribed(ch)
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

// ProtectReads implements migration.ProtectReader.
func (j *Job) ProtectReads() []migration.Subject {
	return append(migration.Workloads(j.options.integrationNamespace), migration.Subject{GroupKind: kyma.Trigger})
}

// RefuseUndo implements migration.UndoGuard.
func (j *Job) RefuseUndo(ctx context.Context, c *migration.Cluster, changes []migration.Change) ([]migration.Finding, error) {
	return refuseUndo(ctx, c, changes)
}

// IgnoredKeys implements migration.EditIgnorer: what Knative's webhooks and controllers
// own.
func (j *Job) IgnoredKeys() []string {
	return append([]string{kyma.TriggerBrokerLabel, kyma.CreatorAnnotation, kyma.LastModifierAnnotation}, migration.IgnoredSpecs(kyma.SubscriberFields()...)...)
}
