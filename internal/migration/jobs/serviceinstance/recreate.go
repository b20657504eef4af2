package serviceinstance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// skew is how far the clocks of the API server and of a node may be apart: an
// instance created around the start of application-broker counts as older.
const skew = 5 * time.Second

// recreate deletes instances and recreates them, one after the other.
func (d *decision) recreate() {
	var wanted []*candidate
	for _, c := range d.recreations {
		if why := d.irretrievable(c); why != nil {
			d.report(c.obj, why)
			continue
		}
		wanted = append(wanted, c)
	}
	// Those that need no restart first: after one, all others need one, too.
	slices.SortStableFunc(wanted, func(a, b *candidate) int { return cmp.Compare(d.restarts(a), d.restarts(b)) })
	var takes time.Duration
	restarts := 0
	for _, c := range wanted {
		if restarts > 0 || d.restarts(c) > 0 {
			restarts++
			takes += restartTakes
		}
		takes += instanceTakes + objectTakes*time.Duration(d.announce(c))
		d.plan.Units = append(d.plan.Units, d.recreation1(c))
	}
	if len(wanted) == 0 {
		return
	}
	d.plan.Serial, d.plan.Estimate = true, takes
	d.tell("recreation-takes", "", fmt.Sprintf("the recreation of %s, one after the other, takes about %s, with %s of application-broker; --timeout has to be longer",
		migration.Count(len(wanted), "ServiceInstance"), takes, migration.Count(restarts, "restart")), "")
}

// restarts is 1 if application-broker will have to be restarted between deletion
// and creation, for what it remembers of the former instance: it would refuse the
// new one permanently (docs/migration/domain.md §4.3).
//
//   - If it began after the instance was provisioned, it has forgotten the
//     operation, but not the instance, and answers its deletion with "gone".
//   - It does so, too, if it has deprovisioned that external ID before.
//   - It remembers an instance that failed, of whose deletion it is not told.
//
// The second cannot be seen beforehand, but afterwards: the Knative Subscription
// is still there. Where there was none, it is unknown.
func (s *snapshot) restarts(c *candidate) int {
	if !c.state.Provisioned || len(s.links[c.pair()]) == 0 || !s.recreation.brokerStart.Before(since(c)) {
		return 1
	}
	return 0
}

// since is the time after which a process that has begun may not know by which
// operation the instance was provisioned.
func since(c *candidate) time.Time { return c.obj.GetCreationTimestamp().Add(-skew) }

// announce says what a recreation changes, and returns the number of bindings and
// usages.
func (d *decision) announce(c *candidate) int {
	bindings, usages := d.dependents(c)
	problem := "is deleted and created again: "
	switch {
	case c.broken != "":
		problem += c.broken
	case len(c.lacks) > 0:
		problem += "it lacks " + strings.Join(c.lacks, ", and ")
	default:
		problem += fmt.Sprintf("--strategy=%s", d.options.strategy)
	}
	var with []string
	for _, binding := range bindings {
		with = append(with, fmt.Sprintf("ServiceBinding %s (Secret %s)", binding.GetName(), secretOf(binding)))
	}
	for _, usage := range usages {
		with = append(with, fmt.Sprintf("ServiceBindingUsage %s, of %s %s", usage.GetName(), specOf(usage, "usedBy", "kind"), specOf(usage, "usedBy", "name")))
	}
	note := ""
	if len(with) > 0 {
		problem += "; and so are " + strings.Join(with, "; ")
	}
	if len(usages) > 0 {
		note = "Meanwhile the workloads are without the credentials, and their pods are replaced."
	}
	d.tell("instance-recreated", d.kinds.instance.RefTo(c.obj).String(), problem, note)
	return len(bindings) + len(usages)
}

// secretOf is the Secret of a ServiceBinding.
func secretOf(binding *unstructured.Unstructured) string {
	return cmp.Or(specOf(binding, "secretName"), binding.GetName())
}

// dependents are the bindings of an instance and the usages of those.
func (s *snapshot) dependents(c *candidate) (bindings, usages []*unstructured.Unstructured) {
	bindings = s.recreation.bindings[idOf(c.obj)]
	for _, binding := range bindings {
		usages = append(usages, s.recreation.usages[idOf(binding)]...)
	}
	return bindings, usages
}

// irretrievable says why an instance that is deleted could not come back: then
// it is not deleted.
func (d *decision) irretrievable(c *candidate) *problem {
	namespace := c.namespace()
	_, noPlan := d.planOf(c.obj, c.class)
	serviceBroker := d.serviceBrokers[id{namespace, kyma.ApplicationBroker}]
	mapping := d.mappings[id{namespace, c.application}]
	enable := fmt.Sprintf("Enable the service in ApplicationMapping %s/%s.", namespace, c.application)
	never := func(what, instead string) *problem {
		return &problem{"instance-not-recreatable", migration.Error, "could not be provisioned again: " + what, leaveOut(c.obj, instead)}
	}
	later := func(what string, advice migration.Advice) *problem {
		return &problem{"instance-waits", migration.Deferred, "left for later: " + what, advice}
	}
	switch {
	case removed(c.class):
		return never(fmt.Sprintf("its ServiceClass %s is removed from the catalog", c.class.GetName()), enable)
	case noPlan != nil:
		return noPlan
	case removed(c.plan):
		return never(fmt.Sprintf("its ServicePlan %s is removed from the catalog", c.plan.GetName()), enable)
	case serviceBroker == nil || serviceBroker.GetDeletionTimestamp() != nil:
		return never(fmt.Sprintf("there is no ServiceBroker %s/%s", namespace, kyma.ApplicationBroker), enable)
	case mapping == nil || mapping.GetDeletionTimestamp() != nil:
		return never(fmt.Sprintf("there is no ApplicationMapping %s/%s", namespace, c.application), enable)
	case !kyma.Enables(mapping, c.service.ID):
		return never(fmt.Sprintf("ApplicationMapping %s/%s does not enable its service %s", namespace, c.application, c.service.ID), enable)
	case c.state.Undeletable:
		return never("its deprovisioning has failed permanently, and its deletion would never end", "Its conditions say why.")
	case !c.packages && parameters(c.obj):
		return never("it has parameters, which application-broker does not accept", "Remove spec.parameters and spec.parametersFrom.")
	}
	if why := d.unnameable(c); why != nil {
		return why
	}
	if others := d.others(c); len(others) > 0 && !c.packages {
		return never(fmt.Sprintf("ServiceInstance %s provides the same service, and application-broker accepts one only", others[0].GetName()), "Delete one of the two.")
	}
	if activation := d.activations[c.activation()]; activation != nil {
		in := d.kinds.activation.RefTo(activation).String()
		owned := slices.ContainsFunc(activation.GetOwnerReferences(), ownedBy(c.obj.GetUID()))
		switch {
		case specOf(activation, "sourceId") != c.application && !owned:
			return &problem{
				"activation-foreign", migration.Error, fmt.Sprintf("%s; it does not belong to the instance, and would stay as it is", c.broken),
				migration.Advice{
					Note:    fmt.Sprintf("Find out what made %s. If nobody needs it, delete it and run the job again.", in),
					Command: d.kinds.activation.Describe(namespace, activation.GetName()),
				},
			}
		case activation.GetDeletionTimestamp() != nil:
			return later(fmt.Sprintf("its %s is being deleted", in), again("Wait until it is gone, and run the job again."))
		case slices.Contains(activation.GetFinalizers(), kyma.EventActivationFinalizer) && !d.recreation.controlled:
			return later(fmt.Sprintf("%s could not go: nothing would remove its finalizer", in),
				migration.Advice{
					Note:    fmt.Sprintf("Scale Deployment %s/%s to 1. Or let eventbus-scaledown remove it.", kyma.SystemNamespace, kyma.SubscriptionController),
					Command: "eventmesh-migrate run --job=eventbus-scaledown",
				})
		}
	}
	if why := d.duplicate(c); why != nil {
		return why
	}
	if why := d.unusable(c.application); why != nil {
		return why
	}
	if d.applicationBroker == nil || !d.recreation.brokerReady {
		return later(fmt.Sprintf("no pod of Deployment %s/%s is ready", d.options.integrationNamespace, kyma.ApplicationBroker),
			migration.Advice{Note: "Its conditions say why.", Command: migration.Kubectl(d.options.integrationNamespace, "describe", "deployment", kyma.ApplicationBroker)})
	}
	return d.unbindable(c)
}

// unbindable says why the bindings and usages of an instance could not come back,
// or not be removed now.
func (d *decision) unbindable(c *candidate) *problem {
	bindings, usages := d.dependents(c)
	for _, obj := range append([]*unstructured.Unstructured{c.obj}, bindings...) {
		for _, source := range kyma.ParameterSources(obj) {
			key := id{obj.GetNamespace(), source.Secret}
			what := fmt.Sprintf("the parameters of %s %s come from", obj.GetKind(), obj.GetName())
			keys := d.recreation.secrets[key]
			switch {
			case d.recreation.unseen[key]:
				return &problem{
					"parameters-not-restorable", migration.Error, fmt.Sprintf("may not come back: %s the Secret %s, and this account may not check whether that exists", what, source.Secret),
					migration.Advice{
						Note:    "To leave the ServiceInstance out, label it " + kyma.OptOutLabel + "=true. Or run the job as somebody who may read the Secret. Or create this Role, and bind it to the account of the job:",
						Command: migration.Kubectl(obj.GetNamespace(), "create", "role", "eventmesh-migration", "--verb=get", "--resource=secrets", "--resource-name="+source.Secret),
					},
				}
			case keys == nil:
				return &problem{
					"parameters-not-restorable", migration.Error, fmt.Sprintf("could not come back: the Secret %s, which %s, does not exist", source.Secret, what),
					leaveOut(c.obj, "Create that Secret again."),
				}
			case !keys[source.Key]:
				return &problem{
					"parameters-not-restorable", migration.Error, fmt.Sprintf("could not come back: the Secret %s, which %s, has no key %q", source.Secret, what, source.Key),
					leaveOut(c.obj, fmt.Sprintf("Add that key to Secret %s/%s.", obj.GetNamespace(), source.Secret)),
				}
			}
		}
	}
	for _, obj := range append(slices.Clone(bindings), usages...) {
		var busy string
		switch {
		case obj.GetDeletionTimestamp() != nil:
			busy = "is being deleted"
		case obj.GetKind() == kyma.ServiceBinding.Kind && kyma.InstanceOf(obj).Operation != "":
			busy = "is being bound or unbound"
		default:
			continue
		}
		return &problem{"instance-waits", migration.Deferred, fmt.Sprintf("left for later: its %s %s %s", obj.GetKind(), obj.GetName(), busy), again("Wait until that has ended, and run the job again.")}
	}
	return nil
}

func removed(obj *unstructured.Unstructured) bool {
	gone, _ := k8sobject.MapAt(obj.Object, "status")["removedFromBrokerCatalog"].(bool)
	return gone || obj.GetDeletionTimestamp() != nil
}

func parameters(obj *unstructured.Unstructured) bool {
	spec := k8sobject.MapAt(obj.Object, "spec")
	from, _ := spec["parametersFrom"].([]any)
	return len(k8sobject.MapAt(spec, "parameters")) > 0 || len(from) > 0
}

// others are instances, of the same service, that are not failed.
func (d *decision) others(c *candidate) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(d.provided[c.activation()]), func(obj *unstructured.Unstructured) bool { return obj.GetUID() == c.obj.GetUID() })
}

// recreation1 is the unit that deletes one instance with what depends on it, and
// recreates all of it. Usages and bindings are deleted before the instance, so
// that nothing is left to a cascade, and nothing waits for anything else: it is
// the same with and without Service Catalog's CascadingDeletion.
func (d *decision) recreation1(c *candidate) migration.Unit {
	ref := d.kinds.instance.RefTo(c.obj)
	bindings, usages := d.dependents(c)
	u := migration.Unit{ID: ref.String(), Commit: true}
	add := func(changes ...migration.Change) { u.Changes = append(u.Changes, changes...) }
	quiet := migration.Change{
		Verb: migration.Await, Ref: ref, Expect: expectation{Kind: expectQuiet, Bindings: idNames(bindings), Usages: idNames(usages)}.encode(),
		Why: "nothing else may use the instance, and application-broker is to be idle",
	}
	add(quiet)
	for _, usage := range usages {
		add(d.delete(d.kinds.usage, usage, "it belongs to a ServiceBinding of "+ref.String()))
	}
	for _, binding := range bindings {
		add(d.delete(d.kinds.binding, binding, "it is of "+ref.String()))
	}
	if foreign := foreignFinalizers(c.obj); len(foreign) > 0 {
		// They would keep the instance, which is not meant to go permanently.
		add(migration.Change{
			Verb: migration.Patch, Ref: ref, UID: c.obj.GetUID(),
			Lists: []migration.ListEdit{{Path: []string{"metadata", "finalizers"}, Remove: entries(foreign)}},
			Why:   "the owners of other finalizers are not to take it for gone; it gets them again",
		})
	}
	if len(bindings) > 0 {
		add(quiet)
	}
	why := c.broken
	if why == "" {
		why = "it lacks " + strings.Join(c.lacks, ", and ")
		if len(c.lacks) == 0 {
			why = "--strategy=" + d.options.strategy
		}
	}
	add(d.delete(d.kinds.instance, c.obj, why))
	activation := d.kinds.activation.Ref(c.namespace(), c.service.ID)
	add(migration.Change{
		Verb: migration.Await, Ref: activation, Expect: expectation{Kind: expectGone, UID: c.obj.GetUID(), Application: c.application}.encode(),
		Why: "application-broker would take what is about to go for what is there",
	})
	restart := migration.Change{
		Verb: migration.Restart, Ref: migration.Ref{Resource: deployments, Namespace: d.options.integrationNamespace, Name: kyma.ApplicationBroker},
		Timeout: d.options.restartTimeout, Late: &migration.DeferredRestart{Unless: &ref},
		Why: "unless it has deprovisioned the instance properly: else it would refuse the new one permanently, in the place of the former one",
	}
	if c.state.Provisioned && len(d.links[c.pair()]) > 0 {
		restart.Late.After = since(c)
		restart.Late.Leftovers = &migration.Leftovers{
			Ref:           d.kinds.link.Ref(d.options.integrationNamespace, ""),
			LabelSelector: labels.Set{kyma.ApplicationNameLabel: c.application, kyma.BrokerNamespaceLabel: c.namespace()}.String(),
		}
	}
	add(restart, d.createAgain(d.kinds.instance, c.obj), migration.Change{
		Verb: migration.Await, Ref: ref, Expect: expectation{Kind: expectProvisioned, Activation: c.service.ID, Application: c.application}.encode(),
		Why: "it is provisioned, and with it the mesh objects",
	})
	for _, binding := range bindings {
		add(d.createAgain(d.kinds.binding, binding))
		if k8sobject.ConditionOf(binding, "Ready").True() {
			add(migration.Change{Verb: migration.Await, Ref: d.kinds.binding.RefTo(binding), Why: "its Secret is there again"})
		}
	}
	for _, usage := range usages {
		add(d.createAgain(d.kinds.usage, usage))
		if k8sobject.ConditionOf(usage, "Ready").True() {
			add(migration.Change{Verb: migration.Await, Ref: d.kinds.usage.RefTo(usage), Why: "its workload has the credentials again"})
		}
	}
	// All behind it, up to the label, is done if this is done, or not at all.
	first := slices.IndexFunc(u.Changes, func(ch migration.Change) bool { return ch.Writes() })
	u.Changes[first].Guard = true
	if access := d.namespaces[c.namespace()].access; access != "" {
		// The last one, since it is the one thing that is left out if somebody else has
		// seen to it.
		add(d.restoreAccess(c, access))
	}
	return u
}

// delete carries the object along, which is its pre-image: what is deleted is
// what was decided about, or nothing is.
func (b *builder) delete(k migration.Kind, obj *unstructured.Unstructured, why string) migration.Change {
	return migration.Change{
		Verb: migration.Delete, Ref: k.RefTo(obj), Object: obj, UID: obj.GetUID(), Timeout: b.options.deleteTimeout, Why: why,
	}
}

// createAgain recreates an object from its pre-image. It may hold parameters, which
// nobody else is to see.
func (b *builder) createAgain(k migration.Kind, obj *unstructured.Unstructured) migration.Change {
	return migration.Change{
		Verb: migration.Recreate, Ref: k.RefTo(obj), Object: recreatable(obj), Hidden: true,
		Why: "as it was: the same external ID, parameters, labels, annotations, owners and finalizers",
	}
}

// recreatable is what is created to restore an object of Service Catalog: without
// what the API server sets, and what the webhooks of Service Catalog set, and
// refuse (docs/migration/domain.md §4.6).
func recreatable(obj *unstructured.Unstructured) *unstructured.Unstructured {
	again := k8sutil.Restorable(obj)
	for _, field := range []string{"serviceClassRef", "servicePlanRef", "clusterServiceClassRef", "clusterServicePlanRef", "userInfo"} {
		unstructured.RemoveNestedField(again.Object, "spec", field)
	}
	return again
}

func foreignFinalizers(obj *unstructured.Unstructured) []string {
	return slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool { return f == kyma.ServiceCatalogFinalizer })
}

// entries are strings as entries of a list.
func entries(all []string) []any {
	list := make([]any, len(all))
	for i, s := range all {
		list[i] = s
	}
	return list
}

// restoreAccess is the label of a namespace that application-broker removes when an
// instance is deleted, and sets again with its resync only, up to half an hour later.
func (b *builder) restoreAccess(c *candidate, access string) migration.Change {
	in := b.namespaces[c.namespace()]
	return migration.Change{
		Verb: migration.Patch, Ref: migration.Ref{Resource: namespaces, Name: c.namespace()}, UID: in.basis.GetUID(), Guard: true,
		// It is decided on the label's absence, which comes with the deletion.
		Object: in.basis,
		Patch:  mustJSON(map[string]any{"metadata": map[string]any{"labels": map[string]any{kyma.AccessLabel: access}}}),
		Why:    "application-broker removes the label " + kyma.AccessLabel + " with the instance, and sets it again up to half an hour later",
	}
}

func idNames(all []*unstructured.Unstructured) []string {
	list := make([]string, 0, len(all))
	for _, obj := range all {
		list = append(list, obj.GetName())
	}
	return list
}
