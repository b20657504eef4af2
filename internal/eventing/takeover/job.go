package takeover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Get gets a path over HTTP from a port of a pod.
type Get func(ctx context.Context, namespace, pod string, port int, path string) ([]byte, error)

// Options of a Job.
type Options struct {
	// To is where the events are to be in the end.
	To Direction
	// Namespace is where both are; "": Namespace.
	Namespace string
	// Get asks the servers of NATS.
	Get Get
	// LeaveGivenUp: events that Kyma's operator has given up do not stop the way.
	LeaveGivenUp bool
}

// options are what is decided by.
type options struct {
	to           Direction
	leaveGivenUp bool
}

// Job is one step of the way. It is run again until its plan is empty.
type Job struct {
	options   options
	namespace string
	get       Get
}

var (
	_ migration.Job         = (*Job)(nil)
	_ migration.Rechecker   = (*Job)(nil)
	_ migration.EditIgnorer = (*Job)(nil)
)

// New returns a job.
func New(o Options) *Job {
	if o.Namespace == "" {
		o.Namespace = Namespace
	}
	return &Job{options: options{to: o.To, leaveGivenUp: o.LeaveGivenUp}, namespace: o.Namespace, get: o.Get}
}

// Name implements migration.Job. Both ways have one name: what one has begun, the other goes on
// from.
func (j *Job) Name() string { return "take-over" }

// Doc implements migration.Job.
func (j *Job) Doc() (short, long string) {
	return "Move from Kyma's own eventing to this one, or back, without losing an event", "See docs/eventing/coming-from-kyma.md."
}

// Plan implements migration.Job: the next step.
func (j *Job) Plan(ctx context.Context, c *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	s, err := j.look(ctx, c)
	if err != nil {
		return nil, err
	}
	return decide(s, j.options), nil
}

// drainWatch is how far apart the two looks at a NATS are that holds nothing: what was sent to it
// before its publishers ended may be stored a moment later.
const drainWatch = 2 * time.Second

// look reads everything. A NATS that holds nothing is looked at twice.
func (j *Job) look(ctx context.Context, c reader) (*snapshot, error) {
	s, err := observe(ctx, c, j.namespace)
	if err != nil {
		return nil, err
	}
	s.readStreams(ctx, j.get)
	if is := s.state(); is.TheirPublisher || !is.TheirDrained || s.theirs == nil {
		return s.leaving(j.options), nil
	}
	before := s.theirs.LastSeq
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(drainWatch):
	}
	if s.readStreams(ctx, j.get); s.theirs != nil && s.theirs.LastSeq != before {
		s.theirs.Waiting++ // somebody still stores events
	}
	return s.leaving(j.options), nil
}

// leaving takes events that were given up for none, if that was asked for.
func (s *snapshot) leaving(o options) *snapshot {
	if o.leaveGivenUp && s.theirs != nil && s.theirs.GivenUp() > 0 {
		s.theirs.Messages = 0
	}
	return s
}

// Await implements migration.Job.
func (j *Job) Await(ch *migration.Change) []migration.Condition { return await(ch) }

// IgnoredKeys implements migration.EditIgnorer: the controller of Deployments counts revisions.
func (j *Job) IgnoredKeys() []string { return []string{"deployment.kubernetes.io/revision"} }

// Recheck implements migration.Rechecker: what nobody accepts, or nobody holds, would be lost.
func (j *Job) Recheck(ctx context.Context, f migration.Fresh, u *migration.Unit, i int) (*migration.Finding, error) {
	_, name, _ := strings.Cut(u.ID, "/")
	s, err := migration.Shared(ctx, f, "take-over before "+u.ID, func(ctx context.Context, c *migration.Cluster) (*snapshot, error) {
		s, err := observe(ctx, c, j.namespace)
		if err == nil {
			s.readStreams(ctx, j.get)
		}
		return s, err
	})
	if err != nil {
		return nil, err
	}
	why := s.unsafe(step(name))
	if why == "" && step(name) == makeBridge {
		if why, err = migration.Shared(ctx, f, "take-over frozen", func(ctx context.Context, c *migration.Cluster) (string, error) { return notFrozen(ctx, c, s) }); err != nil {
			return nil, err
		}
	}
	if why == "" {
		return nil, nil
	}
	return &migration.Finding{
		ID: "not-now", Severity: migration.Deferred, Object: u.Changes[i].Ref.String(), Problem: "left as it is: " + why,
		Note: "Run it again.", Command: "kubectl eventing take-over plan",
	}, nil
}

// unsafe says why a step must not be made now, "" if it may.
func (s *snapshot) unsafe(n step) string {
	switch n {
	case makeBridge:
		if !s.state().Frozen {
			return "Subscriptions can be changed"
		}
		if !leadsTo(s.service, s.theirPublisher) && !s.serviceIsOurs() {
			return "the Service " + theirPublisher + " selects other pods than Kyma's"
		}
	case closePublisher:
		if !available(s.bridge) || !leadsTo(s.service, s.bridge) {
			return "the pods of the bridge are not available behind Kyma's Service"
		}
	case leadToOurs:
		if why := s.oursNotReady(); why != "" {
			return why
		}
	case leadToTheirs:
		if !available(s.bridge) {
			return "the pods of the bridge are not available"
		}
	case openPublisher:
		return s.theirsNotReady()
	case removeBridge:
		ours := s.serviceIsOurs() && available(s.ourPublisher)
		theirs := leadsTo(s.service, s.theirPublisher) && available(s.theirPublisher)
		if !ours && !theirs {
			return "no other publisher is available behind Kyma's Service"
		}
	}
	return ""
}

// theirsNotReady says which consumer of Kyma's nobody listens to, "" if all are there: an event
// that is stored without a consumer is gone.
func (s *snapshot) theirsNotReady() string {
	if s.nats != nil && s.nats.GetDeletionTimestamp() != nil {
		return "Kyma's NATS is being deleted"
	}
	if s.theirs == nil || !s.theirs.Stream {
		return "Kyma's stream is not there"
	}
	for _, sub := range s.subscriptions {
		if sub.DeletionTimestamp != nil {
			continue
		}
		missing := s.missingService(sub)
		for _, name := range sub.theirConsumers() {
			switch {
			case has(s.theirs.Bound, name):
			case missing == "":
				return fmt.Sprintf("Kyma's operator does not listen to consumer %s of Subscription %s yet", name, sub.key())
			case !has(s.theirs.Consumers, name): // one that is there keeps events
				return fmt.Sprintf("Kyma's operator makes no consumer for Subscription %s, because Service %s does not exist: create it, or delete the Subscription", sub.key(), missing)
			}
		}
	}
	return ""
}

// notFrozen says that a Subscription could still be created, "" if none can. It tries, without
// creating one.
func notFrozen(ctx context.Context, c reader, s *snapshot) (string, error) {
	probe := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": subscriptions.GroupVersion().String(), "kind": subscriptions.Kind,
		"metadata": map[string]any{"name": freezeName, "namespace": s.namespace},
		"spec": map[string]any{
			"sink": "http://sink." + s.namespace + ".svc.cluster.local", "source": "take-over", "types": []any{"take.over.v1"}, "typeMatching": "standard",
		},
	}}
	err := c.TryCreate(ctx, subscriptions.RefTo(probe), probe)
	switch {
	case err == nil:
		return "a Subscription could still be created", nil
	case strings.Contains(err.Error(), freezeMessage):
		return "", nil
	default:
		return "", err
	}
}

// Outlook is what is ahead.
type Outlook struct {
	// Steps that are left, in order, with what happens to events meanwhile.
	Steps []Step `json:"steps"`
	// Findings are what is in the way, and what should be known.
	Findings []migration.Finding `json:"findings"`
	// Subscriptions is how many there are.
	Subscriptions int `json:"subscriptions"`
	// Theirs and Ours are what the two NATS hold; nil if there is none.
	Theirs *Backlog `json:"kyma,omitempty"`
	Ours   *Backlog `json:"ours,omitempty"`
	// Prefix of ours, "" if it is not installed.
	Prefix string `json:"prefix,omitempty"`
}

// Step is one for people.
type Step struct {
	ID        string `json:"id"`
	Does      string `json:"does"`
	Meanwhile string `json:"meanwhile"`
}

// Look reads the cluster, and returns the whole way from there.
func (j *Job) Look(ctx context.Context, c *migration.Cluster) (*Outlook, error) {
	s, err := j.look(ctx, c)
	if err != nil {
		return nil, err
	}
	o := &Outlook{Findings: findings(s, j.options), Subscriptions: len(s.subscriptions), Theirs: s.theirs, Ours: s.ours, Prefix: string(s.names)}
	is := s.state()
	if n := next(is, j.options.to); n == awaitTheirDrain || n == awaitOurDrain {
		if f := s.waits(n); f != nil {
			o.Findings = append(o.Findings, *f)
		}
	}
	if whole := slices.ContainsFunc(o.Findings, func(f migration.Finding) bool { return f.ID == "no-eventing" || f.ID == "no-kyma-operator" }); whole {
		return o, nil
	}
	for _, n := range route(is, j.options.to) {
		o.Steps = append(o.Steps, Step{string(n), says[n][0], says[n][1]})
	}
	return o, nil
}
