package model

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Group is that of the kinds of a world.
const Group = "model.test"

func kind(name, plural string) Kind {
	return Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: Group, Version: "v1", Kind: name}, Plural: plural,
		Namespaced: true, Status: true,
	}
}

// Kinds are those that a world needs in addition to the built-in ones.
var Kinds = []Kind{
	kind("Source", "sources"), kind("Sink", "sinks"), kind("Broker", "brokers"), kind("Worker", "workers"),
	kind("Instance", "instances"), kind("Registry", "registries"), kind("Entry", "entries"), kind("Channel", "channels"),
}

func resource(name, plural string) migration.Resource {
	return migration.Resource{GroupVersionResource: schema.GroupVersionResource{Group: Group, Version: "v1", Resource: plural}, Kind: name}
}

var (
	sources    = resource("Source", "sources")
	sinks      = resource("Sink", "sinks")
	brokers    = resource("Broker", "brokers")
	workers    = resource("Worker", "workers")
	instances  = resource("Instance", "instances")
	registries = resource("Registry", "registries")
	entries    = resource("Entry", "entries")
	channels   = resource("Channel", "channels")

	namespaces   = migration.CoreResource("", "namespaces", "Namespace")
	configMaps   = migration.CoreResource("", "configmaps", "ConfigMap")
	accounts     = migration.CoreResource("", "serviceaccounts", "ServiceAccount")
	roleBindings = migration.CoreResource("rbac.authorization.k8s.io", "rolebindings", "RoleBinding")
)

const (
	// controlled is a finalizer that the world's controllers remove, dead one whose
	// controller is gone, so that the job removes it.
	controlled = Group + "/controlled"
	dead       = Group + "/dead"
	// holding ends the finalizers of users, which their controllers remove.
	holding = ".test/hold"
	// label of a namespace, upon which the controllers make a Broker.
	label = "mesh"
)

// World is a small cluster made from a seed: its objects, and how its controllers
// behave.
type World struct {
	Seed uint64
	// State and Spaces are namespaces; the objects are in Spaces.
	State  string
	Spaces []string
	// Names of the objects of each kind, in Spaces[0] unless they are more.
	Sources, Instances []string
	Workers, Registry  bool
	// Channels are deleted when the last Source on them is gone; each Source is on the one that
	// channelOf names.
	Channels []string
	// Parallelism, Serial and Independent are those of the plan.
	Parallelism         int
	Serial, Independent bool
	// Wait is how long the job waits for an object, Delay how long the controllers take
	// at most.
	Wait, Delay time.Duration
	// Quick shortens what a test on a real server has to wait for.
	Quick bool

	objects []*unstructured.Unstructured
}

func newWorld(seed uint64, prefix string, r *rand.Rand) *World {
	w := &World{
		Seed: seed, State: prefix + "state", Spaces: []string{prefix + "a", prefix + "b"},
		Parallelism: 1 + r.IntN(4), Serial: r.IntN(8) == 0, Independent: r.IntN(3) == 0,
		Workers: r.IntN(3) > 0, Registry: r.IntN(3) == 0,
		Wait: 2 * time.Minute, Delay: []time.Duration{200 * time.Millisecond, 5 * time.Second, 40 * time.Second}[r.IntN(3)],
	}
	if r.IntN(4) == 0 {
		w.Wait = 20 * time.Second
	}
	mode := "mesh"
	if r.IntN(4) == 0 {
		mode = "bus"
	}
	w.add(configMaps, "switch", map[string]any{"data": map[string]any{"mode": mode}})
	w.add(configMaps, "bystander", map[string]any{"data": map[string]any{"k": "v"}})
	for i := range 1 + r.IntN(3) {
		name := fmt.Sprintf("s%d", i)
		w.Sources = append(w.Sources, name)
		obj := w.add(sources, name, map[string]any{"spec": map[string]any{"endpoint": "http://" + name}})
		switch r.IntN(4) {
		case 0:
			obj.SetFinalizers([]string{controlled})
		case 1:
			obj.SetFinalizers([]string{dead})
		case 2:
			obj.SetFinalizers([]string{dead, controlled})
		}
		if r.IntN(3) == 0 {
			obj.SetLabels(map[string]string{"team": "x"})
		}
	}
	for i := range r.IntN(2) {
		name := fmt.Sprintf("i%d", i)
		w.Instances = append(w.Instances, name)
		w.add(instances, name, map[string]any{"spec": map[string]any{"class": "old", "size": "1"}})
	}
	if w.Workers {
		w.add(workers, "bus", map[string]any{"spec": map[string]any{"replicas": int64(2), "image": "bus:1"}})
	}
	if w.Registry {
		w.add(registries, "r", map[string]any{"spec": map[string]any{"of": "entries"}})
		for i := range r.IntN(3) {
			obj := w.add(entries, fmt.Sprintf("e%d", i), map[string]any{"spec": map[string]any{"registry": "r", "n": fmt.Sprint(i)}})
			if mix(seed+uint64(i))%2 == 0 {
				obj.SetFinalizers([]string{controlled}) // its deletion takes a while, before the Registry's turn comes
			}
		}
	}
	w.addChannels()
	return w
}

// addChannels gives the Sources of one in three worlds Channels: one each, or one for all of them.
// It draws none of the numbers of the world.
func (w *World) addChannels() {
	drawn := mix(w.Seed ^ 0x6368616e)
	if drawn%3 != 0 {
		return
	}
	w.Channels = slices.Clone(w.Sources)
	if drawn/3%2 == 0 {
		w.Channels = []string{"all"}
	}
	for _, name := range w.Channels {
		w.add(channels, name, map[string]any{"spec": map[string]any{"size": "1"}})
	}
}

// sourcesOf are the Sources that are on a Channel.
func (w *World) sourcesOf(channel string) []string {
	if channel == "all" {
		return w.Sources
	}
	return []string{channel}
}

// object is one of a kind in a namespace.
func object(r migration.Resource, namespace, name string, content map[string]any) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: content}
	obj.SetAPIVersion(r.GroupVersion().String())
	obj.SetKind(r.Kind)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return obj
}

func (w *World) add(r migration.Resource, name string, content map[string]any) *unstructured.Unstructured {
	obj := object(r, w.Spaces[0], name, content)
	w.objects = append(w.objects, obj)
	return obj
}

// Place is where a world lives: on the model, or on a real server.
type Place interface {
	// Actor makes a client whose calls are told apart by the name.
	Actor(name string) *rest.Config
	// Process makes the client of a run, which may be killed.
	Process(name string) Process
	// Past returns the writes so far, oldest first.
	Past() []Write
}

// Process is the client of one run.
type Process interface {
	Config() *rest.Config
	Before(hook func(*Request))
	After(hook func(*Request))
	Kill()
	Killed() bool
	Calls() int
}

// inMemory is the place of worlds in memory.
type inMemory struct{ *Server }

func (m inMemory) Actor(name string) *rest.Config { return m.Server.Actor(name).Config() }
func (m inMemory) Process(name string) Process    { return m.Client(name) }
func (m inMemory) Past() []Write                  { return m.History() }

// user is one client that writes to a world.
type user struct {
	dynamic.Interface
}

func newUser(p Place, name string) (*user, error) {
	client, err := dynamic.NewForConfig(p.Actor(name))
	return &user{client}, err
}

func (u *user) of(r migration.Resource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return u.Resource(r.GroupVersionResource)
	}
	return u.Resource(r.GroupVersionResource).Namespace(namespace)
}

func (u *user) merge(ctx context.Context, r migration.Resource, namespace, name, patch string, subresources ...string) error {
	_, err := u.of(r, namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	return err
}

// build creates what the world begins with.
func (w *World) build(ctx context.Context, p Place) error {
	u, err := newUser(p, "setup")
	if err != nil {
		return err
	}
	for _, name := range append([]string{w.State}, w.Spaces...) {
		if _, err := u.of(namespaces, "").Create(ctx, object(namespaces, "", name, map[string]any{}), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for _, obj := range w.objects {
		r := migration.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}}
		if obj.GetKind() != "ConfigMap" {
			i := slices.IndexFunc(Kinds, func(k Kind) bool { return k.Kind == obj.GetKind() })
			r.GroupVersionResource = schema.GroupVersionResource{Group: Group, Version: "v1", Resource: Kinds[i].Plural}
		}
		if _, err := u.of(r, obj.GetNamespace()).Create(ctx, obj.DeepCopy(), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("cannot create %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
	return nil
}

// Memory is a place for a world on a new Server.
func Memory(seed uint64) Place { return inMemory{New(seed, Kinds...)} }

// CRD is the definition of one of Kinds, for a real server.
func CRD(k Kind) *unstructured.Unstructured {
	open := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": k.Plural + "." + k.Group},
		"spec": map[string]any{
			"group": k.Group, "scope": "Namespaced",
			"names": map[string]any{"kind": k.Kind, "listKind": k.Kind + "List", "plural": k.Plural, "singular": strings.ToLower(k.Kind)},
			"versions": []any{map[string]any{
				"name": k.Version, "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": open},
				"subresources": map[string]any{"status": map[string]any{}},
			}},
		},
	}}
}
