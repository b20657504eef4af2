package kyma

import (
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// eventMeshFlag is the argument by which an event-service of Kyma 1.11 is told
// where to post; that of 1.10 has none. Go's flags may have one dash or two.
const eventMeshFlag = "-eventMeshURL"

// MeshSources returns the names of the sources for which a Deployment or a Pod
// posts to the event mesh, sorted; none if nothing in it carries --eventMeshURL.
//
// The source is told from the URL, whose host is the adapter
// (http://<source>.<namespace>), and from the name, the label "app" and the
// containers of an event-service: whoever must not take something away had
// better know one source too many than one too few.
func MeshSources(obj *unstructured.Unstructured) []string {
	spec := MapAt(obj.Object, "spec")
	labels := MapAt(obj.Object, "metadata", "labels")
	if template := MapAt(spec, "template"); template != nil {
		labels = MapAt(template, "metadata", "labels")
		spec = MapAt(template, "spec")
	}
	found := map[string]bool{}
	carries := false
	containers, _ := spec["containers"].([]any)
	for _, c := range containers {
		container, _ := c.(map[string]any)
		targets, ok := meshTargets(container)
		if !ok {
			continue
		}
		carries = true
		for _, target := range targets {
			add(found, hostSource(target, obj.GetNamespace()))
		}
		add(found, eventServiceSource(Text(container["name"])))
	}
	if !carries {
		return nil
	}
	add(found, eventServiceSource(obj.GetName()))
	add(found, eventServiceSource(Text(labels["app"])))
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
// the first name counts: a Deployment will go on posting, and is a better reason
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

// meshTargets returns the values of --eventMeshURL in a container's command and
// arguments, also where they are one line for a shell; false if it is not there.
func meshTargets(container map[string]any) (targets []string, carries bool) {
	command, _ := container["command"].([]any)
	args, _ := container["args"].([]any)
	var words []string
	for _, list := range [][]any{command, args} {
		for _, v := range list {
			words = append(words, strings.Fields(Text(v))...)
		}
	}
	for i, word := range words {
		_, rest, ok := strings.Cut(word, eventMeshFlag)
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
		carries = true
		targets = append(targets, strings.Trim(value, `"'`))
	}
	return targets, carries
}

// hostSource returns the first label of the URL's host if the rest of the host
// says that it is in the namespace.
func hostSource(target, namespace string) string {
	u, err := url.Parse(target)
	if err != nil {
		return ""
	}
	labels := strings.Split(u.Hostname(), ".")
	if len(labels) > 1 && labels[1] != namespace {
		return ""
	}
	return labels[0]
}

func eventServiceSource(name string) string {
	source, ok := strings.CutSuffix(name, eventServiceSuffix)
	if !ok {
		return ""
	}
	return source
}
