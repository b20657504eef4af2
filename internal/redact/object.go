package redact

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// sensitive are keys whose values no other person should read. Names of objects are no
// secrets, and a ticket is of little use without them: see reference.
var sensitive = regexp.MustCompile(`(?i)passw|token|secret|credential|api-?_?key|private|authori[sz]ation|certificate|cabundle|bearer|cookie|session|signature|headers|queryparameters`)

// reference are keys that name something, and hold no secret themselves.
var reference = regexp.MustCompile(`(?i)(name|ref|namespace|kind|type|mount|mountpath|url)$`)

// safeEnv are variables of the event path, needed to understand it.
var safeEnv = []string{"EVENT_SOURCE", "SINK_URI", "NAMESPACE"}

// Object returns a copy of an object without secrets, and without what only takes
// up room.
func Object(u *unstructured.Unstructured) *unstructured.Unstructured {
	out := u.DeepCopy()
	out.SetManagedFields(nil)
	annotations := out.GetAnnotations()
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration") // the whole object once more
	if len(annotations) == 0 {
		annotations = nil
	}
	out.SetAnnotations(annotations)
	if out.GetKind() == "Secret" {
		for _, key := range []string{"data", "stringData"} {
			if m, ok := out.Object[key].(map[string]any); ok {
				for k := range m {
					m[k] = Mark
				}
			}
		}
	}
	for key, value := range out.Object {
		out.Object[key] = walk(key, value, false)
	}
	return out
}

// annotationsOf leaves out what holds a whole object, such as the configuration that
// was applied last: it was written without regard to what is secret in it.
func annotationsOf(all map[string]any) {
	for key, value := range all {
		text, ok := value.(string)
		if !ok {
			continue
		}
		if sensitive.MatchString(key) && !reference.MatchString(key) {
			all[key] = Mark
			continue
		}
		var whole any
		if err := yaml.Unmarshal([]byte(text), &whole); err == nil {
			switch whole.(type) {
			case map[string]any, []any:
				all[key] = Mark
				continue
			}
		}
		all[key] = Text(text)
	}
}

// walk goes through a value. hidden: everything below is left out.
func walk(key string, value any, hidden bool) any {
	switch v := value.(type) {
	case map[string]any:
		if name, ok := v["name"].(string); ok && !hidden {
			if _, env := v["value"]; env && !slices.Contains(safeEnv, name) {
				// A variable, a header: what it holds is not for us to know.
				v["value"] = Mark
			}
		}
		for k, below := range v {
			annotations, ok := below.(map[string]any)
			switch {
			case k == "annotations" && ok && !hidden:
				annotationsOf(annotations)
			case k == "parameters" && below != nil:
				// The user's own, of whatever names and types.
				v[k] = Mark
			default:
				v[k] = walk(k, below, hidden || sensitive.MatchString(k) && !reference.MatchString(k))
			}
		}
		return v
	case []any:
		for i := range v {
			flag, ok := v[max(i-1, 0)].(string)
			if text, is := v[i].(string); i > 0 && ok && is && secretFlag.MatchString(flag) && !strings.HasPrefix(text, "--") {
				v[i] = Mark
				continue
			}
			v[i] = walk(key, v[i], hidden)
		}
		return v
	case string:
		if hidden && v != "" && !reference.MatchString(key) {
			return Mark
		}
		return Text(v)
	}
	if hidden && value != nil {
		if _, flag := value.(bool); !flag {
			return Mark
		}
	}
	return value
}
