package serviceinstance

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// repair makes what instances lack, as application-broker would have made it, so
// that it finds it and uses it. What several lack is made once.
func (d *decision) repair() {
	made := map[string]bool{}
	add := func(changes ...migration.Change) {
		unit := changes[0].Ref.String()
		if !made[unit] {
			made[unit] = true
			d.plan.Units = append(d.plan.Units, migration.Unit{ID: unit, Changes: changes})
		}
	}
	for _, c := range d.repairs {
		if why := d.unrepairable(c); why != nil {
			d.report(c.obj, why)
			continue
		}
		d.tell("instance-repaired", d.kinds.instance.RefTo(c.obj).String(), "repaired in place: it lacks "+strings.Join(c.lacks, ", and "), "")
		why := d.kinds.instance.RefTo(c.obj).String() + " lacks it"
		if len(d.links[c.pair()]) == 0 {
			add(d.newLink(c, why))
		}
		switch activation := d.activations[c.activation()]; {
		case activation == nil:
			add(d.newActivation(c, why))
		case d.foreignOwner(activation, c) != "":
			add(d.adopt(activation, c))
		}
		in := d.namespaces[c.namespace()]
		if in.injection == "" {
			add(d.label(c.namespace(), in, why))
		}
		if d.brokers[c.namespace()] == nil && (in.injection != "" || !d.kinds.injects()) {
			add(d.newBroker(c.namespace(), why))
		}
		if d.lacksPolicy(c) {
			add(d.newPolicy(c.namespace(), why))
		}
	}
}

// unrepairable says why what is missing cannot be made now.
func (d *decision) unrepairable(c *candidate) *problem {
	if why := d.duplicate(c); why != nil {
		return why
	}
	if activation := d.activations[c.activation()]; activation == nil {
		if why := d.unnameable(c); why != nil {
			return why
		}
	} else if activation.GetDeletionTimestamp() != nil {
		return &problem{
			"instance-waits", migration.Deferred, fmt.Sprintf("left for later: its %s is being deleted", d.kinds.activation.RefTo(activation)),
			again("The subscription-controller removes its finalizer. Wait until it is gone, and run the job again."),
		}
	}
	for _, link := range d.links[c.pair()] {
		if link.GetDeletionTimestamp() != nil {
			return &problem{"instance-waits", migration.Deferred, fmt.Sprintf("left for later: Knative %s is being deleted", d.kinds.link.RefTo(link)), again("Wait until it is gone, and run the job again.")}
		}
	}
	if injection := d.namespaces[c.namespace()].injection; d.brokers[c.namespace()] == nil && injection != "" && injection != "enabled" {
		return &problem{
			"namespace-without-broker", migration.Deferred, fmt.Sprintf("left for later: its namespace has no Broker, and its label %s=%s says that it is to have none", kyma.InjectionLabel, injection),
			migration.Advice{
				Note:    "To leave the ServiceInstance out, label it " + kyma.OptOutLabel + "=true. To get a Broker:",
				Command: migration.Kubectl("", "label", "namespace", c.namespace(), kyma.InjectionLabel+"=enabled", "--overwrite"),
			},
		}
	}
	if len(d.links[c.pair()]) == 0 {
		return d.unusable(c.application)
	}
	return nil
}

func (b *builder) newLink(c *candidate, why string) migration.Change {
	k := b.kinds.link
	ref := k.Ref(b.options.integrationNamespace, kyma.LinkName(c.application, c.namespace()))
	link := object(k, ref, map[string]any{
		"channel": map[string]any{
			"apiVersion": b.kinds.channel.Resource.GroupVersion().String(), "kind": kyma.Channel.Kind, "name": b.channels[c.application][0].GetName(),
		},
		"subscriber": map[string]any{"uri": kyma.LinkURI(c.namespace())},
	})
	link.SetLabels(map[string]string{kyma.ApplicationNameLabel: c.application, kyma.BrokerNamespaceLabel: c.namespace()})
	return migration.Change{Verb: migration.Create, Ref: ref, Object: link, Why: why}
}

func (b *builder) newActivation(c *candidate, why string) migration.Change {
	ref := b.kinds.activation.Ref(c.namespace(), c.service.ID)
	activation := object(b.kinds.activation, ref, map[string]any{"displayName": c.service.DisplayName, "sourceId": c.application})
	if owner := b.ownerOf(c); owner != nil {
		activation.SetOwnerReferences([]metav1.OwnerReference{*owner})
	}
	return migration.Change{Verb: migration.Create, Ref: ref, Object: activation, Why: why}
}

// ownerOf is the owner of an EventActivation: of 1.10 the instance, so that the
// garbage collector removes it with that; 1.11 removes it itself. The owner does
// no harm there, and without it 1.10 would leave it behind: it is left out only
// if the version is known.
func (b *builder) ownerOf(c *candidate) *metav1.OwnerReference {
	if kyma.ApplicationBrokerVersion(b.applicationBroker) == "1.11" {
		return nil
	}
	return &metav1.OwnerReference{
		APIVersion: b.kinds.instance.Resource.GroupVersion().String(), Kind: kyma.ServiceInstance.Kind, Name: c.obj.GetName(), UID: c.obj.GetUID(),
	}
}

// adopt gives an EventActivation the owner that application-broker of 1.10 gives
// one that it finds, in the place of the instances that it belongs to. Owners of
// other kinds stay.
func (d *decision) adopt(activation *unstructured.Unstructured, c *candidate) migration.Change {
	edit := migration.ListEdit{Path: []string{"metadata", "ownerReferences"}}
	if owner := d.ownerOf(c); owner != nil {
		edit.Add = []any{map[string]any{"apiVersion": owner.APIVersion, "kind": owner.Kind, "name": owner.Name, "uid": string(owner.UID)}}
	}
	all, _ := k8sobject.MapAt(activation.Object, "metadata")["ownerReferences"].([]any)
	for _, o := range all {
		if owner, ok := o.(map[string]any); ok && k8sobject.Text(owner["kind"]) == kyma.ServiceInstance.Kind {
			edit.Remove = append(edit.Remove, owner)
		}
	}
	return migration.Change{
		Verb: migration.Patch, Ref: d.kinds.activation.RefTo(activation), UID: activation.GetUID(), Lists: []migration.ListEdit{edit},
		Why: fmt.Sprintf("it belongs to %s, and would go with that", d.foreignOwner(activation, c)),
	}
}

// label is what makes Knative create a Broker, where it does.
func (b *builder) label(name string, in namespace, why string) migration.Change {
	ch := migration.Change{
		Verb: migration.Patch, Ref: migration.Ref{Resource: namespaces, Name: name}, UID: in.basis.GetUID(), Object: in.basis,
		Patch: mustJSON(map[string]any{"metadata": map[string]any{"labels": map[string]any{kyma.InjectionLabel: "enabled"}}}), Why: why,
	}
	if !b.kinds.injects() {
		return ch
	}
	ch.SideEffectLabels, ch.SideEffects = kyma.InjectedLabels(), []migration.Ref{b.kinds.broker.Ref(name, kyma.DefaultBroker)}
	for _, account := range kyma.BrokerAccounts() {
		ch.SideEffects = append(ch.SideEffects,
			migration.Ref{Resource: roleBindings, Namespace: name, Name: account},
			migration.Ref{Resource: roleBindings, Namespace: kyma.EventingNamespace, Name: kyma.BrokerConfigBinding(name, account)},
			migration.Ref{Resource: serviceAccounts, Namespace: name, Name: account})
	}
	return ch
}

// newBroker makes a Broker where no label does, and awaits one where it does.
func (b *builder) newBroker(namespace, why string) migration.Change {
	ref := b.kinds.broker.Ref(namespace, kyma.DefaultBroker)
	if b.kinds.injects() {
		return migration.Change{Verb: migration.Await, Ref: ref, Why: "the namespace is labelled for a Broker, and has none yet"}
	}
	return migration.Change{Verb: migration.Create, Ref: ref, Object: object(b.kinds.broker, ref, map[string]any{}), Why: why}
}

func (b *builder) newPolicy(namespace, why string) migration.Change {
	ref := b.kinds.policy.Ref(namespace, kyma.BrokerPolicyName(namespace))
	policy := object(b.kinds.policy, ref, map[string]any{
		"targets": []any{map[string]any{"name": kyma.DefaultBroker + "-broker"}, map[string]any{"name": kyma.DefaultBroker + "-broker-filter"}},
		"peers":   []any{map[string]any{"mtls": map[string]any{"mode": "PERMISSIVE"}}},
	})
	policy.SetLabels(map[string]string{kyma.TriggerBrokerLabel: kyma.DefaultBroker})
	return migration.Change{Verb: migration.Create, Ref: ref, Object: policy, Why: why}
}

func mustJSON(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of strings
	}
	return raw
}
