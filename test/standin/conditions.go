package standin

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// conditions are status.conditions by type, kept as Knative keeps them: one
// happy condition, Ready, that follows the others.
type conditions map[string]condition

type condition struct {
	// severity is "" for an error.
	status, severity, reason, message, since string
}

func conditionsOf(u *unstructured.Unstructured) conditions {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	out := conditions{}
	for _, item := range list {
		m, ok := item.(map[string]any)
		if !ok {
			continue
		}
		text := func(key string) string { s, _ := m[key].(string); return s }
		out[text("type")] = condition{
			status: text("status"), severity: text("severity"), reason: text("reason"), message: text("message"), since: text("lastTransitionTime"),
		}
	}
	return out
}

// initialize sets what is not there yet to Unknown.
func (c conditions) initialize(types ...string) {
	for _, t := range types {
		if _, ok := c[t]; !ok {
			c.mark(t, "Unknown", "", "")
		}
	}
}

// mark changes a condition, and its time only along with it.
func (c conditions) mark(kind, status, reason, message string) {
	now := condition{status: status, severity: c[kind].severity, reason: reason, message: message, since: c[kind].since}
	if c[kind] != now {
		now.since = time.Now().UTC().Format(time.RFC3339)
	}
	c[kind] = now
}

// inform marks a condition that says something, and nothing against the object.
func (c conditions) inform(kind, status, reason, message string) {
	about := c[kind]
	about.severity = "Info"
	c[kind] = about
	c.mark(kind, status, reason, message)
}

// summarize derives Ready from its dependents: False before Unknown before True.
func (c conditions) summarize(dependents ...string) {
	for _, status := range []string{"False", "Unknown"} {
		for _, d := range dependents {
			if c[d].status == status {
				c.mark("Ready", status, c[d].reason, c[d].message)
				return
			}
		}
	}
	c.mark("Ready", "True", "", "")
}

// list is how the API server stores them: ordered by type.
func (c conditions) list() []any {
	out := make([]any, 0, len(c))
	for _, kind := range slices.Sorted(maps.Keys(c)) {
		m := map[string]any{"type": kind, "status": c[kind].status, "lastTransitionTime": c[kind].since}
		if c[kind].severity != "" {
			m["severity"] = c[kind].severity
		}
		if c[kind].reason != "" {
			m["reason"] = c[kind].reason
		}
		if c[kind].message != "" {
			m["message"] = c[kind].message
		}
		out = append(out, m)
	}
	return out
}

func isReady(u *unstructured.Unstructured) bool {
	return u != nil && conditionsOf(u)["Ready"].status == "True"
}
