package trigger

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/eventbus"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/route"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// parallelism is a constant because nobody needs to choose it: Triggers are
// independent of each other, and 16 writes under way hide the round trips to the
// API server. How hard a run may press a cluster is said by --max-unready and
// --qps.
const parallelism = 16

// group is Subscriptions of one namespace that bring the same events to the same
// address: one Trigger stands for all of them.
type group struct {
	route.Delivery
	route.Terms
	namespace string
	// subscriptions, the one that gives the Trigger its name first.
	subscriptions []*unstructured.Unstructured
	// trigger exists already; nil: it has to be created, with the name wanted.
	trigger *existing
	wanted  string
	// former has the name wanted, and brings what the Subscription asked for before it was edited.
	former *existing
	// handed: its Subscription is being deleted, and the subscription-controller was to do the
	// rest.
	handed bool
}

func (g *group) pair() pair { return pair{g.Delivery.Source, g.namespace} }

// decision is a plan in the making.
type decision struct {
	*snapshot
	options options
	plan    *migration.Plan
	groups  []*group
	// brokers are the namespaces whose Broker is not ready yet; the value is the
	// change that makes or awaits it.
	pending map[string]migration.Change
	units   struct{ controller, brokers, triggers, activations, deletions []migration.Unit }
	// left is how long the run may take from now on, 0 if it is unknown.
	left time.Duration
	// byHand: the job does what the subscription-controller would have done with a
	// deleted Subscription. awaitStop: the controller may still have pods.
	byHand, awaitStop bool
	// orphans are Channels of the Event Bus that nothing uses any more.
	orphans []*unstructured.Unstructured
	// first are findings that are to be read before all others.
	first []migration.Finding
	// preview: the plan is only shown, and says which object replaces which.
	preview bool
}

func newDecision(s *snapshot, o options) *decision {
	d := &decision{snapshot: s, options: o, plan: &migration.Plan{Parallelism: parallelism}, pending: map[string]migration.Change{}}
	for _, triggers := range d.triggers {
		for _, t := range triggers {
			if t.selected != nil {
				// Each is compared with every group of its namespace.
				t.selected.Address = kyma.Address(t.subscriber, d.isNamespace)
			}
		}
	}
	return d
}

func (d *decision) find(id string, severity migration.Severity, object, problem string, advice migration.Advice) {
	d.plan.Findings = append(d.plan.Findings, migration.Finding{ID: id, Severity: severity, Object: object, Problem: problem, Note: advice.Note, Command: advice.Command})
}

// untriggered is how bad it is that a Subscription gets no Trigger: after the
// switch it would get no events any more.
func (d *decision) untriggered() migration.Severity {
	if d.options.requireTriggers {
		return migration.Error
	}
	return migration.Deferred
}

func (d *decision) ref(sub *unstructured.Unstructured) string {
	return d.kinds.subscription.RefTo(sub).String()
}

// expand decides what has to be there before any event is switched over. It is
// pure.
func (d *decision) expand() {
	if !d.kinds.subscription.Served {
		d.find("no-event-bus", migration.Info, "", fmt.Sprintf("the API server serves no %s: there is no Event Bus to migrate from", spell(d.kinds.subscription)), migration.Advice{})
		return
	}
	d.crashes()
	d.group()
	d.activate()
	if !d.served() {
		d.groups = nil
		return
	}
	d.broker()
	d.groups = slices.DeleteFunc(d.groups, func(g *group) bool { return !d.match(g) })
}

// crashes names the Subscriptions at which the subscription-controller crashes at
// every start, wherever they are: until they are fixed, it does nothing for any.
func (d *decision) crashes() {
	for _, sub := range d.unparsable {
		d.first = append(d.first, migration.Finding{
			ID: "endpoint-crashes-controller", Severity: migration.Warning, Object: d.ref(sub),
			Problem: "spec.endpoint is not a URL: the subscription-controller of Kyma 1.10 crashes on it at every start, and then serves no Subscription at all",
			Note:    "Correct spec.endpoint, or delete the Subscription: the controller then does by itself what it has not done. No finalizer has to be removed by hand.",
			Command: migration.Kubectl(sub.GetNamespace(), "edit", d.kinds.subscription.Named(sub.GetName())),
		})
	}
}

// group sorts Subscriptions into those that are equal, and reports the others.
func (d *decision) group() {
	byTerms := map[string]map[route.Terms]*group{}
	for _, sub := range d.subscriptions {
		if kyma.OptedOut(sub) || d.namespaces[sub.GetNamespace()].optedOut {
			d.find("left-out", migration.Info, d.ref(sub), fmt.Sprintf("skipped: it or its namespace carries the label %s=true", kyma.OptOutLabel), migration.Advice{})
			continue
		}
		wants, why := d.assess(sub)
		if g := d.handed(sub); g != nil {
			d.groups = append(d.groups, g)
			continue
		}
		if why != nil {
			advice := migration.Advice{Note: why.Note, Command: why.Command}
			if !why.Passes {
				advice.Note += " To leave it out permanently:"
				advice.Command = migration.Kubectl(sub.GetNamespace(), "label", d.kinds.subscription.Named(sub.GetName()), kyma.OptOutLabel+"=true")
			}
			severity := d.untriggered()
			if why.Passes {
				severity = migration.Deferred
			}
			d.find("subscription-not-convertible", severity, d.ref(sub), "left as it is: "+why.Problem, advice)
			continue
		}
		if route.AsksForNameHeader(sub) {
			d.find("name-header", migration.Warning, d.ref(sub), "spec.include_subscription_name_header is set, and no Trigger can add such a header; nothing in Kyma 1.10 and 1.11 does, either",
				migration.Advice{Note: "If the subscriber needs the header, give each of its Subscriptions a URL of its own."})
		}
		namespace := sub.GetNamespace()
		if byTerms[namespace] == nil {
			byTerms[namespace] = map[route.Terms]*group{}
		}
		t := route.TermsOf(wants, d.isNamespace)
		g := byTerms[namespace][t]
		if g == nil {
			g = &group{Delivery: wants, Terms: t, namespace: namespace}
			byTerms[namespace][t] = g
			d.groups = append(d.groups, g)
		}
		g.subscriptions = append(g.subscriptions, sub)
	}
	for _, g := range d.groups {
		if g.handed {
			continue
		}
		// The Console finds a Trigger only by the name it gives it.
		slices.SortStableFunc(g.subscriptions, func(a, b *unstructured.Unstructured) int {
			console := func(sub *unstructured.Unstructured) int {
				if kyma.FromConsole(sub) {
					return 0
				}
				return 1
			}
			return cmp.Compare(console(a), console(b))
		})
		g.Delivery, _ = route.DeliveryOf(g.subscriptions[0])
	}
}

// assess says what a Subscription asks for, or why it has no equivalent.
func (d *decision) assess(sub *unstructured.Unstructured) (route.Delivery, *route.Obstacle) {
	if sub.GetDeletionTimestamp() != nil {
		why := &route.Obstacle{Problem: "it is being deleted already", Note: "Wait until it is gone, and run the job again.", Command: runJob, Passes: true}
		if finalizers := sub.GetFinalizers(); len(finalizers) > 0 {
			why.Problem += ", and held by " + eventbus.Owners(finalizers)
			why.Note = "Check that they run, and run the job again."
			if slices.Equal(finalizers, []string{kyma.SubscriptionFinalizer}) {
				why.Note, why.Command = "Check that the controller runs, and run the job again. If it is gone permanently, remove the finalizer of the Subscription.", eventbus.Show()
			}
		}
		return route.Delivery{}, why
	}
	if d.namespaces[sub.GetNamespace()].terminating {
		return route.Delivery{}, &route.Obstacle{Problem: "its namespace is being deleted", Note: "Wait until it is gone, and run the job again.", Command: runJob, Passes: true}
	}
	wants, why := route.DeliveryOf(sub)
	if why != nil {
		return wants, why
	}
	if _, ok := d.applications[wants.Source]; !ok && d.sources[wants.Source] == nil {
		return wants, &route.Obstacle{
			Problem: fmt.Sprintf("spec.source_id %q is no Application and has no HTTPSource: its events reach the Event Bus by another way, and there is none into the mesh", wants.Source),
			Note: fmt.Sprintf("Create the Application %q, and let the client that posts to event-publish-service.%s post to it. Or delete the Subscription.",
				wants.Source, kyma.SystemNamespace),
		}
	}
	return wants, nil
}

// activate awaits what application-broker has to make for each EventActivation.
func (d *decision) activate() {
	for _, activation := range d.activations {
		namespace := activation.GetNamespace()
		source := k8sobject.Text(k8sobject.MapAt(activation.Object, "spec")["sourceId"])
		in := d.namespaces[namespace]
		if kyma.OptedOut(activation) || in.optedOut || in.terminating || activation.GetDeletionTimestamp() != nil || source == "" ||
			len(d.links[pair{source, namespace}]) > 0 {
			continue
		}
		expect, err := json.Marshal(expectation{Source: source})
		if err != nil {
			panic(err) // it is text
		}
		ref := d.kinds.activation.RefTo(activation)
		d.units.activations = append(d.units.activations, migration.Unit{ID: ref.String(), Changes: []migration.Change{{
			Verb: migration.Await, Ref: ref, Expect: expect,
			Why: fmt.Sprintf("no Knative Subscription brings the events of %s to namespace %s yet", source, namespace),
		}}})
	}
}

// served refuses the plan, if there is work, for kinds it lacks.
func (d *decision) served() bool {
	missing := map[string]migration.Kind{}
	need := func(all ...migration.Kind) {
		for _, k := range all {
			if !k.Served {
				missing[k.Kind+k.Group] = k
			}
		}
	}
	if len(d.groups) > 0 {
		need(d.kinds.trigger, d.kinds.broker)
	}
	if len(d.units.activations) > 0 {
		need(d.kinds.link)
	}
	for _, key := range slices.Sorted(maps.Keys(missing)) {
		k := missing[key]
		d.find("kind-not-served", migration.Error, "", fmt.Sprintf("the API server serves no %s, without which no event gets through the mesh", spell(k)),
			migration.Advice{Note: kyma.Install(k.GroupKind)})
	}
	return len(missing) == 0
}

// broker makes sure of a Broker in each namespace with a Subscription; where
// none can be made, its groups are dropped.
func (d *decision) broker() {
	impossible := map[string]bool{}
	seen := map[string]bool{}
	for _, g := range d.groups {
		if seen[g.namespace] {
			continue
		}
		seen[g.namespace] = true
		ref := d.kinds.broker.Ref(g.namespace, kyma.DefaultBroker)
		broker, namespace := d.brokers[g.namespace], d.namespaces[g.namespace]
		var ch migration.Change
		switch {
		case broker != nil && unready(ref, broker) == "":
			continue
		case broker != nil:
			ch = migration.Change{Verb: migration.Await, Ref: ref, Why: unready(ref, broker)}
		case !d.kinds.injects():
			ch = migration.Change{Verb: migration.Create, Ref: ref, Object: newBroker(d.kinds.broker, ref), Why: fmt.Sprintf("namespace %s has no Broker", g.namespace)}
		case namespace.injection == "enabled":
			ch = migration.Change{Verb: migration.Await, Ref: ref, Why: fmt.Sprintf("namespace %s is labelled for a Broker, and has none yet", g.namespace)}
		case namespace.injection != "":
			impossible[g.namespace] = true
			d.find("namespace-without-broker", d.untriggered(), migration.Ref{Resource: namespaces, Name: g.namespace}.String(),
				fmt.Sprintf("its Subscriptions are left as they are: it has no Broker, and its label %s=%s says that it is to have none", kyma.InjectionLabel, namespace.injection),
				migration.Advice{
					Note:    "To leave the namespace out, label it " + kyma.OptOutLabel + "=true. To get a Broker:",
					Command: migration.Kubectl("", "label", "namespace", g.namespace, kyma.InjectionLabel+"=enabled", "--overwrite"),
				})
			continue
		default:
			ch = d.injection(g.namespace, namespace)
		}
		d.pending[g.namespace] = migration.Change{Verb: migration.Await, Ref: ref, Why: ch.Why}
		d.units.brokers = append(d.units.brokers, migration.Unit{ID: ref.String(), Changes: []migration.Change{ch}})
	}
	d.groups = slices.DeleteFunc(d.groups, func(g *group) bool { return impossible[g.namespace] })
}

// injection labels a namespace, upon which Knative makes a Broker and what it
// needs.
func (d *decision) injection(name string, namespace namespace) migration.Change {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{kyma.InjectionLabel: "enabled"}}})
	if err != nil {
		panic(err) // two constants and no more
	}
	effects := []migration.Ref{d.kinds.broker.Ref(name, kyma.DefaultBroker)}
	for _, account := range kyma.BrokerAccounts() {
		effects = append(effects,
			migration.Ref{Resource: roleBindings, Namespace: name, Name: account},
			migration.Ref{Resource: roleBindings, Namespace: kyma.EventingNamespace, Name: kyma.BrokerConfigBinding(name, account)},
			migration.Ref{Resource: serviceAccounts, Namespace: name, Name: account})
	}
	// What the decision was made on: the label is somebody's decision, too.
	basis := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	basis.SetName(name)
	basis.SetUID(namespace.uid)
	if namespace.labelled {
		basis.SetLabels(map[string]string{kyma.InjectionLabel: namespace.injection})
	}
	return migration.Change{
		Verb: migration.Patch, Ref: migration.Ref{Resource: namespaces, Name: name}, Patch: patch, Object: basis, UID: namespace.uid,
		SideEffects: effects, SideEffectLabels: kyma.InjectedLabels(),
		Why: fmt.Sprintf("namespace %s has no Broker", name),
	}
}

func newBroker(k migration.Kind, ref migration.Ref) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": k.Resource.GroupVersion().String(), "kind": k.Kind,
		"metadata": map[string]any{"name": ref.Name, "namespace": ref.Namespace},
		"spec":     map[string]any{},
	}}
}

// match finds the Trigger of a group, or decides to create it; false if neither
// is possible.
func (d *decision) match(g *group) bool {
	if g.handed {
		return true
	}
	first := g.subscriptions[0]
	wanted := kyma.TriggerName(first)
	var equal []*existing
	var taken *existing
	var wide []string
	for _, trigger := range d.triggers[g.namespace] {
		if trigger.name == wanted {
			taken = trigger
		}
		if trigger.selected == nil || trigger.deleting {
			continue
		}
		switch trigger.selected.Compare(g.Terms) {
		case route.Same:
			equal = append(equal, trigger)
		case route.Wider:
			wide = append(wide, trigger.name)
		}
	}
	if len(wide) > 0 {
		d.find("trigger-overlaps", migration.Warning, d.ref(first), fmt.Sprintf("Trigger %s brings the same events to the same address, and other events too: they will come twice", strings.Join(wide, ", ")),
			migration.Advice{
				Note:    "If the Trigger replaces the Subscription, delete the Trigger. Otherwise leave the Subscription out:",
				Command: migration.Kubectl(g.namespace, "label", d.kinds.subscription.Named(first.GetName()), kyma.OptOutLabel+"=true"),
			})
	}
	switch {
	case len(equal) > 0:
		// Of several, one that the Console knows, or else one that is ready.
		slices.SortStableFunc(equal, func(a, b *existing) int {
			rank := func(t *existing) int {
				switch {
				case t.name == wanted:
					return 0
				case t.ready:
					return 1
				default:
					return 2
				}
			}
			return cmp.Compare(rank(a), rank(b))
		})
		g.trigger = equal[0]
		if len(equal) > 1 {
			others := make([]string, len(equal)-1)
			for i, t := range equal[1:] {
				others[i] = t.name
			}
			d.find("trigger-duplicate", migration.Warning, g.ref(d.kinds).String(),
				fmt.Sprintf("the same is done by %s: each event comes %d times", strings.Join(others, ", "), len(equal)),
				migration.Advice{
					Note:    "Delete all but one of them.",
					Command: migration.Kubectl(g.namespace, append([]string{"delete", "triggers." + knative.Trigger.Group}, others...)...),
				})
		}
	case taken != nil && !taken.deleting && taken.made:
		// The Subscription was edited after an interrupted run had made its Trigger.
		g.wanted = wanted
	case taken != nil && taken.isOf(first) && !sharedWithOthers(taken, g, d.groups):
		g.wanted, g.former = wanted, taken
	case taken != nil:
		ref := d.kinds.trigger.Ref(taken.namespace, taken.name)
		problem := fmt.Sprintf("left as it is: %s has the name of its Trigger, and is for other events or another subscriber", ref)
		advice := migration.Advice{Note: "Change the Trigger into what the Subscription says, or delete one of the two.", Command: d.kinds.trigger.Describe(taken.namespace, taken.name)}
		if taken.deleting {
			problem, advice.Note = fmt.Sprintf("left as it is: %s, which has the name of its Trigger, is being deleted", ref), "Wait until it is gone, and run the job again."
		}
		for _, sub := range g.subscriptions {
			d.find("trigger-name-taken", d.untriggered(), d.ref(sub), problem, advice)
		}
		return false
	default:
		g.wanted = wanted
	}
	if len(g.subscriptions) > 1 {
		d.find("subscriptions-equal", migration.Info, d.ref(first), fmt.Sprintf("is equal to %s: all share Trigger %s, and each event comes once", names(g.subscriptions[1:]), g.ref(d.kinds).Name), migration.Advice{})
	}
	return true
}

// sharedWithOthers says whether a Trigger brings what another group asks for.
func sharedWithOthers(trigger *existing, of *group, groups []*group) bool {
	return slices.ContainsFunc(groups, func(g *group) bool {
		return g != of && g.namespace == of.namespace && trigger.selected.Compare(g.Terms) == route.Same
	})
}

// ref names the Trigger of the group, as it is or as it will be.
func (g *group) ref(k kinds) migration.Ref {
	if g.trigger != nil {
		return k.trigger.Ref(g.namespace, g.trigger.name)
	}
	return k.trigger.Ref(g.namespace, g.wanted)
}

// newTrigger is the Trigger of the group, if it has to be created.
func (g *group) newTrigger(k *migration.Kind) *unstructured.Unstructured {
	return route.NewTrigger(*k, g.subscriptions[0], g.Delivery, g.subscriptions[1:]...)
}

// builder returns newTrigger for later. It holds nothing but the group, which is released
// with its change.
func (g *group) builder(k *migration.Kind) func() *unstructured.Unstructured {
	return func() *unstructured.Unstructured { return g.newTrigger(k) }
}

func names(objects []*unstructured.Unstructured) string {
	all := make([]string, len(objects))
	for i, obj := range objects {
		all[i] = obj.GetName()
	}
	return strings.Join(all, ", ")
}

// candidates are the groups with Subscriptions that nothing keeps but what NATS
// Streaming may still hold. The others are deferred, each with the first thing
// that is missing.
func (d *decision) candidates() []*group {
	takes, switched := map[pair]reason{}, map[string]reason{}
	var all []*group
	for _, g := range d.groups {
		key := g.pair()
		why, known := takes[key]
		if !known {
			why = d.meshTakes(key, d.options)
			takes[key] = why
		}
		if why.holds() && d.options.legacyTraffic == respect {
			if why, known = switched[key.source]; !known {
				why = d.switched(key.source, d.options)
				switched[key.source] = why
			}
		}
		if why.holds() {
			all = append(all, g)
			continue
		}
		for _, sub := range g.subscriptions {
			d.find(why.id, migration.Deferred, d.ref(sub), "not deleted yet: "+why.problem, why.advice)
		}
	}
	return all
}

// contract makes the plan complete: it deletes the Subscriptions of candidates
// that nothing is in flight for. It is pure.
func (d *decision) contract(candidates []*group) *migration.Plan {
	goes := map[*group][]*unstructured.Unstructured{}
	for _, g := range candidates {
		for _, sub := range g.subscriptions {
			if d.drained(g, sub) {
				goes[g] = append(goes[g], sub)
			}
		}
	}
	d.control(goes)
	going := map[string]string{} // Knative Subscriptions of the Event Bus, and the unit that deletes each
	kind := d.kinds.trigger
	for _, g := range d.groups {
		changes := []migration.Change{}
		await, awaited := d.pending[g.namespace]
		ref := g.ref(d.kinds)
		if awaited {
			changes = append(changes, await)
		}
		switch {
		case g.former != nil:
			former := g.former.delivery()
			d.find("trigger-follows", migration.Info, ref.String(), fmt.Sprintf("was made for Subscription %s, which was edited since: it brought %s", g.subscriptions[0].GetName(), former), migration.Advice{})
			changes = append(changes, route.Follow(ref, g.former.uid, former, g.Delivery, g.subscriptions))
		case g.trigger == nil:
			creation := migration.Change{
				Verb: migration.Create, Ref: ref, Build: g.builder(&kind),
				Why: fmt.Sprintf("Subscription %s brings %s, and no Trigger does", g.subscriptions[0].GetName(), g.Delivery),
			}
			if d.preview {
				creation.Explain = func() *migration.Replacement { return g.explain(d.kinds) }
			}
			changes = append(changes, creation)
		case awaited || g.trigger.problem != "":
			changes = append(changes, migration.Change{Verb: migration.Await, Ref: ref, Why: g.trigger.problem})
		}
		waits := len(changes) > 0
		for _, sub := range goes[g] {
			id := d.ref(sub)
			if waits {
				id = ref.String()
			}
			if g.handed {
				id += ", taken over" // a unit beside that which began the deletion
			}
			steps := d.deletion(sub, id, going)
			if g.handed {
				steps = takeOver(d.kinds.subscription.RefTo(sub), sub, steps)
			}
			if waits {
				// The Trigger has to be ready first: one unit, in this order.
				changes = append(changes, steps...)
				continue
			}
			d.units.deletions = append(d.units.deletions, migration.Unit{ID: id, Independent: true, Changes: steps})
		}
		if waits {
			d.units.triggers = append(d.units.triggers, migration.Unit{ID: ref.String(), Independent: len(goes[g]) > 0, Changes: changes})
		}
	}
	d.channels(going)
	d.plan.Units = slices.Concat(d.units.controller, d.units.brokers, d.units.triggers, d.units.activations, d.units.deletions)
	d.plan.SortFindings()
	d.plan.Findings = append(d.first, d.plan.Findings...)
	return d.plan
}

// control decides who deletes what belongs to the Subscriptions that go: the
// subscription-controller if it runs and has the time, or this job. The two never do
// it side by side. Where nobody can, nothing goes.
func (d *decision) control(goes map[*group][]*unstructured.Unstructured) {
	c := eventbus.Controller{Deployment: d.controller}
	problem, advice := "", migration.Advice{}
	if d.bus != nil {
		c = d.bus.Controller
		problem, advice = d.bus.Incapable(d.kinds.subscription, d.unparsable)
	}
	optedOut := c.Deployment != nil && kyma.OptedOut(c.Deployment)
	if optedOut && c.Replicas() > 0 {
		d.orphans = nil // it may begin to use them at any moment
	}
	n := len(d.orphans)
	for _, subs := range goes {
		n += len(subs)
	}
	if window := d.options.observePublishers; len(goes) > 0 && d.left > 0 && window >= d.left && d.options.legacyTraffic == respect {
		d.find("timeout-too-short", migration.Warning, "", fmt.Sprintf("no Subscription can be deleted in this run: --observe-publishers takes %s, and --timeout leaves %s", round(window), round(d.left.Round(time.Second))),
			migration.Advice{Note: "Give a longer --timeout, or a shorter --observe-publishers."})
	}
	if c.Replicas() > 0 && problem == "" {
		d.leaveHanded(goes)
	}
	former := c.Former()
	if c.Replicas() > 0 {
		former = 0 // somebody restored them already
	}
	switch {
	case n == 0:
	case c.Replicas() == 0:
		d.byHand, d.awaitStop = true, len(c.Pods) > 0
	case problem != "" && optedOut:
		for _, g := range d.groups {
			for _, sub := range goes[g] {
				d.find("controller-not-running", migration.Deferred, d.ref(sub), fmt.Sprintf("not deleted yet, because %s, which cleans up after it, does not run: %s", eventbus.ControllerRef, problem),
					migration.Advice{Note: "Repair it, and run the job again. Or scale it to 0, and the job does its part. " + advice.Note, Command: advice.Command})
			}
		}
		clear(goes)
	case problem != "":
		d.find("controller-scaled-down", migration.Warning, eventbus.ControllerRef.String(),
			fmt.Sprintf("it does not run: %s; it is scaled to 0 while this job does its part, and to %d again afterwards", problem, c.Replicas()), advice)
		d.stop(c, "it does not run, and must not start in the middle of the deletions")
		former = c.Replicas()
	case len(d.orphans) > 0:
		d.find("controller-scaled-down", migration.Info, eventbus.ControllerRef.String(),
			fmt.Sprintf("nothing uses %s in its namespace any more; it is scaled to 0 while this job deletes them, and to %d again afterwards", migration.Count(len(d.orphans), "Channel"), c.Replicas()),
			migration.Advice{
				Note:    "To leave it running, label it. The Channels then stay until eventbus-purge deletes them.",
				Command: migration.Kubectl(eventbus.ControllerRef.Namespace, "label", "deployment/"+eventbus.ControllerRef.Name, kyma.OptOutLabel+"=true"),
			})
		d.stop(c, "it must not begin to use a Channel that is about to be deleted")
		former = c.Replicas()
	default:
		takes := time.Duration(float64(n) / eventbus.ControllerPace * float64(time.Second)).Round(time.Second)
		long := d.left > 0 && takes+d.options.observePublishers > d.left
		const pace = "it deletes about 1.5 Subscriptions a second: %d take %s, and --timeout leaves %s"
		switch {
		case long && optedOut:
			d.find("controller-slow", migration.Warning, eventbus.ControllerRef.String(), fmt.Sprintf(pace+"; it carries the label %s=true, so it is not scaled to 0", n, round(takes), round(d.left.Round(time.Second)), kyma.OptOutLabel),
				migration.Advice{Note: "What is finished stays when the time is over (exit code 124). Run the job again until nothing is left, or give a longer --timeout.", Command: runJob})
		case long:
			d.find("controller-scaled-down", migration.Info, eventbus.ControllerRef.String(), fmt.Sprintf(pace+"; it is scaled to 0 while this job does its part, and to %d again afterwards", n, round(takes), round(d.left.Round(time.Second)), c.Replicas()),
				migration.Advice{
					Note:    "To leave it running, give a longer --timeout. Or label it, run the job again while it ends with exit code 124, and remove the label afterwards.",
					Command: migration.Kubectl(eventbus.ControllerRef.Namespace, "label", "deployment/"+eventbus.ControllerRef.Name, kyma.OptOutLabel+"=true"),
				})
			d.stop(c, "it is too slow for this many deletions")
			former = c.Replicas()
		default:
			d.estimate(takes)
		}
	}
	if former > 0 && !optedOut {
		d.plan.Last = append(d.plan.Last, c.Restore(former))
	}
}

// stop scales the subscription-controller to 0 before this job does its part.
func (d *decision) stop(c eventbus.Controller, why string) {
	d.byHand, d.awaitStop = true, true
	d.units.controller = append(d.units.controller, c.ScaleDown(why))
}

// estimate says how long the deletions may take if every unit is one that stays
// when the time is over: no plan is refused for an estimate alone.
func (d *decision) estimate(takes time.Duration) {
	for _, g := range d.groups {
		if g.trigger == nil || d.pending[g.namespace].Verb != "" {
			return
		}
	}
	if len(d.units.brokers)+len(d.units.activations) == 0 {
		d.plan.Estimate = takes
	}
}

// drained says whether nothing is in flight for a Subscription, and reports it
// if something is.
func (d *decision) drained(g *group, sub *unstructured.Unstructured) bool {
	n, why := d.bus.Waiting(sub)
	to := redact.URL(k8sobject.Text(k8sobject.MapAt(sub.Object, "spec")["endpoint"]))
	if d.options.legacyTraffic == ignore {
		moved := d.switched(g.pair().source, d.options)
		switch {
		case !moved.holds():
			d.find("events-dropped", migration.Warning, d.ref(sub), fmt.Sprintf("deleted as asked for (--legacy-traffic=%s), although %s: from now on these events are dropped", ignore, moved.problem), migration.Advice{})
			fallthrough
		case why == "" && n > 0 || why != "":
			d.find("events-dropped", migration.Warning, d.ref(sub), fmt.Sprintf("deleted as asked for (--legacy-traffic=%s); it drops %s on the way to %s", ignore, messages(n, why), to), migration.Advice{})
		}
		return true
	}
	switch {
	case why != "":
		d.find("in-flight-unknown", migration.Deferred, d.ref(sub), "not deleted yet, because it is unknown what is in flight for it: "+why,
			mayReadNATS)
		return false
	case n > 0:
		d.find("events-in-flight", migration.Deferred, d.ref(sub), fmt.Sprintf("not deleted yet: %s still in flight to %s after %s", messages(n, ""), to, round(d.options.drainTimeout)),
			migration.Advice{Note: "Check whether the endpoint takes events. If it does not answer, its events stay. " + drop, Command: runJob})
		return false
	}
	return true
}

func messages(n uint64, unknown string) string {
	switch {
	case unknown != "":
		return "an unknown number of events (" + unknown + ")"
	default:
		return migration.Count(int(n), "event") //nolint:gosec // no server holds that many
	}
}

func round(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	return s
}

// deletion returns the changes that end a Subscription. If its controller does the
// rest, that is one; if not, the changes do what it would have done, and only that.
// They begin with a guard, or a wait and a guard. They are those of the named unit.
func (d *decision) deletion(sub *unstructured.Unstructured, unit string, going map[string]string) []migration.Change {
	var foreign []string
	for _, f := range sub.GetFinalizers() {
		if f != kyma.SubscriptionFinalizer {
			foreign = append(foreign, f)
		}
	}
	if len(foreign) > 0 {
		d.find("foreign-finalizers", migration.Warning, d.ref(sub), "is gone only once these finalizers are, which this job leaves to their owners: "+eventbus.Owners(foreign),
			migration.Advice{
				Note:    "If an owner does not exist any more, remove its finalizer.",
				Command: migration.Kubectl(sub.GetNamespace(), "edit", d.kinds.subscription.Named(sub.GetName())),
			})
	}
	why := "its Trigger takes over"
	if !d.byHand {
		change := d.delete(d.kinds.subscription, sub, why)
		change.Guard = true
		// The controller deletes a Channel only with its last subscriber, and takes
		// nobody for the last if two go at once.
		if channel := d.bus.ChannelOf(sub); channel != "" {
			change.Turn = "Channel " + channel
		}
		return []migration.Change{change}
	}
	var changes []migration.Change
	if link := d.bus.LegacyLink(sub); link != nil {
		going[link.GetName()] = unit
		changes = d.remove(changes, d.kinds.link, link, "no subscription-controller runs that would")
	}
	changes = d.remove(changes, d.kinds.subscription, sub, why)
	// One for all: the events of the Subscription are lost with the first of them.
	changes[0].Guard = true
	if d.awaitStop {
		changes = slices.Insert(changes, 0, awaitController())
	}
	return changes
}

// awaitController waits until the subscription-controller does not interfere.
func awaitController() migration.Change {
	return migration.Change{Verb: migration.Await, Ref: eventbus.ControllerRef, Why: "it must not do the same at the same time"}
}

// remove removes the finalizer of the controller that does not run, and deletes.
func (d *decision) remove(changes []migration.Change, k migration.Kind, obj *unstructured.Unstructured, why string) []migration.Change {
	if slices.Contains(obj.GetFinalizers(), kyma.SubscriptionFinalizer) {
		changes = append(changes, migration.Change{
			Verb: migration.Patch, Ref: k.RefTo(obj), Lists: migration.RemoveFinalizer(kyma.SubscriptionFinalizer), UID: obj.GetUID(),
			Why: "its finalizer belongs to the subscription-controller, which does not run",
		})
	}
	return append(changes, d.delete(k, obj, why))
}

func (d *decision) delete(k migration.Kind, obj *unstructured.Unstructured, why string) migration.Change {
	return migration.Change{
		Verb: migration.Delete, Ref: k.RefTo(obj), Object: obj, UID: obj.GetUID(), Timeout: d.options.deleteTimeout, Why: why,
	}
}

// channels deletes the Channels of the Event Bus whose last subscribers go, and those that have
// none any more: a run that was killed had deleted them.
func (d *decision) channels(going map[string]string) {
	if !d.byHand {
		return
	}
	for _, channel := range d.orphans {
		deletion := d.delete(d.kinds.channel, channel, "no Knative Subscription and no Kyma Subscription uses it")
		deletion.Guard = true
		changes := []migration.Change{deletion}
		if d.awaitStop {
			changes = slices.Insert(changes, 0, awaitController())
		}
		d.units.deletions = append(d.units.deletions, migration.Unit{ID: deletion.Ref.String(), Independent: true, Changes: changes})
	}
	stays, touched := map[string]bool{}, map[string][]string{}
	for name, link := range d.bus.Links {
		channel := eventbus.SubscribesTo(link)
		if unit, goes := going[name]; goes {
			touched[channel] = append(touched[channel], unit)
		} else {
			stays[channel] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(touched)) {
		channel := d.bus.Channels[name]
		if channel == nil || stays[name] {
			continue
		}
		ref := d.kinds.channel.RefTo(channel)
		slices.Sort(touched[name])
		deletion := d.delete(d.kinds.channel, channel, "nothing subscribes to it any more")
		deletion.Guard = true
		d.units.deletions = append(d.units.deletions, migration.Unit{ID: ref.String(), Independent: true, Follows: slices.Compact(touched[name]), Changes: []migration.Change{
			{Verb: migration.Await, Ref: ref, Why: "its last subscribers are about to go"},
			deletion,
		}})
	}
}
