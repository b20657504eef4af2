// Package support makes the archive for a support ticket: what the jobs say, what
// they keep, and the objects of the event path, without what nobody else should
// read.
package support

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Redacted stands where something was left out.
const Redacted = "REDACTED"

// sensitive are keys whose values nobody else should read. Names of objects are no
// secrets, and a ticket is of little use without them: see reference.
var sensitive = regexp.MustCompile(`(?i)passw|token|secret|credential|api-?_?key|private|authori[sz]ation|certificate|cabundle|bearer|cookie|session|signature|headers|queryparameters`)

// reference are keys that name something, and hold no secret themselves.
var reference = regexp.MustCompile(`(?i)(name|ref|namespace|kind|type|mount|mountpath|url)$`)

// safeEnv are variables of the event path, needed to understand it.
var safeEnv = []string{"EVENT_SOURCE", "SINK_URI", "NAMESPACE"}

// patterns find secrets in texts, wherever they stand.
var patterns = []struct {
	find    *regexp.Regexp
	replace string
}{
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]+-----.*?(-----END [A-Z ]+-----|$)`), Redacted},
	{regexp.MustCompile(`eyJ[\w-]{8,}\.[\w-]+\.[\w-]*`), Redacted}, // a JSON web token
	{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}`), "${1} " + Redacted},
	{regexp.MustCompile(`://[^/\s:@"]*:?[^/\s@"]*@`), "://" + Redacted + "@"},
	{regexp.MustCompile(`(?i)([?&;\s"'-]|^)([\w.-]*(?:passw\w*|token|secret|api-?_?key|access-?_?key|signature|sig)[\w.-]*)(=|":\s*"|:\s+)([^&\s"']+)`), "${1}${2}${3}" + Redacted},
}

// Text returns a text without what looks like a secret.
func Text(s string) string {
	for _, p := range patterns {
		s = p.find.ReplaceAllString(s, p.replace)
	}
	return s
}

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
					m[k] = Redacted
				}
			}
		}
	}
	for key, value := range out.Object {
		if key != "metadata" {
			out.Object[key] = walk(key, value, false)
			continue
		}
		meta, _ := value.(map[string]any)
		for _, part := range []string{"annotations", "labels"} {
			if m, ok := meta[part].(map[string]any); ok {
				for k, v := range m {
					if s, ok := v.(string); ok {
						m[k] = Text(s)
					}
				}
			}
		}
	}
	return out
}

// walk goes through a value. hidden: everything below is left out.
func walk(key string, value any, hidden bool) any {
	switch v := value.(type) {
	case map[string]any:
		if name, ok := v["name"].(string); ok && !hidden {
			if _, env := v["value"]; env && !slices.Contains(safeEnv, name) {
				// A variable, a header: what it holds is not for us to know.
				v["value"] = Redacted
			}
		}
		for k, below := range v {
			// Parameters of a ServiceInstance or ServiceBinding are the user's own.
			hide := hidden || k == "parameters" || sensitive.MatchString(k) && !reference.MatchString(k)
			v[k] = walk(k, below, hide)
		}
		return v
	case []any:
		for i := range v {
			v[i] = walk(key, v[i], hidden)
		}
		return v
	case string:
		if hidden && v != "" && !reference.MatchString(key) {
			return Redacted
		}
		return Text(v)
	}
	if hidden && value != nil {
		if _, flag := value.(bool); !flag {
			return Redacted
		}
	}
	return value
}

// fileName makes a name for a file of the name of an object.
func fileName(parts ...string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r) {
			return r
		}
		return '_'
	}, strings.Join(parts, "_"))
}
