package takeover

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Names and shapes of Kyma's lifecycle-manager. test/standin/kymaeventing/README.md says where each
// is written.
const (
	eventingModule = "eventing"
	natsModule     = "nats"

	moduleLabel         = "operator.kyma-project.io/module-name"
	managedLabel        = "operator.kyma-project.io/managed-by"
	managedValue        = "kyma"
	manifestAnnotation  = "deprecated-operator.kyma-project.io/owned-by"
	unmanagedAnnotation = "operator.kyma-project.io/is-unmanaged"
	// unmanaged is the state of a module that lifecycle-manager has let go of.
	unmanaged = "Unmanaged"
	// deleting is the state of a Kyma that lifecycle-manager deletes with all modules.
	deleting = "Deleting"

	// unservedAnnotation on a Kyma is the word of an administrator that no lifecycle-manager serves
	// it any more. Its value is the time of the last operation: a newer operation makes it void.
	unservedAnnotation = "take-over.eventing.kyma-project.io/unserved-since"
	// silence is how old the last operation has to be for that. lifecycle-manager writes it every
	// five minutes.
	silence = time.Hour

	kindKyma     = "kymas.operator.kyma-project.io"
	kindManifest = "manifests.operator.kyma-project.io"
)

// theirDefinitions are those whose deletion takes everything with it: the names of both are those
// of Kyma's and of ours.
var theirDefinitions = []string{
	subscriptions.GroupVersionResource.GroupResource().String(),
	eventings.GroupVersionResource.GroupResource().String(),
}

// kyma is what lists modules.
type kyma struct {
	namespace, name string
	state           string
	written         string // when lifecycle-manager wrote its status last
	unserved        string // unservedAnnotation
	deleted         bool
	old             bool // its definition has no field managed
}

// module is one that a Kyma names in its spec or its status.
type module struct {
	kyma    kyma
	name    string
	listed  bool   // in spec.modules
	index   int    // there
	empty   bool   // there is no spec.modules
	managed bool   // by spec.modules
	state   string // in status.modules, "" if it is not there
}

// manifest is what lifecycle-manager installs a module by, where it runs in this cluster.
type manifest struct {
	namespace, name, module string
	letGo, deleted          bool
}

// definition is one of theirDefinitions.
type definition struct {
	name, manifest    string // which applied it
	labeled, deleting bool
}

// ownership is what this cluster shows of lifecycle-manager. It may run in another one: then there
// are no Manifests, but its copy of the Kyma, and its label on what it has applied.
type ownership struct {
	modules     []module
	manifests   []manifest
	definitions []definition
}

// readModules reads all of it but the definitions.
func (s *ownership) readModules(ctx context.Context, c reader) error {
	if err := s.readManifests(ctx, c); err != nil {
		return err
	}
	r, served, err := c.Served(ctx, kymaKind)
	if err != nil || !served {
		return err
	}
	crd, err := c.Get(ctx, migration.Ref{Resource: definitions, Name: kindKyma})
	if err != nil {
		return err
	}
	old := crd != nil && !hasManaged(crd)
	return c.Each(ctx, r, "", migration.ListOptions{}, func(obj *unstructured.Unstructured) error {
		for _, m := range modulesOf(obj, old) {
			known := m.name == eventingModule || m.name == natsModule || slices.ContainsFunc(s.manifests, func(is manifest) bool { return is.module == m.name })
			if known && !slices.Contains(s.modules, m) { // a page may be read again
				s.modules = append(s.modules, m)
			}
		}
		return nil
	})
}

// readDefinitions reads theirDefinitions.
func (s *snapshot) readDefinitions(ctx context.Context, c reader) error {
	for _, name := range theirDefinitions {
		crd, err := c.Get(ctx, migration.Ref{Resource: definitions, Name: name})
		if err != nil {
			return err
		}
		if crd == nil {
			continue
		}
		s.oursIsServed = s.oursIsServed || hasBackends(crd) // that of Subscription
		s.definitions = append(s.definitions, definition{
			name: name, manifest: crd.GetAnnotations()[manifestAnnotation],
			labeled: crd.GetLabels()[managedLabel] == managedValue, deleting: crd.GetDeletionTimestamp() != nil,
		})
	}
	return nil
}

// hasManaged tells whether the API server stores what somebody says about the management of a
// module.
func hasManaged(crd *unstructured.Unstructured) bool {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	return slices.ContainsFunc(versions, func(v any) bool {
		version, _ := v.(map[string]any)
		_, has, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "spec", "properties", "modules", "items", "properties", "managed")
		return has
	})
}

// kymaOf reads one. Without an operation, nobody has written it since it was created.
func kymaOf(obj *unstructured.Unstructured, old bool) kyma {
	state, _, _ := unstructured.NestedString(obj.Object, "status", "state")
	written, _, _ := unstructured.NestedString(obj.Object, "status", "lastOperation", "lastUpdateTime")
	if written == "" {
		written = obj.GetCreationTimestamp().UTC().Format(time.RFC3339)
	}
	return kyma{
		namespace: obj.GetNamespace(), name: obj.GetName(), state: state, written: written, old: old,
		unserved: obj.GetAnnotations()[unservedAnnotation], deleted: obj.GetDeletionTimestamp() != nil,
	}
}

// modulesOf are the modules that a Kyma names.
func modulesOf(obj *unstructured.Unstructured, old bool) (all []module) {
	of := kymaOf(obj, old)
	listed, set, _ := unstructured.NestedSlice(obj.Object, "spec", "modules")
	for i, m := range listed {
		entry, _ := m.(map[string]any)
		name, _, _ := unstructured.NestedString(entry, "name")
		managed, said, _ := unstructured.NestedBool(entry, "managed")
		all = append(all, module{kyma: of, name: name, listed: true, index: i, managed: managed || !said})
	}
	states, _, _ := unstructured.NestedSlice(obj.Object, "status", "modules")
	for _, m := range states {
		entry, _ := m.(map[string]any)
		name, _, _ := unstructured.NestedString(entry, "name")
		state, _, _ := unstructured.NestedString(entry, "state")
		i := slices.IndexFunc(all, func(is module) bool { return is.name == name })
		if i < 0 {
			all = append(all, module{kyma: of, name: name, empty: !set})
			i = len(all) - 1
		}
		all[i].state = state
	}
	return all
}

// readManifests reads those of Kyma's modules, and of every module that has the same definitions.
func (s *ownership) readManifests(ctx context.Context, c reader) error {
	r, served, err := c.Served(ctx, manifestKind)
	if err != nil || !served {
		return err
	}
	return c.Each(ctx, r, "", migration.ListOptions{}, func(obj *unstructured.Unstructured) error {
		is := manifest{
			namespace: obj.GetNamespace(), name: obj.GetName(), module: obj.GetLabels()[moduleLabel],
			letGo: obj.GetAnnotations()[unmanagedAnnotation] == "true", deleted: obj.GetDeletionTimestamp() != nil,
		}
		if (is.module == eventingModule || is.module == natsModule || tracks(obj)) && !slices.Contains(s.manifests, is) {
			s.manifests = append(s.manifests, is)
		}
		return nil
	})
}

// tracks tells whether a Manifest has applied one of theirDefinitions, and so deletes it.
func tracks(obj *unstructured.Unstructured) bool {
	synced, _, _ := unstructured.NestedSlice(obj.Object, "status", "synced")
	return slices.ContainsFunc(synced, func(of any) bool {
		is, _ := of.(map[string]any)
		return is["kind"] == definitions.Kind && slices.Contains(theirDefinitions, fmt.Sprint(is["name"]))
	})
}

// owners says what lifecycle-manager does, and would do, to what both have.
func owners(s *snapshot, o options, add adder) {
	told := map[string]bool{} // modules
	say := func(name, id, object, problem, note, command string) {
		severity := migration.Error
		if name == natsModule && !s.needsTheirs(o.to) { // nobody misses Kyma's NATS any more
			severity = migration.Warning
		}
		told[name] = true
		add(severity, id, object, problem, note, command)
	}
	for _, m := range s.modules {
		object := "Kyma " + m.kyma.namespace + "/" + m.kyma.name
		switch {
		case m.kyma.state == deleting && m.state != unmanaged:
			say(m.name, "module-is-removed", object, fmt.Sprintf("lifecycle-manager deletes the Kyma, and with it the module %s and its definitions. It no longer reads spec.modules", m.name),
				"If a lifecycle-manager serves the Kyma, annotate its Manifests where it runs: "+unmanagedAnnotation+"=true. Otherwise change the state. A lifecycle-manager that serves the Kyma restores it within seconds.",
				m.kyma.kubectl("patch", "--subresource=status", "--type=merge", `-p={"status":{"state":"Warning"}}`))
		case m.listed && m.managed && !m.kyma.old:
			say(m.name, "module-is-managed", object, fmt.Sprintf("lifecycle-manager manages the module %s: it undoes what a step changes, and a removal of the module deletes its definitions", m.name),
				"Let lifecycle-manager leave it as it is.", m.leave())
		case m.listed && m.state != unmanaged && m.kyma.isUnserved():
			add(migration.Warning, "module-is-unserved", object, fmt.Sprintf("no lifecycle-manager has let go of the module %s. An administrator says that none serves the Kyma, and none has written it since %s", m.name, m.kyma.written),
				"Leave the Kyma and its modules as they are, for a lifecycle-manager that comes back. If a lifecycle-manager serves it after all, withdraw this:", m.kyma.kubectl("annotate", unservedAnnotation+"-"))
		case m.listed && m.state != unmanaged:
			problem, note, command := m.unanswered()
			say(m.name, "module-is-managed", object, problem, note, command)
		case !m.listed && m.state != unmanaged:
			say(m.name, "module-is-removed", object, fmt.Sprintf("lifecycle-manager removes the module %s: it deletes its default object, and then its definitions with all objects of their kinds", m.name),
				"Add it again, without management: lifecycle-manager then leaves what is left.", m.leave())
		}
	}
	for _, m := range s.manifests {
		object := "Manifest " + m.namespace + "/" + m.name
		annotate := migration.Kubectl(m.namespace, "annotate", kindManifest, m.name, unmanagedAnnotation+"=true")
		switch {
		case m.letGo || told[m.module]:
		case m.deleted:
			say(m.module, "module-is-removed", object, "lifecycle-manager deletes what it has applied, the definitions with all objects of their kinds included", "Let lifecycle-manager leave what is left.", annotate)
		default:
			say(m.module, "module-is-managed", object, "lifecycle-manager applies the definitions by it, and deletes them with it", "Let lifecycle-manager leave them as they are.", annotate)
		}
	}
	s.marks(told, add)
}

// marks says what the definitions show, if nothing else of lifecycle-manager does.
func (s *ownership) marks(told map[string]bool, add adder) {
	for _, d := range s.definitions {
		object := "CustomResourceDefinition " + d.name
		if d.deleting {
			add(migration.Error, "definition-is-deleted", object, "it is being deleted, with all objects of its kind, and nothing stops that",
				"Save what is left, now. When the definition is gone, apply ours, and what you have saved.", "kubectl get "+d.name+" --all-namespaces -o yaml > "+d.name+".yaml")
		}
		if !d.labeled || len(told) > 0 {
			continue
		}
		severity, note := migration.Error, "If no lifecycle-manager has a module with it any more, remove the label."
		if slices.ContainsFunc(s.modules, func(m module) bool { return m.name == eventingModule && m.state == unmanaged }) {
			severity, note = migration.Warning, "It has let go of the module, and should remove the label soon. Otherwise remove it."
		}
		problem := "lifecycle-manager has applied it"
		if d.manifest != "" {
			problem += " by the Manifest " + d.manifest
		}
		add(severity, "definition-is-managed", object, problem+", and its label says that this goes on", note, migration.CommandLine("kubectl", "label", "customresourcedefinition", d.name, managedLabel+"-"))
	}
}

// unanswered says what is missing of a module of which nobody lets go.
func (m module) unanswered() (problem, note, command string) {
	problem = fmt.Sprintf("lifecycle-manager has not yet let go of the module %s: its state is %q. Until then, a removal of the module deletes its definitions", m.name, m.state)
	note, command = "Wait. If that does not end, status.modules says why.", m.wait()
	if m.kyma.old {
		problem = fmt.Sprintf("lifecycle-manager manages the module %s, and a removal deletes its definitions. It is older than 1.1.4 and cannot let go: its definition of Kyma has no field managed", m.name)
		note, command = "Update lifecycle-manager, which updates the definition.", migration.CommandLine("kubectl", "explain", kindKyma+".spec.modules")
	}
	switch {
	case !m.kyma.silent() && m.kyma.unserved != "":
		problem += ". It has written the Kyma at " + m.kyma.written + ", although an annotation says that none serves it"
	case !m.kyma.silent():
	case m.kyma.deleted:
		problem += ". The Kyma is being deleted, and its finalizers stay"
		note, command = "If no lifecycle-manager serves the Kyma any more, in any cluster, remove its finalizers:", m.kyma.kubectl("patch", "--type=merge", `-p={"metadata":{"finalizers":null}}`)
	default:
		problem += ". It has written the Kyma last at " + m.kyma.written
		note = "A lifecycle-manager that serves a Kyma writes it every five minutes. If none serves this Kyma any more, in any cluster, say so:"
		command = m.kyma.kubectl("annotate", "--overwrite", unservedAnnotation+"="+m.kyma.written)
	}
	return problem, note, command
}

// silent tells whether no lifecycle-manager has written a Kyma for long.
func (k kyma) silent() bool {
	at, err := time.Parse(time.RFC3339, k.written)
	return err == nil && time.Since(at) >= silence
}

// isUnserved tells whether an administrator says that no lifecycle-manager serves a Kyma, and none
// has shown itself since. The silence of a Kyma that is being deleted says nothing: its status is
// not written any more.
func (k kyma) isUnserved() bool { return k.unserved == k.written && k.silent() && !k.deleted }

// kubectl is a command about a Kyma.
func (k kyma) kubectl(verb string, words ...string) string {
	return migration.Kubectl(k.namespace, append([]string{verb, kindKyma, k.name}, words...)...)
}

// leave is the command that makes lifecycle-manager leave a module as it is.
func (m module) leave() string {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	entry := map[string]any{"name": m.name, "managed": false}
	at := fmt.Sprintf("/spec/modules/%d", m.index)
	var patch []operation
	switch {
	case m.listed: // somebody may have changed the list since
		patch = []operation{{"test", at + "/name", m.name}, {"add", at + "/managed", false}}
	case m.empty:
		patch = []operation{{"add", "/spec/modules", []any{entry}}}
	default:
		patch = []operation{{"add", "/spec/modules/-", entry}}
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		panic(err) // it is made of texts
	}
	return m.kyma.kubectl("patch", "--type=json", "-p="+string(raw))
}

// wait is the command that waits until lifecycle-manager has let go of a module.
func (m module) wait() string {
	return m.kyma.kubectl("wait", fmt.Sprintf(`--for=jsonpath={.status.modules[?(@.name==%q)].state}=%s`, m.name, unmanaged), "--timeout=10m")
}
