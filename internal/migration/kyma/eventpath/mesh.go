package eventpath

import (
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
)

// eventMeshFlag is the argument by which an event-service of Kyma 1.11 is told
// where to post; that of 1.10 has none. Go's flags may have one dash or two.
const eventMeshFlag = "-eventMeshURL"

// MeshSources returns the names of the sources for which a Deployment or a Pod
// posts to the event mesh, sorted; none if nothing in it carries --eventMeshURL.
//
// The source is told from the URL, whose host is the adapter
// (http://<source>.<namespace>), and from all that says whose event-service it is.
// This is the generous direction: a job that must not delete what carries live events
// had better know one source too many than one too few. It proves nothing: an empty
// URL, or that of another source, is among them. The proof is EventService.Switched.
func MeshSources(obj *unstructured.Unstructured) []string {
	spec := k8sobject.MapAt(obj.Object, "spec")
	if template := k8sobject.MapAt(spec, "template"); template != nil {
		spec = k8sobject.MapAt(template, "spec")
	}
	found := map[string]bool{}
	carries := false
	containers, _ := spec["containers"].([]any)
	for _, c := range containers {
		container, _ := c.(map[string]any)
		for _, flag := range meshFlags(container) {
			carries = true // also by a flag whose name only ends like it: too many is safe
			add(found, hostSource(flag.value, obj.GetNamespace()))
		}
	}
	if !carries {
		return nil
	}
	for _, sign := range append(signs(obj), obj.GetName()) {
		if application, ok := kyma.EventServiceOf(sign); ok {
			add(found, application)
		}
	}
	sources := make([]string, 0, len(found))
	for source := range found {
		sources = append(sources, source)
	}
	slices.Sort(sources)
	return sources
}

// Posters names, for each source, the workload that posts its events to the mesh.
type Posters map[string]string

// Add notes what a Deployment or a Pod posts. Its name begins with its kind, and
// the first name counts: a Deployment will continue to post, and is a better reason
// than a Pod of it; and it is the same one, whatever order they come in.
func (p Posters) Add(name string, obj *unstructured.Unstructured) {
	for _, source := range MeshSources(obj) {
		if known, ok := p[source]; !ok || name < known {
			p[source] = name
		}
	}
}

func add(set map[string]bool, name string) {
	if name != "" {
		set[name] = true
	}
}

// meshFlag is one --eventMeshURL of a container.
type meshFlag struct {
	value string
	// exact: the word is the flag, and not one whose name only ends like it.
	exact bool
}

// meshFlags returns the flags in a container's command and arguments, also where
// they are one line for a shell.
func meshFlags(container map[string]any) []meshFlag {
	command, _ := container["command"].([]any)
	args, _ := container["args"].([]any)
	var words []string
	for _, list := range [][]any{command, args} {
		for _, v := range list {
			words = append(words, strings.Fields(k8sobject.Text(v))...)
		}
	}
	var flags []meshFlag
	for i, word := range words {
		before, rest, ok := strings.Cut(word, eventMeshFlag)
		if !ok {
			continue
		}
		value, assigned := strings.CutPrefix(rest, "=")
		switch {
		case assigned:
		case rest != "":
			continue // another flag, whose name only begins like ours
		case i+1 < len(words):
			value = words[i+1]
		}
		before = strings.Trim(before, `"'`)
		flags = append(flags, meshFlag{strings.Trim(value, `"'`), before == "" || before == "-"})
	}
	return flags
}

// hostSource returns the source whose adapter the URL's host is if the rest of the
// host says that it is in the namespace.
func hostSource(target, namespace string) string {
	u, err := url.Parse(target)
	if err != nil {
		return ""
	}
	host := u.Hostname()
	label, rest, qualified := strings.Cut(host, ".")
	if !qualified || rest == namespace || strings.HasPrefix(rest, namespace+".") {
		return label
	}
	// The name of an Application may have dots.
	host = strings.TrimSuffix(strings.TrimSuffix(host, ".cluster.local"), ".svc")
	source, ok := strings.CutSuffix(host, "."+namespace)
	if !ok {
		return ""
	}
	return source
}
