package httpsource

import (
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// sourceReady is met when an HTTPSource, its Channel and its adapter can take
// events.
func sourceReady(ch *migration.Change, k kinds) migration.Condition {
	ref := ch.Ref
	channel, service := k.channel.Ref(ref.Namespace, ref.Name), k.service.Ref(ref.Namespace, ref.Name)
	c := migration.Condition{
		Text: fmt.Sprintf("%s, its Channel and its adapter to be ready", ref),
		On:   []migration.Ref{ref},
	}
	if unserved := unservedStatus(k.channel, k.service); unserved != nil {
		c.Eval = func(migration.View) migration.Status { return *unserved }
		return c
	}
	c.On = append(c.On, channel, service)
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
				Hint: "find out who deletes it, and run again",
			}
		default:
			return migration.Status{Message: fmt.Sprintf("%s is not to be seen yet", ref)}
		}
		return readiness(k, trio{source, v.Get(channel), v.Get(service)})
	}
	return c
}

// adapterHasChannel is met when an adapter has a Channel to send to, or is gone
// itself.
func adapterHasChannel(ch *migration.Change, k kinds) migration.Condition {
	ref := ch.Ref
	c := migration.Condition{
		Text: fmt.Sprintf("%s, an adapter, to have a Channel", ref),
		On:   []migration.Ref{ref},
	}
	if unserved := unservedStatus(k.channel); unserved != nil {
		c.Eval = func(migration.View) migration.Status { return *unserved }
		return c
	}
	channel := k.channel.Ref(ref.Namespace, ref.Name)
	c.On = append(c.On, channel)
	c.Eval = func(v migration.View) migration.Status {
		if v.Get(ref) == nil || alive(v.Get(channel)) {
			return migration.Status{State: migration.Met}
		}
		return migration.Status{
			Message: adapterWithoutChannel(k, ref.Namespace, ref.Name),
			Hint:    controllerHint(),
		}
	}
	return c
}

// unservedStatus is that of a condition on a kind that is not served: it is in
// vain. A plan refuses to get there, but a journal may bring changes from a time
// when the kind was served.
func unservedStatus(kinds ...migration.Kind) *migration.Status {
	for _, k := range kinds {
		if !k.Served {
			return &migration.Status{
				State:   migration.Failed,
				Message: fmt.Sprintf("the API server serves no %s", spell(k)),
				Hint:    "install the component " + kyma.Component(k.GroupKind),
			}
		}
	}
	return nil
}

// trio is an HTTPSource with its two children; nil is what does not exist.
type trio struct {
	source, channel, service *unstructured.Unstructured
}

// ready is readiness over the snapshot.
func (s *snapshot) ready(name string) migration.Status {
	return readiness(s.kinds, trio{s.sources[name], s.channels[name], s.services[name]})
}

// readiness says how an HTTPSource that exists stands, naming the first thing
// that is missing. It is pure.
func readiness(k kinds, t trio) migration.Status {
	namespace, name := t.source.GetNamespace(), t.source.GetName()
	source := k.httpSource.Ref(namespace, name)
	why := eventpath.Source{Name: name, Namespace: namespace, HTTPSource: t.source, Channel: t.channel, Adapter: t.service}.TakesEvents()
	st := migration.Status{Message: why.Sentence(), Hint: why.Hint}
	own := kyma.ReadinessOf(t.source)
	switch why.Defect {
	case "":
		return migration.Status{State: migration.Met}
	case eventpath.HTTPSourceTerminating:
		st.State = migration.Failed
	case eventpath.AdapterWithoutChannel:
		st.Message = adapterWithoutChannel(k, namespace, name) + lastWord(source, own)
	case eventpath.ChannelMissing, eventpath.AdapterMissing:
		st.Message += lastWord(source, own)
	case eventpath.AdapterNotReady:
		st.Hint += "; if it hangs on an old revision, delete it, and the controller makes a new one"
	}
	return st
}

func notReady(ref migration.Ref, r kyma.Readiness) string {
	return fmt.Sprintf("%s %s", ref, r.Problem())
}

// lastWord is what the HTTPSource itself says about a child that is missing.
// What it says if it is ready is stale.
func lastWord(ref migration.Ref, r kyma.Readiness) string {
	if r.OK() {
		return fmt.Sprintf("; %s claims to be ready, which is stale", ref)
	}
	return "; " + notReady(ref, r)
}

func adapterWithoutChannel(k kinds, namespace, name string) string {
	return fmt.Sprintf("adapter without a channel: %s exists, %s does not", k.service.Ref(namespace, name), k.channel.Ref(namespace, name))
}

func alive(obj *unstructured.Unstructured) bool {
	return obj != nil && obj.GetDeletionTimestamp() == nil
}

// controllerHint is where to look when the controller does not do its part.
func controllerHint() string {
	return fmt.Sprintf("kubectl -n %s logs deployment/%s", kyma.SystemNamespace, kyma.EventSourcesController)
}
