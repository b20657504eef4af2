// Package check finds out what can be known before a run, and writes nothing: permissions, kinds,
// webhooks, NATS Streaming, other runs, what the plans of the jobs refuse, and the time it takes.
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Result is everything that was found.
type Result struct {
	Server     string `json:"server"`
	Context    string `json:"context,omitempty"`
	User       string `json:"user,omitempty"`
	Kubernetes string `json:"kubernetes,omitempty"`
	Kinds      []Kind `json:"kinds"`
	Jobs       []Job  `json:"jobs"`
	// Missing are the permissions that the account lacks.
	Missing  []string            `json:"missing"`
	Findings []migration.Finding `json:"findings"`
}

// Kind is a kind of the event path as the cluster serves it.
type Kind struct {
	Kind  string `json:"kind"`
	Group string `json:"group"`
	// Version is the best one that is served, "" if none is.
	Version   string `json:"version,omitempty"`
	Component string `json:"component,omitempty"`
}

// Job is what a job would do, and how long it may take.
type Job struct {
	Name   string             `json:"name"`
	Needed jobmanager.Verdict `json:"needed,omitempty"`
	Reason string             `json:"reason,omitempty"`
	// Estimate is what the plan says that it may take, 0 if it does not say it.
	Estimate float64 `json:"estimateSeconds,omitempty"`
	// Timeout and HelmTimeout are what the job and Helm need as a hook, 0 if no chart runs it.
	Timeout     float64 `json:"timeoutSeconds,omitempty"`
	HelmTimeout float64 `json:"helmTimeoutSeconds,omitempty"`
}

// Subject is what is checked.
type Subject struct {
	Engine         *engine.Engine
	Jobs           []jobmanager.Registration
	StateNamespace string
	// Needs asks the jobs for their plans.
	Needs func(context.Context) ([]jobmanager.JobNeed, error)
	// HelmTimeout is what Helm needs for a job whose own limit is the first result; 0, 0 if no
	// chart runs it. own is what the job needs for this cluster, 0 if that does not depend on it.
	HelmTimeout func(job string, own time.Duration) (timeout, helm time.Duration)
}

// kinds are those of the event path, and of Service Catalog.
var kinds = []schema.GroupKind{
	kyma.Application, kyma.EventActivation, kyma.Subscription, kyma.HTTPSource, kyma.Channel, kyma.ChannelSubscription,
	knative.Broker, knative.Trigger, kyma.Service, kyma.ServiceInstance, kyma.ServiceBinding, kyma.ServiceBindingUsage,
}

// limited is a job whose limit follows from the number of Applications.
type limited interface {
	Limit(applications int) time.Duration
}

// monitors is a job that reads NATS Streaming.
type monitors interface {
	NATSUnreadable(context.Context, *migration.Cluster) string
}

// Run checks the cluster, as far as this account may read it: what it may not read is a
// finding. An error means that the cluster could not be read.
func Run(ctx context.Context, s Subject) (*Result, error) {
	r := &Result{Kinds: []Kind{}, Jobs: []Job{}, Missing: []string{}, Findings: []migration.Finding{}}
	c := s.Engine.Cluster()
	for _, gk := range kinds {
		resource, _, err := c.Served(ctx, gk)
		if err != nil {
			return nil, err
		}
		r.Kinds = append(r.Kinds, Kind{Kind: gk.Kind, Group: gk.Group, Version: resource.Version, Component: kyma.Component(gk)})
	}
	r.kindsMissing()
	rows, found, err := neededHere(ctx, s.Engine, s.Jobs, s.StateNamespace)
	if err != nil {
		return nil, err
	}
	if err := s.permissions(ctx, rows, r); err != nil {
		return nil, err
	}
	for _, part := range []struct {
		what  string
		check func() error
	}{
		{"state namespace", func() error { return s.stateNamespace(ctx, found, r) }},
		{"other runs", func() error { return s.runs(ctx, r) }},
		{"plans", func() error { return s.plans(ctx, c, r) }},
		{"webhooks", func() error { return r.webhooks(ctx, c, found, rows) }},
	} {
		if err := r.unlessForbidden(part.what, part.check()); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// permissions asks for those that a run needs.
func (s Subject) permissions(ctx context.Context, rows []migration.Access, r *Result) error {
	missing, err := s.Engine.Missing(ctx, rows)
	if err != nil {
		return err
	}
	r.Missing = append(r.Missing, missing...)
	if len(missing) > 0 {
		r.find("permission-missing", migration.Error, "", problemOf(missing), roleCommand, roleNote)
	}
	return nil
}

// What to do about a permission that is missing.
const (
	roleCommand = "eventmesh-migrate check --role"
	roleNote    = "An administrator has to apply the Role that this command prints. Then check again."
)

// unlessForbidden makes a finding of an answer that this account may not read something, and
// returns every other error. The rest of the checks does not depend on it.
func (r *Result) unlessForbidden(what string, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	problem := "not checked"
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Details != nil {
		d := status.Status().Details
		// The quotes let such findings be told together.
		problem += fmt.Sprintf(", because this account may not read %q", schema.GroupResource{Group: d.Group, Resource: d.Kind})
	}
	r.find("check-not-done", migration.Warning, what, problem, roleCommand, roleNote)
	return nil
}

func (r *Result) find(id string, severity migration.Severity, object, problem, command, note string) {
	r.Findings = append(r.Findings, migration.Finding{ID: id, Severity: severity, Object: object, Problem: problem, Command: command, Note: note})
}

// Errors says whether a run would be refused or fail.
func (r *Result) Errors() bool {
	return slices.ContainsFunc(r.Findings, func(f migration.Finding) bool { return f.Severity == migration.Error })
}

func problemOf(missing []string) string {
	const shown = 3
	are := "are"
	if len(missing) == 1 {
		are = "is"
	}
	problem := fmt.Sprintf("%s %s missing: %s", migration.Count(len(missing), "permission"), are, strings.Join(missing[:min(shown, len(missing))], ", "))
	if more := len(missing) - shown; more > 0 {
		problem += fmt.Sprintf(" and %d more", more)
	}
	return problem
}

func (r *Result) serves(gk schema.GroupKind) bool {
	return slices.ContainsFunc(r.Kinds, func(k Kind) bool { return k.Kind == gk.Kind && k.Group == gk.Group && k.Version != "" })
}

func (r *Result) kindsMissing() {
	if !r.serves(kyma.Application) {
		r.find("check-no-kyma", migration.Error, "", "the API server serves no Applications, so this is not a Kyma cluster", "kubectl config get-contexts", "Choose another context.")
		return
	}
	for _, gk := range []schema.GroupKind{kyma.HTTPSource, kyma.Channel, knative.Broker, knative.Trigger, kyma.Service} {
		if !r.serves(gk) {
			r.find("check-kind-missing", migration.Warning, "", fmt.Sprintf("the API server serves no kind %s (%s)", gk.Kind, gk.Group), "", "First "+kyma.Install(gk)+".")
		}
	}
}

// stateNamespace finds out whether the first write can create it. found has all namespaces,
// nil if this account may not list them.
func (s Subject) stateNamespace(ctx context.Context, found map[string]*unstructured.Unstructured, r *Result) error {
	object, namespace := "Namespace "+s.StateNamespace, found[s.StateNamespace]
	if found == nil {
		var err error
		if namespace, err = s.Engine.Cluster().Get(ctx, migration.Ref{Resource: namespaces, Name: s.StateNamespace}); err != nil {
			return err
		}
	}
	switch {
	case namespace == nil:
		denied, err := s.Engine.Missing(ctx, []migration.Access{{Resource: "namespaces", Verbs: []string{"create"}}})
		if err != nil || len(denied) == 0 {
			return err
		}
		r.find("check-state-namespace", migration.Error, object, "does not exist, and this account cannot create it",
			migration.CommandLine("kubectl", "create", "namespace", s.StateNamespace), "An administrator has to create it.")
	case namespace.GetDeletionTimestamp() != nil:
		r.find("check-state-namespace", migration.Error, object, "is being deleted",
			migration.CommandLine("kubectl", "wait", "--for=delete", "namespace/"+s.StateNamespace, "--timeout=5m"), "Wait until it is gone.")
	}
	return nil
}

// runs finds a run that works now, and those that were interrupted.
func (s Subject) runs(ctx context.Context, r *Result) error {
	kept, err := s.Engine.State(ctx)
	if kept != nil { // also if the Lease cannot be read
		r.runsOf(kept, s.StateNamespace, time.Now())
	}
	return err
}

func (r *Result) runsOf(kept *engine.State, stateNamespace string, now time.Time) {
	if kept.Lock.Live(now) {
		r.find("run-running", migration.Error, "Lease "+stateNamespace+"/"+kyma.Program, "another run works now: "+kept.Lock.String(),
			"eventmesh-migrate status", "Wait until it ends. Then check again. To see how far it is:")
		return
	}
	for i := range kept.Journals {
		if j := &kept.Journals[i]; j.Open {
			r.find("run-open", migration.Warning, "job "+j.Job, j.What()+" was interrupted, and is open ("+j.Phase+")",
				migration.CommandLine("eventmesh-migrate", "undo", j.Job), "The next run continues it. To undo it instead:")
		}
	}
}

// plans asks the jobs what they would do, and what blocks them.
func (s Subject) plans(ctx context.Context, c *migration.Cluster, r *Result) error {
	applications := 0
	if resource, served, err := c.Served(ctx, kyma.Application); err != nil {
		return err
	} else if served {
		err := c.Each(ctx, resource, "", migration.ListOptions{}, func(*unstructured.Unstructured) error { applications++; return nil })
		if err := r.unlessForbidden("number of Applications", err); err != nil {
			return err
		}
	}
	// Without the state of earlier runs, the plans are still known.
	needs, err := s.Needs(ctx)
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	for i := range needs {
		if err := s.plan(ctx, c, &needs[i], applications, r); err != nil {
			return err
		}
	}
	return nil
}

// crashesController is the finding of trigger-sync about a Subscription that stops the Event Bus
// for all others, now or at the next start of its controller: to be corrected before a run, and
// whether or not there is one.
const crashesController = "endpoint-crashes-controller"

func (s Subject) plan(ctx context.Context, c *migration.Cluster, n *jobmanager.JobNeed, applications int, r *Result) error {
	name := n.Job.Name()
	if err := r.unlessForbidden("job "+name, n.Err); err != nil {
		return fmt.Errorf("job %s: %w", name, err)
	}
	own := n.Estimate
	if l, ok := n.Job.Job.(limited); ok {
		own = l.Limit(applications)
	}
	timeout, helm := s.HelmTimeout(name, own)
	r.Jobs = append(r.Jobs, Job{
		Name: name, Needed: n.Verdict, Reason: n.Reason,
		Estimate: n.Estimate.Seconds(), Timeout: timeout.Seconds(), HelmTimeout: helm.Seconds(),
	})
	for _, f := range n.Findings {
		if f.Severity == migration.Error || f.ID == crashesController {
			f.Object = cmp.Or(f.Object, "job "+name)
			r.Findings = append(r.Findings, f)
		}
	}
	if m, ok := n.Job.Job.(monitors); ok && r.serves(kyma.Subscription) {
		if why := m.NATSUnreadable(ctx, c); why != "" {
			r.find("check-nats-unreadable", migration.Warning, "job "+name, "cannot read what NATS Streaming holds: "+why,
				"kubectl -n "+kyma.NATSNamespace+" get pods", "While this is so, Kyma Subscriptions of sources that have switched are not deleted.")
		}
	}
	return nil
}
