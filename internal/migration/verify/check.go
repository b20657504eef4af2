package verify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/inventory"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// checker collects what it finds.
type checker struct {
	*inventory.Inventory
	entries map[string]Entry
	found   []Finding
}

// Check returns everything that is wrong with a cluster whose migration to 1.11 is
// supposed to be finished; nothing, if it is. What is opted out is left out. accounts
// and kept may be nil; now tells abandoned locks.
func Check(in *inventory.Inventory, accounts *AccountsLeft, kept *engine.State, now time.Time) []Finding {
	c := &checker{Inventory: in, entries: map[string]Entry{}}
	for _, e := range Catalog() {
		c.entries[e.ID] = e
	}
	c.kinds()
	c.controllers()
	for _, app := range in.Applications.Sorted() {
		if in.TakesPart(app) && app.GetDeletionTimestamp() == nil {
			c.application(app)
		}
	}
	c.activationsAndLinks()
	c.triggersOfAll()
	c.kymaSubscriptions()
	c.eventBus()
	c.serviceCatalog()
	c.accountsLeft(accounts)
	if kept != nil {
		c.state(kept, now)
	}
	slices.SortStableFunc(c.found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rank(a.Severity), rank(b.Severity)), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Object, b.Object))
	})
	return c.found
}

func rank(s migration.Severity) int {
	if s == migration.Error {
		return 0
	}
	return 1
}

// find adds a finding about one object; nil for the whole cluster.
func (c *checker) find(id string, u *unstructured.Unstructured, format string, args ...any) {
	c.findWith(id, u, fmt.Sprintf(format, args...), migration.Advice{})
}

// findWith is find with the advice for an entry of the catalog that has none.
func (c *checker) findWith(id string, u *unstructured.Unstructured, problem string, advice migration.Advice) {
	group, namespace, object := "", "", ""
	if u != nil {
		group, namespace = u.GroupVersionKind().Group, u.GetNamespace()
		object = migration.Ref{Resource: migration.Resource{Kind: u.GetKind()}, Namespace: namespace, Name: u.GetName()}.String()
	}
	c.findAt(id, group, namespace, object, problem, advice)
}

func (c *checker) findAt(id, group, namespace, object, problem string, advice migration.Advice) {
	e, ok := c.entries[id]
	if !ok {
		panic("no entry " + id + " in the catalog") // every test of that check fails here
	}
	if e.Note != "" {
		advice = e.Advice(object)
	}
	c.found = append(c.found, Finding{
		ID: id, Severity: e.Severity, Group: group, Namespace: namespace, Object: object, Problem: redact.URLs(problem), Page: e.Page(),
		Note: advice.Note, Command: advice.Command, Hint: advice.String(),
	})
}

func (c *checker) kinds() {
	if len(c.Applications) == 0 {
		return
	}
	for _, gk := range []schema.GroupKind{kyma.HTTPSource, kyma.Channel, kyma.ChannelSubscription, knative.Broker, knative.Trigger, kyma.Service} {
		if !c.Serves(gk) {
			c.find("kind-missing", nil, "the API server serves no kind %s (%s), which component %s installs", gk.Kind, gk.Group, kyma.Component(gk))
		}
	}
}

// controllers finds those that were scaled to 0. One that does not exist may have
// another name in this cluster.
func (c *checker) controllers() {
	for _, name := range [][2]string{
		{kyma.SystemNamespace, kyma.EventSourcesController}, {kyma.EventingNamespace, "eventing-controller"}, {kyma.IntegrationNamespace, "application-broker"},
	} {
		if d := c.Deployments.Get(name[0], name[1]); d != nil && inventory.Replicas(d) == 0 {
			c.find("controller-down", d, "has 0 replicas")
		}
	}
}

func (c *checker) application(app *unstructured.Unstructured) {
	name := app.GetName()
	if kyma.SkipsInstallation(app) {
		if why := c.EventServiceOf(name).Switched(); !why.OK() {
			c.find("skipped-event-service", app, "spec.skipInstallation is true, and its former event-service still uses the Event Bus: %s", why.Sentence())
		}
		return
	}
	if description, failed := kyma.InstallationFailed(app); failed {
		c.find("release-failed", app, "its Helm release has failed: %s", description)
	}
	if c.source(app) && len(validation.IsDNS1035Label(name)) > 0 {
		c.find("application-name", app, "its name is not valid for its adapter, a Knative Service")
	}
	c.eventService(app)
}

// source checks the HTTPSource of an Application and what belongs to it; true if
// anything is wrong.
func (c *checker) source(app *unstructured.Unstructured) (bad bool) {
	before := len(c.found)
	source := c.SourceOf(app.GetName())
	for _, why := range source.Defects() {
		if why.Defect == eventpath.HTTPSourceMissing {
			c.findWith(string(why.Defect), app, fmt.Sprintf("it has no %s", why.Object), adviceOf(why))
			continue
		}
		c.answer(why)
	}
	if source.HTTPSource != nil && source.Channel != nil {
		c.channel(source.HTTPSource, source.Channel)
	}
	return len(c.found) > before
}

// answer adds a finding of the event path about its object.
func (c *checker) answer(why eventpath.Answer) {
	c.findAt(string(why.Defect), why.Object.Kind.Group, why.Object.Namespace, why.Object.String(), why.Problem, adviceOf(why))
}

func adviceOf(why eventpath.Answer) migration.Advice {
	return migration.Advice{Note: why.Note, Command: why.Command}
}

// channel finds what is wrong with a Channel although events may go through it
// now.
func (c *checker) channel(source, channel *unstructured.Unstructured) {
	owner, controlled := kyma.ControllerOf(channel)
	switch {
	case !controlled || owner.GroupKind != kyma.HTTPSource || owner.Name != source.GetName():
		c.find("channel-foreign", channel, "it has the name of the Channel of an Application, but does not belong to its HTTPSource")
	case owner.UID == source.GetUID() && channel.GetLabels()[kyma.ApplicationNameLabel] != source.GetName():
		c.find("channel-unlabelled", channel, "lacks the label %s=%s", kyma.ApplicationNameLabel, source.GetName())
	}
}

func because(r k8sobject.Readiness) string {
	switch {
	case r.Status == "":
		return ": it has no status yet"
	case !r.Current:
		return ": its controller has not caught up with its last change"
	}
	if why := strings.Trim(r.Reason+": "+r.Message, ": "); why != "" {
		return ": " + why
	}
	return ""
}

func (c *checker) eventService(app *unstructured.Unstructured) {
	service := c.EventServiceOf(app.GetName())
	for _, why := range service.Defects() {
		c.answer(why)
	}
	if service.Deployment == nil {
		c.find("eventservice-missing", app, "its event-service, Deployment %s/%s, does not exist", kyma.IntegrationNamespace, kyma.EventServiceName(app.GetName()))
	}
}

func (c *checker) activationsAndLinks() {
	controller := c.Deployments.Get(kyma.SystemNamespace, kyma.SubscriptionController)
	controllerRuns := controller != nil && inventory.Replicas(controller) > 0
	linked := map[[2]string]bool{}
	inNamespace := map[string]bool{}
	for _, ea := range c.EventActivations.Sorted() {
		if !c.TakesPart(ea) {
			continue
		}
		held := slices.Contains(ea.GetFinalizers(), kyma.EventActivationFinalizer)
		if ea.GetDeletionTimestamp() != nil {
			c.find("activation-terminating", ea, "is being deleted, but still has the finalizers %q", ea.GetFinalizers())
			if ns := c.Namespaces.Get("", ea.GetNamespace()); ns != nil && ns.GetDeletionTimestamp() != nil && !inNamespace["terminating/"+ns.GetName()] {
				inNamespace["terminating/"+ns.GetName()] = true
				c.find("namespace-terminating", ns, "is being deleted, but still has EventActivations with finalizers")
			}
			continue
		}
		if held && !controllerRuns {
			c.find("activation-finalizer", ea, "has the finalizer %s, whose controller does not run", kyma.EventActivationFinalizer)
		}
		namespace, source := ea.GetNamespace(), inventory.Field(ea, "spec", "sourceId")
		if !inNamespace[namespace] {
			inNamespace[namespace] = true
			c.broker(namespace)
		}
		if key := [2]string{source, namespace}; !linked[key] {
			linked[key] = true
			c.link(ea, source, namespace)
		}
	}
}

func (c *checker) broker(namespace string) {
	broker := c.Brokers.Get(namespace, kyma.DefaultBroker)
	if broker == nil {
		ns := c.Namespaces.Get("", namespace)
		c.find("broker-missing", ns, "uses events of Applications, but has no Broker %q", kyma.DefaultBroker)
		return
	}
	if r := k8sobject.ReadinessOf(broker); !r.OK() {
		c.find("broker-not-ready", broker, "is not ready%s", because(r))
	}
}

func (c *checker) link(ea *unstructured.Unstructured, source, namespace string) {
	for _, why := range c.LinkOf(source, namespace).Defects() {
		if why.Object == (eventpath.Object{}) {
			c.findWith(string(why.Defect), ea, why.Problem, adviceOf(why))
			continue
		}
		c.answer(why)
	}
}

func (c *checker) triggersOfAll() {
	same := map[string][]string{}
	first := map[string]*unstructured.Unstructured{}
	for _, t := range c.Triggers.Sorted() {
		if !c.TakesPart(t) {
			continue
		}
		broker := c.Brokers.Get(t.GetNamespace(), inventory.BrokerOf(t))
		r := k8sobject.ReadinessOf(t)
		switch {
		case broker == nil:
			c.find("trigger-without-broker", t, "its Broker %q does not exist", inventory.BrokerOf(t))
		case r.OK():
		case r.Reason == "NotSubscribed" || strings.Contains(r.Message, "object is being deleted"):
			c.find("trigger-stuck", t, "is not subscribed%s", because(r))
		default:
			c.find("trigger-not-ready", t, "is not ready%s", because(r))
		}
		attributes, opaque := kyma.FilterOf(t)
		if source := attributes[knative.SourceAttribute]; source != "" {
			switch {
			case c.Applications.Get("", source) == nil:
				c.find("trigger-without-source", t, "waits for events of Application %q, which does not exist", source)
			case broker != nil && len(c.LinksOf(source, t.GetNamespace())) == 0:
				c.find("trigger-without-link", t, "waits for events of Application %s, but nothing brings them to the namespace", source)
			}
		}
		to := c.Address(kyma.SubscriberOf(t))
		if opaque || to == "" {
			continue // cannot be compared
		}
		key := t.GetNamespace() + " " + inventory.BrokerOf(t) + " " + to
		for _, a := range slices.Sorted(maps.Keys(attributes)) {
			if attributes[a] != "" {
				key += " " + a + "=" + attributes[a]
			}
		}
		if first[key] == nil {
			first[key] = t
		}
		same[key] = append(same[key], t.GetName())
	}
	for _, key := range slices.Sorted(maps.Keys(same)) {
		if len(same[key]) > 1 {
			c.find("trigger-twice", first[key], "%d Triggers bring the same events to the same subscriber: %s", len(same[key]), strings.Join(same[key], ", "))
		}
	}
}

func (c *checker) kymaSubscriptions() {
	for _, sub := range c.Subscriptions.Sorted() {
		if !c.TakesPart(sub) || !kyma.LegacySubscription(sub) {
			continue
		}
		source := inventory.Field(sub, "spec", "source_id")
		switch {
		case sub.GetDeletionTimestamp() != nil:
			c.find("subscription-terminating", sub, "is being deleted, but still has the finalizers %q", sub.GetFinalizers())
		case c.Applications.Get("", source) == nil:
			c.find("subscription-without-source", sub, "its source %q is no Application", source)
		default:
			c.left(sub, c.TriggerOf(c.DeliveryOfSubscription(sub)))
		}
	}
}

// left reports a Kyma Subscription that still exists, with the Trigger of the same
// source, event type, version and subscriber, nil if there is none. Whether events
// arrive cannot be seen here, so the finding says only what was read.
func (c *checker) left(sub, trigger *unstructured.Unstructured) {
	if trigger == nil {
		c.find("subscription-without-trigger", sub, "no Trigger has its source, event type, version and endpoint")
		return
	}
	name := trigger.GetNamespace() + "/" + trigger.GetName()
	broker := c.Brokers.Get(trigger.GetNamespace(), inventory.BrokerOf(trigger))
	ready := k8sobject.ReadinessOf(trigger)
	switch {
	case trigger.GetDeletionTimestamp() != nil:
		c.find("subscription-left", sub, "is not deleted yet; its Trigger %s is being deleted", name)
	case broker == nil:
		c.find("subscription-left", sub, "is not deleted yet; its Trigger %s has no Broker %q", name, inventory.BrokerOf(trigger))
	case !ready.OK():
		c.find("subscription-left", sub, "is not deleted yet; its Trigger %s is not ready%s", name, because(ready))
	case !k8sobject.ReadinessOf(broker).OK():
		c.find("subscription-left", sub, "is not deleted yet; its Trigger %s is ready, but the Broker %q is not", name, inventory.BrokerOf(trigger))
	default:
		c.find("subscription-left", sub, "is not deleted yet, although its Trigger %s and the Broker are ready", name)
	}
}

func (c *checker) eventBus() {
	for _, name := range []string{kyma.EventPublishService, kyma.SubscriptionController} {
		d := c.Deployments.Get(kyma.SystemNamespace, name)
		up := d != nil && inventory.Replicas(d) > 0
		if up {
			c.find("eventbus-up", d, "has %s", migration.Count(int(inventory.Replicas(d)), "replica"))
		}
		for _, pod := range c.Pods.Sorted() {
			if !up && pod.GetNamespace() == kyma.SystemNamespace && eventpath.OfEventBus(pod, name) && !kyma.Ended(pod) {
				c.find("eventbus-pods", pod, "is a pod of the Event Bus, although the Deployment has 0 replicas")
			}
		}
		for _, hpa := range c.Autoscalers.Sorted() {
			if inventory.Field(hpa, "spec", "scaleTargetRef", "kind") == "Deployment" && inventory.Field(hpa, "spec", "scaleTargetRef", "name") == name {
				c.find("eventbus-autoscaler", hpa, "scales Deployment %s/%s", kyma.SystemNamespace, name)
			}
		}
	}
	leaked := c.leaked()
	for _, kind := range []inventory.Objects{c.Channels, c.ChannelSubscriptions} {
		for _, u := range kind.Sorted() {
			switch {
			case u.GetNamespace() != kyma.SystemNamespace || u.GetLabels()[kyma.EventSourceLabel] == "":
			case leaked[u]:
				c.find("eventbus-leaked", u, "no Knative Subscription and no Kyma Subscription uses it: the subscription-controller or an interrupted run left it; trigger-sync deletes it")
			case len(c.Subscriptions) == 0:
				c.find("eventbus-leftovers", u, "the Event Bus created it for a Kyma Subscription that is gone")
			}
		}
	}
	for _, job := range c.Jobs.Sorted() {
		if kyma.MeshMigrationRuns(job) {
			c.find("stock-migration", job, "Kyma's own migration is running")
		}
	}
}

// leaked are the Channels of the Event Bus that the subscription-controller did not
// delete with their last subscriber: while it deletes several at once, it regards
// none as the last.
func (c *checker) leaked() map[*unstructured.Unstructured]bool {
	used := map[string]bool{}
	for _, link := range c.ChannelSubscriptions {
		if link.GetNamespace() == kyma.SystemNamespace {
			used[inventory.Field(link, "spec", "channel", "name")] = true
		}
	}
	// One that is new may have no Knative Subscription yet.
	served := map[[3]string]bool{}
	for _, sub := range c.Subscriptions {
		served[[3]string{inventory.Field(sub, "spec", "source_id"), inventory.Field(sub, "spec", "event_type"), inventory.Field(sub, "spec", "event_type_version")}] = true
	}
	leaked := map[*unstructured.Unstructured]bool{}
	for _, channel := range c.Channels {
		labels := channel.GetLabels()
		of := [3]string{labels[kyma.EventSourceLabel], labels[kyma.EventTypeLabel], labels[kyma.EventTypeVersionLabel]}
		leaked[channel] = channel.GetNamespace() == kyma.SystemNamespace && channel.GetDeletionTimestamp() == nil && of[0] != "" &&
			!used[channel.GetName()] && !served[of] && !kyma.OptedOut(channel)
	}
	return leaked
}

func (c *checker) serviceCatalog() {
	for _, u := range c.ServiceInstances.Sorted() {
		if !c.TakesPart(u) {
			continue
		}
		failed, ready := k8sobject.ConditionOf(u, "Failed"), k8sobject.ConditionOf(u, "Ready")
		switch {
		case u.GetDeletionTimestamp() != nil && inventory.Field(u, "status", "deprovisionStatus") == "Failed":
			c.find("instance-stuck", u, "is being deleted, but its deprovisioning has failed permanently")
		case failed.True():
			c.find("instance-failed", u, "has failed permanently: %s", failed)
		case !ready.True():
			c.find("instance-not-ready", u, "is not ready: %s", cmp.Or(ready.String(), "it has no status yet"))
		}
	}
	for _, u := range c.ServiceBindings.Sorted() {
		if ready := k8sobject.ConditionOf(u, "Ready"); c.TakesPart(u) && !ready.True() {
			c.find("binding-not-ready", u, "is not ready: %s", cmp.Or(ready.String(), "it has no status yet"))
		}
	}
	for _, u := range c.ServiceBindingUsages.Sorted() {
		binding := inventory.Field(u, "spec", "serviceBindingRef", "name")
		if c.TakesPart(u) && c.ServiceBindings.Get(u.GetNamespace(), binding) == nil {
			c.find("usage-without-binding", u, "its ServiceBinding %s/%s does not exist", u.GetNamespace(), binding)
		}
	}
}

func (c *checker) state(kept *engine.State, now time.Time) {
	for _, j := range kept.Journals {
		switch {
		case j.Open && kept.Lock.Live(now):
			c.find("run-running", nil, "%s of %s is open (%s), and seems to be running: %s", j.What(), j.Job, j.Phase, kept.Lock)
		case j.Open:
			c.find("run-open", nil, "%s of %s was interrupted, and is open (%s)", j.What(), j.Job, j.Phase)
		}
	}
	for _, job := range slices.Sorted(maps.Keys(kept.Reports)) {
		r := kept.Reports[job]
		switch {
		case r.Result == migration.DeferredResult:
			c.find("run-deferred", nil, "the last run of %s deferred work: %s", job, r.Message)
		case r.ExitCode() != migration.ExitOK:
			c.find("run-failed", nil, "the last run of %s ended with %s: %s", job, r.Result, r.Message)
		}
	}
	if l := kept.Lock; l != nil && now.After(l.Renewed.Add(l.Duration).Add(time.Minute)) {
		c.find("lock-abandoned", nil, "%q holds the lock, but has not renewed it since %s", l.Holder, l.Renewed.UTC().Format(time.RFC3339))
	}
}
