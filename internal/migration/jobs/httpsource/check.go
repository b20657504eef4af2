package httpsource

import (
	"fmt"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// sourceReady is met when an HTTPSource, its Channel and its adapter can take
// events.
func sourceReady(ch *migration.Change) migration.Condition {
	ref, children := ch.Ref.Subject(), childrenOf(ch.Ref.Namespace, ch.Ref.Name)
	c := migration.Condition{
		Text: fmt.Sprintf("%s, its Channel and its adapter to be ready", ref),
		On:   []migration.Subject{ref, children.channel, children.adapter, controller},
	}
	// A view lags behind the write of the HTTPSource, so that one just created
	// that is not in it yet has to be told from one that was deleted: this is the
	// only thing the condition remembers.
	var seen atomic.Bool
	seen.Store(ch.Verb == migration.Await)
	c.Eval = func(v migration.View) migration.Status {
		source := v.Get(ref)
		switch {
		case source != nil:
			seen.Store(true)
		case seen.Load():
			return migration.Status{
				State: migration.Failed, Message: fmt.Sprintf("%s was deleted meanwhile", ref),
				Note: "Find out who deletes it, and run the job again.", Command: "eventmesh-migrate run --job=httpsource-sync",
			}
		default:
			return migration.Status{Message: fmt.Sprintf("%s is not visible yet", ref)}
		}
		st := unlessDown(v, readiness(trio{source, v.Get(children.channel), v.Get(children.adapter)}))
		if ch.Verb == migration.Create {
			st.Note, st.Command = lasting(st, ref.Namespace)
		}
		return st
	}
	return c
}

// controller makes the Channel and the adapter of an HTTPSource.
var controller = migration.SubjectOf(deployments.GroupKind(), kyma.SystemNamespace, kyma.EventSourcesController)

// unlessDown is a status, with the cause if that is a controller at 0 replicas: it has no log, and
// nothing becomes ready. One that does not exist may have another name in this cluster.
func unlessDown(v migration.View, st migration.Status) migration.Status {
	deployment := v.Get(controller)
	if st.State != migration.Pending || deployment == nil {
		return st
	}
	if n, ok := k8sobject.Integer(k8sobject.MapAt(deployment.Object, "spec")["replicas"]); !ok || n > 0 {
		return st
	}
	st.ID = "event-sources-controller-down"
	st.Message += fmt.Sprintf("; its controller, %s, has 0 replicas", controller)
	st.Note = "Without its controller, no HTTPSource becomes ready. Scale it up, then run the job again."
	st.Command = migration.Kubectl(kyma.SystemNamespace, "scale", "deployment/"+kyma.EventSourcesController, "--replicas=1")
	return st
}

// lasting is the advice of a status that is still right when a rollback has deleted the HTTPSource
// with its children.
func lasting(st migration.Status, namespace string) (note, command string) {
	switch {
	case !strings.HasPrefix(st.Command, migration.Kubectl(namespace)+" "):
		return st.Note, st.Command // about a controller
	case st.Note == eventpath.DeleteAdapter:
		st.Note = "The usual causes are its image, a quota, or full nodes."
	}
	advice := migration.AfterRollback(namespace, st.Note)
	return advice.Note, advice.Command
}

// adapterHasChannel is met when an adapter has a Channel to send to, or is gone
// itself.
func adapterHasChannel(ch *migration.Change) migration.Condition {
	ref := ch.Ref.Subject()
	channel := childrenOf(ref.Namespace, ref.Name).channel
	return migration.Condition{
		Text: fmt.Sprintf("%s, an adapter, to have a Channel", ref),
		On:   []migration.Subject{ref, channel, controller},
		Eval: func(v migration.View) migration.Status {
			if v.Get(ref) == nil || alive(v.Get(channel)) {
				return migration.Status{State: migration.Met}
			}
			return unlessDown(v, migration.Status{
				Message: adapterWithoutChannel(ref.Namespace, ref.Name),
				ID:      "adapter-without-channel",
				Note:    "Events are lost. The log of its controller says why it is not created.",
				Command: migration.Kubectl(kyma.SystemNamespace, "logs", "deployment/"+kyma.EventSourcesController),
			})
		},
	}
}

// children of an HTTPSource.
type children struct {
	channel, adapter migration.Subject
}

func childrenOf(namespace, name string) children {
	return children{migration.SubjectOf(kyma.Channel, namespace, name), migration.SubjectOf(kyma.Service, namespace, name)}
}

// trio is an HTTPSource with its two children; nil is what does not exist.
type trio struct {
	source, channel, service *unstructured.Unstructured
}

// ready is readiness over the snapshot.
func (s *snapshot) ready(name string) migration.Status {
	return readiness(trio{s.sources[name], s.channels[name], s.services[name]})
}

// readiness says how an HTTPSource that exists stands, naming the first thing
// that is missing. It is pure.
func readiness(t trio) migration.Status {
	namespace, name := t.source.GetNamespace(), t.source.GetName()
	source := migration.SubjectOf(kyma.HTTPSource, namespace, name)
	why := eventpath.Source{Name: name, Namespace: namespace, HTTPSource: t.source, Channel: t.channel, Adapter: t.service}.TakesEvents()
	st := migration.Status{Message: why.Sentence(), Note: why.Note, Command: why.Command}
	own := k8sobject.ReadinessOf(t.source)
	switch why.Defect {
	case "":
		return migration.Status{State: migration.Met}
	case eventpath.HTTPSourceTerminating:
		st.State = migration.Failed
	case eventpath.AdapterWithoutChannel:
		st.Message = adapterWithoutChannel(namespace, name) + lastWord(source, own)
		st.ID = "adapter-without-channel"
	case eventpath.ChannelMissing, eventpath.AdapterMissing:
		st.Message += lastWord(source, own)
	}
	return st
}

func notReady(ref migration.Subject, r k8sobject.Readiness) string {
	return fmt.Sprintf("%s %s", ref, r.Problem())
}

// lastWord is what the HTTPSource itself says about a child that is missing.
// What it says if it is ready is stale.
func lastWord(ref migration.Subject, r k8sobject.Readiness) string {
	if r.OK() {
		return fmt.Sprintf("; %s claims to be ready, which is stale", ref)
	}
	return "; " + notReady(ref, r)
}

func adapterWithoutChannel(namespace, name string) string {
	own := childrenOf(namespace, name)
	return fmt.Sprintf("adapter without a channel: %s exists, %s does not", own.adapter, own.channel)
}

func alive(obj *unstructured.Unstructured) bool {
	return obj != nil && obj.GetDeletionTimestamp() == nil
}
