package serviceinstance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// parallelism of repairs, which are independent of each other. Recreations come
// one at a time: application-broker has no lock between looking for a Knative
// Subscription and making one (docs/migration/domain.md §4.4).
const parallelism = 8

// The usual duration of a recreation, for the estimate: Service Catalog makes five calls a second,
// and a pod some time to stop and to start.
const (
	instanceTakes = 15 * time.Second
	objectTakes   = 5 * time.Second
	restartTakes  = 30 * time.Second
)

// builder makes the changes of a plan from what was read. It decides nothing.
type builder struct {
	*snapshot
	options options
}

// decision is a plan in the making.
type decision struct {
	builder
	plan      *migration.Plan
	dryRun    bool
	offerings map[string][]offering
	// repairs and recreations are the instances with something to do.
	repairs, recreations []*candidate
	// complete are those with nothing to do.
	complete []*candidate
	// provided are the instances of a service in a namespace that are not failed.
	provided map[id][]*unstructured.Unstructured
}

func newDecision(s *snapshot, o options, dryRun bool) *decision {
	return &decision{
		builder: builder{s, o}, dryRun: dryRun, plan: &migration.Plan{Parallelism: parallelism},
		offerings: offeringsOf(s.applications), provided: map[id][]*unstructured.Unstructured{},
	}
}

func (d *decision) find(id string, severity migration.Severity, object, problem string, advice migration.Advice) {
	d.plan.Findings = append(d.plan.Findings, migration.Finding{ID: id, Severity: severity, Object: object, Problem: problem, Note: advice.Note, Command: advice.Command})
}

// tell is for the one that looks at a plan. A run says what it does by its changes: its
// report would else differ from that of the next one, which finds nothing to do.
func (d *decision) tell(id, object, what, note string) {
	if d.dryRun {
		d.find(id, migration.Info, object, what, migration.Advice{Note: note})
	}
}

func (d *decision) report(obj *unstructured.Unstructured, p *problem) {
	d.find(p.id, p.severity, d.kinds.instance.RefTo(obj).String(), p.what, p.advice)
}

// leaveOut is the advice that ends with the command that leaves an instance out.
func leaveOut(obj *unstructured.Unstructured, instead string) migration.Advice {
	return migration.Advice{
		Note:    strings.TrimSpace(instead + " To leave the ServiceInstance out:"),
		Command: migration.Kubectl(obj.GetNamespace(), "label", instanceKind.Named(obj.GetName()), kyma.OptOutLabel+"=true"),
	}
}

var instanceKind = migration.Kind{GroupKind: kyma.ServiceInstance}

// again is the advice to run the job after something.
func again(note string) migration.Advice {
	return migration.Advice{Note: note, Command: "eventmesh-migrate run --job=serviceinstance-recreate"}
}

// logs is the command that shows the log of application-broker.
func (o options) logs() string {
	return migration.Kubectl(o.integrationNamespace, "logs", "deployment/"+kyma.ApplicationBroker)
}

// assess sorts the instances into what has to be done about them. It is pure.
func (d *decision) assess() {
	if !d.kinds.instance.Served || !d.kinds.application.Served {
		return
	}
	for _, app := range d.applications {
		if odd := kyma.OddServices(app); odd != "" {
			d.find("application-unreadable", migration.Deferred, d.kinds.application.RefTo(app).String(), odd+": ServiceInstances of that part are left as they are",
				migration.Advice{Note: "Correct that field. Then run the job again.", Command: migration.Kubectl("", "edit", d.kinds.application.Named(app.GetName()))})
		}
	}
	var candidates []*candidate
	for _, obj := range d.instances {
		c, why := d.candidateOf(obj)
		in := d.namespaces[obj.GetNamespace()]
		switch {
		case c == nil && why == nil:
		case kyma.OptedOut(obj) || in.optedOut:
			d.find("left-out", migration.Info, d.kinds.instance.RefTo(obj).String(), fmt.Sprintf("skipped: it or its namespace carries the label %s=true", kyma.OptOutLabel), migration.Advice{})
		case in.terminating:
		case c == nil:
			d.report(obj, why)
		default:
			candidates = append(candidates, c)
			if !c.state.FailedForGood() && obj.GetDeletionTimestamp() == nil {
				d.provided[c.activation()] = append(d.provided[c.activation()], obj)
			}
		}
	}
	for _, c := range candidates {
		d.decide(c)
	}
}

// decide says what one instance needs.
func (d *decision) decide(c *candidate) {
	d.compare(c)
	s := d.options.strategy
	switch {
	case c.obj.GetDeletionTimestamp() != nil:
		why := &problem{"instance-being-deleted", migration.Warning, "left alone: it is being deleted", migration.Advice{}}
		if c.state.Undeletable {
			why.what = "left alone: it is being deleted, and its deprovisioning has failed permanently"
			why.advice = migration.Advice{Note: "Service Catalog does nothing about it any more.", Command: instanceKind.Describe(c.namespace(), c.obj.GetName())}
		}
		d.report(c.obj, why)
	case c.state.Operation != "":
		d.report(c.obj, &problem{
			"instance-busy", migration.Deferred, fmt.Sprintf("left for later: its %s is under way (%s)", strings.ToLower(c.state.Operation), c.state.Ready),
			again("Wait until it has ended, and run the job again."),
		})
	case c.state.FailedForGood():
		others := d.provided[c.activation()]
		switch {
		case len(others) > 0 && !c.packages:
			d.report(c.obj, &problem{
				"instance-failed-twin", migration.Warning, fmt.Sprintf("left alone: its provisioning has failed, and ServiceInstance %s provides the same service already", others[0].GetName()),
				migration.Advice{Note: "If nobody needs it, delete it.", Command: migration.Kubectl(c.namespace(), "delete", instanceKind.Named(c.obj.GetName()))},
			})
		case s == repair:
			d.report(c.obj, &problem{
				"instance-needs-recreation", migration.Deferred, "not provisioned, and never will be: " + c.state.Failed.String(),
				needsRecreation,
			})
		default:
			c.broken = "its provisioning has failed permanently: " + c.state.Failed.String()
			d.recreations = append(d.recreations, c)
		}
	case !c.state.Provisioned:
		d.report(c.obj, &problem{
			"instance-not-provisioned", migration.Deferred, fmt.Sprintf("left for later: it is not provisioned yet (%s)", cmp.Or(c.state.Ready.String(), "it has no status")),
			migration.Advice{Note: "Run the job again when it is provisioned.", Command: instanceKind.Describe(c.namespace(), c.obj.GetName())},
		})
	case s == always:
		d.recreations = append(d.recreations, c)
	case c.broken == "" && len(c.lacks) == 0:
		d.complete = append(d.complete, c)
	case s == recreate, c.broken != "" && s == auto:
		d.recreations = append(d.recreations, c)
	case c.broken != "":
		d.report(c.obj, &problem{"instance-needs-recreation", migration.Deferred, c.broken, needsRecreation})
	default:
		d.repairs = append(d.repairs, c)
	}
}

// compare says what an instance lacks of what application-broker makes for it
// (docs/migration/domain.md §4.1).
func (d *decision) compare(c *candidate) {
	activation := d.activations[c.activation()]
	switch {
	case activation == nil:
		c.lacks = append(c.lacks, "its EventActivation")
	case activation.GetDeletionTimestamp() != nil:
		c.lacks = append(c.lacks, "its EventActivation, which is being deleted")
	case specOf(activation, "sourceId") != c.application:
		c.broken = fmt.Sprintf("its EventActivation is of the Application %q, and not of %s", specOf(activation, "sourceId"), c.application)
	case d.foreignOwner(activation, c) != "":
		c.lacks = append(c.lacks, "an EventActivation of its own: that belongs to "+d.foreignOwner(activation, c))
	}
	if !slices.ContainsFunc(d.links[c.pair()], func(link *unstructured.Unstructured) bool { return link.GetDeletionTimestamp() == nil }) {
		c.lacks = append(c.lacks, "a Knative Subscription that brings the events of "+c.application+" to its namespace")
	}
	if d.namespaces[c.namespace()].injection == "" {
		c.lacks = append(c.lacks, fmt.Sprintf("the label %s of its namespace", kyma.InjectionLabel))
	}
	if d.brokers[c.namespace()] == nil {
		c.lacks = append(c.lacks, "a Broker in its namespace")
	}
	if d.lacksPolicy(c) {
		c.lacks = append(c.lacks, "the Policy that lets the Broker of its namespace take events")
	}
}

// lacksPolicy says whether application-broker would make a Policy: that of 1.11
// does.
func (s *snapshot) lacksPolicy(c *candidate) bool {
	return s.kinds.policy.Served && kyma.ApplicationBrokerVersion(s.applicationBroker) == "1.11" && s.policies[c.namespace()] == nil
}

// foreignOwner is the ServiceInstance that an EventActivation belongs to, if it
// is another than that of the candidate: the garbage collector removes it with
// that one.
func (d *decision) foreignOwner(activation *unstructured.Unstructured, c *candidate) string {
	foreign := ""
	for _, owner := range activation.GetOwnerReferences() {
		switch {
		case owner.Kind != kyma.ServiceInstance.Kind:
		case owner.UID == c.obj.GetUID():
			return ""
		case slices.ContainsFunc(d.provided[c.activation()], func(obj *unstructured.Unstructured) bool { return obj.GetUID() == owner.UID }):
			return "" // of another one of the same service, with API packages
		default:
			foreign = fmt.Sprintf("another ServiceInstance (%s, %s)", owner.Name, owner.UID)
		}
	}
	return foreign
}

// served refuses the plan, if there is work, for kinds it lacks.
func (d *decision) served() bool {
	if len(d.repairs)+len(d.recreations) == 0 {
		return true
	}
	ok := true
	for _, k := range []migration.Kind{d.kinds.activation, d.kinds.link, d.kinds.broker, d.kinds.channel} {
		if !k.Served {
			ok = false
			d.find("kind-not-served", migration.Error, "", fmt.Sprintf("the API server serves no kind %s (%s), without which no event gets through the mesh", k.Kind, k.Group),
				migration.Advice{Note: kyma.Install(k.GroupKind)})
		}
	}
	return ok
}

// finish makes the plan of what assess found. It is pure.
func (d *decision) finish() *migration.Plan {
	if d.served() {
		d.repair()
		d.recreate()
	}
	for _, c := range d.complete {
		d.tell("instance-complete", d.kinds.instance.RefTo(c.obj).String(), "nothing to do: it is provisioned, and has all that the mesh needs", "")
	}
	d.plan.SortFindings()
	return d.plan
}

// unusable says why the Channel of an Application cannot take a subscriber; nil
// if it can. application-broker fails permanently if it cannot.
func (d *decision) unusable(application string) *problem {
	channels := d.channels[application]
	in := d.options.integrationNamespace
	switch {
	case len(channels) == 0:
		return &problem{
			"channel-not-usable", migration.Deferred, fmt.Sprintf("left for later: its Application %s has no Channel in %s yet", application, in),
			migration.Advice{Note: "httpsource-sync creates it.", Command: "eventmesh-migrate run --job=httpsource-sync"},
		}
	case len(channels) > 1:
		return &problem{
			"channel-not-usable", migration.Deferred, fmt.Sprintf("left for later, because %d Channels in %s are labelled %s=%s: %s", len(channels), in, kyma.ApplicationNameLabel, application, names(channels)),
			migration.Advice{
				Note:    "Delete all but the one that belongs to the HTTPSource of that name. To see them:",
				Command: migration.Kubectl(in, "get", "channels."+d.kinds.channel.Group, "-l", kyma.ApplicationNameLabel+"="+application),
			},
		}
	case !k8sobject.ReadinessOf(channels[0]).OK():
		return &problem{
			"channel-not-usable", migration.Deferred, fmt.Sprintf("left for later: the Channel %s/%s of its Application is not ready", in, channels[0].GetName()),
			migration.Advice{Note: "The usual cause is NATS Streaming or its provisioner.", Command: d.kinds.channel.Describe(in, channels[0].GetName())},
		}
	}
	return nil
}

// needsRecreation is the advice about an instance that no repair can help.
var needsRecreation = migration.Advice{
	Note: "No repair can help. Let the job recreate it.", Command: "eventmesh-migrate run --job=serviceinstance-recreate --serviceinstance-recreate.strategy=" + auto,
}

// showLinks is the command that shows the Knative Subscriptions of an Application for a namespace.
func showLinks(integration string, p pair) string {
	return migration.Kubectl(integration, "get", "subscriptions."+kyma.ChannelSubscription.Group,
		"-l", kyma.ApplicationNameLabel+"="+p.application+","+kyma.BrokerNamespaceLabel+"="+p.namespace)
}

// duplicate says that several Knative Subscriptions bring the same events: each
// comes several times, and application-broker refuses to do anything.
func (d *decision) duplicate(c *candidate) *problem {
	links := d.links[c.pair()]
	if len(links) < 2 {
		return nil
	}
	return &problem{
		"link-duplicate", migration.Deferred, fmt.Sprintf("left for later, because %d Knative Subscriptions bring the events of %s to its namespace, each event %d times: %s", len(links), c.application, len(links), names(links)),
		migration.Advice{Note: "Delete all but one of them. To see them:", Command: showLinks(d.options.integrationNamespace, c.pair())},
	}
}

// unnameable says that the service's ID can be no name of an EventActivation.
func (d *decision) unnameable(c *candidate) *problem {
	why := validation.NameIsDNSSubdomain(c.service.ID, false)
	if len(why) == 0 {
		return nil
	}
	return &problem{
		"service-id-unusable", migration.Error, fmt.Sprintf("the ID of its service, %q, can be no name of an EventActivation: %s", c.service.ID, strings.Join(why, "; ")),
		leaveOut(c.obj, "Give the service another ID."),
	}
}
