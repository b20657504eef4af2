package trigger

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// originAnnotation on a Trigger names the Subscription it came from, in the same
// namespace.
const originAnnotation = "eventmesh-migration.kyma-project.io/subscription"

// delivery is what a Subscription asks for: which events go where.
type delivery struct {
	source, eventType, version string
	// endpoint is an absolute URL.
	endpoint string
}

func (d delivery) String() string {
	return fmt.Sprintf("%s %s of %s to %s", d.eventType, d.version, d.source, redacted(d.endpoint))
}

// redacted is an endpoint for people: without what nobody else should read.
func redacted(endpoint string) string { return redact.URL(endpoint) }

// obstacle is why a Subscription has no equivalent in the mesh.
type obstacle struct {
	problem, hint string
	// passes says that it goes away by itself.
	passes bool
}

// deliveryOf reads what a Subscription asks for. It is pure, and takes whatever
// was stored before the schema said what may be.
func deliveryOf(sub *unstructured.Unstructured) (delivery, *obstacle) {
	spec := kyma.MapAt(sub.Object, "spec")
	var d delivery
	for _, field := range []struct {
		name string
		to   *string
	}{
		{"source_id", &d.source},
		{"event_type", &d.eventType},
		{"event_type_version", &d.version},
	} {
		value, why := attribute(spec[field.name])
		if why != "" {
			return d, &obstacle{
				problem: fmt.Sprintf("no filter of a Trigger can carry spec.%s: %s", field.name, why),
				hint:    "set it to what the events really have, or delete the Subscription if it never got any",
			}
		}
		*field.to = value
	}
	var why string
	d.endpoint, why = endpoint(spec["endpoint"])
	if why != "" {
		return d, &obstacle{
			problem: "a Trigger needs a subscriber: " + why,
			hint:    "set spec.endpoint to the absolute URL that is to get the events, or delete the Subscription",
		}
	}
	return d, nil
}

// attribute returns the value if the filter of a Trigger can ask for exactly it:
// an empty one means any, and only printable ASCII passes through the header of
// an event unchanged.
func attribute(v any) (value, why string) {
	if v == nil {
		return "", "it is missing"
	}
	value, ok := v.(string)
	switch {
	case !ok:
		return "", fmt.Sprintf("it is %v, not a string", v)
	case value == "":
		return "", "it is empty, which would mean any"
	case strings.TrimSpace(value) != value:
		return "", fmt.Sprintf("%q begins or ends with a space", value)
	}
	for _, r := range value {
		if r > unicode.MaxASCII || !unicode.IsPrint(r) {
			return "", fmt.Sprintf("%q has a character that no header carries", value)
		}
	}
	return value, ""
}

// endpoint returns the value if it is a URL that a Trigger takes as its
// subscriber.
func endpoint(v any) (value, why string) {
	value, ok := v.(string)
	switch {
	case v == nil || ok && value == "":
		return "", "there is no spec.endpoint"
	case !ok:
		return "", "spec.endpoint is not a string"
	}
	u, err := url.Parse(value)
	if err != nil {
		return "", "spec.endpoint is not a URL" // where in it a password is, nobody knows
	}
	// What does not look like a URL is not quoted: nobody can tell what in it is a
	// password.
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return "", "spec.endpoint is no absolute HTTP URL"
	case u.Hostname() == "":
		return "", "spec.endpoint has no host"
	}
	// Parse takes the scheme in capitals, Knative does not.
	return u.Scheme + value[len(u.Scheme):], ""
}

// unparsable says whether a Subscription has an endpoint that is no URL.
func unparsable(sub *unstructured.Unstructured) bool {
	_, err := url.Parse(kyma.Text(kyma.MapAt(sub.Object, "spec")["endpoint"]))
	return err != nil
}

// asksForNameHeader says whether the Subscription asks for its own name in a
// header.
func asksForNameHeader(sub *unstructured.Unstructured) bool {
	asks, _ := kyma.MapAt(sub.Object, "spec")["include_subscription_name_header"].(bool)
	return asks
}

// trackingLabels say that an object was applied from Git, or belongs to a Helm release.
// Argo CD (label tracking, its default before 3.0) deletes what carries its label and is
// not in Git: a Trigger must not have it.
var trackingLabels = []string{"app.kubernetes.io/instance", "argocd.argoproj.io/instance"}

// newTrigger returns the Trigger that a Subscription becomes. others are equal
// Subscriptions that share it: a label of theirs that it lacks is kept, too. It gets no
// trackingLabels.
func newTrigger(k migration.Kind, sub *unstructured.Unstructured, d delivery, others ...*unstructured.Unstructured) *unstructured.Unstructured {
	labels := map[string]any{}
	for _, from := range append([]*unstructured.Unstructured{sub}, others...) {
		for key, value := range from.GetLabels() {
			if _, ok := labels[key]; !ok && !slices.Contains(trackingLabels, key) {
				labels[key] = value
			}
		}
	}
	meta := map[string]any{
		"name":        kyma.TriggerName(sub),
		"namespace":   sub.GetNamespace(),
		"annotations": map[string]any{originAnnotation: sub.GetName()},
	}
	if len(labels) > 0 {
		meta["labels"] = labels
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": k.Resource.GroupVersion().String(),
		"kind":       k.Kind,
		"metadata":   meta,
		"spec": map[string]any{
			"broker": kyma.DefaultBroker,
			"filter": map[string]any{"attributes": map[string]any{
				kyma.SourceAttribute:           d.source,
				kyma.TypeAttribute:             d.eventType,
				kyma.EventTypeVersionAttribute: d.version,
			}},
			"subscriber": map[string]any{"uri": d.endpoint},
		},
	}}
}
