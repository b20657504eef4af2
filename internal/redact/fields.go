package redact

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// longestField is how much of a value Fields shows, in bytes.
const longestField = 80

// Fields are the values of fields by their paths, such as spec.replicas, in JSON, without secrets
// and shortened. What does not exist, and what is in a list, is left out.
func Fields(of *unstructured.Unstructured, paths ...string) map[string]string {
	shown, of := map[string]string{}, Object(of)
	for _, path := range paths {
		value, found := field(of.Object, path)
		raw, err := json.Marshal(value)
		if !found || err != nil {
			continue
		}
		shown[path] = string(raw)
		if len(raw) > longestField {
			shown[path] = strings.ToValidUTF8(string(raw[:longestField]), "") + "…"
		}
	}
	return shown
}

// field finds a value by its path. Keys may have dots.
func field(in any, path string) (any, bool) {
	fields, _ := in.(map[string]any)
	for key, value := range fields {
		rest, ok := strings.CutPrefix(path, key)
		switch {
		case ok && rest == "":
			return value, value != nil
		case ok && rest[0] == '.':
			if found, ok := field(value, rest[1:]); ok {
				return found, true
			}
		}
	}
	return nil, false
}
