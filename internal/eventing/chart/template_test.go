package chart

import (
	"strings"
	"testing"
)

// evaluate renders a template with the data of these tests.
func evaluate(t testing.TB, content string) (string, error) {
	t.Helper()
	all := templates{}
	if err := all.add("test", content); err != nil {
		return "", err
	}
	execute, err := all.executor()
	if err != nil {
		return "", err
	}
	data, err := plain("", map[string]any{
		"text": "Hello", "empty": "", "int": int32(2), "null": nil, "list": []any{"x", int64(7)},
		"map": map[string]any{"b": "2", "a": "1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return execute("test", data)
}

func TestEvaluate(t *testing.T) {
	for _, tc := range []struct{ reason, content, want string }{
		{"a value and a function of sprig", "{{ .text | lower | quote }}", `"hello"`},
		{"a number is written as JSON has it", "{{ .int }}", "2"},
		{"maps are written in an order", "{{ toYaml .map | nindent 2 }}", "\n  a: \"1\"\n  b: \"2\""},
		{"a named template, with what it is given", `{{ define "a" }}<{{ . }}>{{ end }}{{ include "a" .text | upper }}`, "<HELLO>"},
		{"what is there is not required", `{{ required "say it" .text }}`, "Hello"},
		{"YAML is read", `{{ (fromYaml "a: b").a }}`, "b"},
		{"a value that has none has another", "{{ .empty | default .text }}", "Hello"},
	} {
		if got, err := evaluate(t, tc.content); err != nil || got != tc.want {
			t.Errorf("%s: %q, want %q: %v", tc.reason, got, tc.want, err)
		}
	}
}

// TestEvaluateRefuses: what would become a manifest that nobody means is an error. Helm writes the
// first four.
func TestEvaluateRefuses(t *testing.T) {
	for _, tc := range []struct{ reason, content, want string }{
		{"a key that nothing has", "{{ .missing }}", "missing"},
		{"null", "{{ .null }}", "<no value>"},
		{"a format that does not fit", `{{ printf "%d" .text }}`, "%!"},
		{"the time, which is another one in each reconciliation", "{{ now }}", `"now" not defined`},
		{"the environment of the operator", `{{ env "HOME" }}`, `"env" not defined`},
		{"a template that is not there", `{{ include "none" . }}`, "none"},
		{"a template that includes itself", `{{ define "a" }}{{ include "a" . }}{{ end }}{{ include "a" . }}`, "includes itself"},
		{"two templates of a name", `{{ define "test" }}a{{ end }}{{ define "test" }}b{{ end }}`, "test"},
		{"what is required", `{{ required "say it" .empty }}`, "say it"},
		{"YAML that is none", `{{ fromYaml "a: b: c" }}`, "mapping values"},
		{"a method, by which the linker would keep all of them", `{{ .text.String }}`, "String"},
	} {
		if got, err := evaluate(t, tc.content); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %q, %v", tc.reason, got, err)
		}
	}
}
