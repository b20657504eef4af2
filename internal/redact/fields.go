package redact

import (
	"encoding/json"
	"fmt"
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
		if value, found := field(of.Object, path); found {
			shown[path] = Short(value, longestField)
		}
	}
	return shown
}

// Short is a value in JSON, as much of it as has room in so many bytes. It hides no secret.
func Short(value any, longest int) string {
	raw, err := json.Marshal(value)
	switch {
	case err != nil:
		return fmt.Sprintf("%T", value)
	case len(raw) > longest:
		return strings.ToValidUTF8(string(raw[:longest]), "") + "…"
	}
	return string(raw)
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
