// Package route compares the two ways by which events reach a subscriber: what a Kyma
// Subscription asks for, what a Trigger selects, and the Trigger that stands for a
// Subscription. It is pure, and takes whatever the API server has stored.
package route

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Delivery is what a Subscription asks for: which events go where.
type Delivery struct {
	Source, EventType, Version string
	// Endpoint is an absolute URL.
	Endpoint string
}

func (d Delivery) String() string {
	return fmt.Sprintf("%s %s of %s to %s", d.EventType, d.Version, d.Source, redact.URL(d.Endpoint))
}

// Obstacle is why a Subscription has no equivalent in the mesh.
type Obstacle struct {
	Problem string
	// Note is what to do. Command is one complete command, "" for none.
	Note, Command string
	// Passes says that it goes away by itself.
	Passes bool
}

// DeliveryOf reads what a Subscription asks for. It is pure, and takes whatever
// was stored before the schema said what may be.
func DeliveryOf(sub *unstructured.Unstructured) (Delivery, *Obstacle) {
	spec := k8sobject.MapAt(sub.Object, "spec")
	var d Delivery
	for _, field := range []struct {
		name string
		to   *string
	}{
		{"source_id", &d.Source},
		{"event_type", &d.EventType},
		{"event_type_version", &d.Version},
	} {
		value, why := attribute(spec[field.name])
		if why != "" {
			return d, &Obstacle{
				Problem: fmt.Sprintf("no filter of a Trigger can carry spec.%s: %s", field.name, why),
				Note:    "Set it to the value that the events have. If it never got any events, delete the Subscription.",
			}
		}
		*field.to = value
	}
	var why string
	d.Endpoint, why = endpoint(spec["endpoint"])
	if why != "" {
		return d, &Obstacle{
			Problem: "a Trigger needs a subscriber: " + why,
			Note:    "Set spec.endpoint to the absolute URL that must get the events, or delete the Subscription.",
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

// Unparsable says whether a Subscription has an endpoint that is no URL.
func Unparsable(sub *unstructured.Unstructured) bool {
	_, err := url.Parse(k8sobject.Text(k8sobject.MapAt(sub.Object, "spec")["endpoint"]))
	return err != nil
}

// AsksForNameHeader says whether the Subscription asks for its own name in a
// header.
func AsksForNameHeader(sub *unstructured.Unstructured) bool {
	asks, _ := k8sobject.MapAt(sub.Object, "spec")["include_subscription_name_header"].(bool)
	return asks
}

// Mark is the value of kyma.DeliveryAnnotation on the Trigger of a Subscription. It is "" for a
// Trigger that several share: it cannot follow one of them.
func Mark(sub *unstructured.Unstructured, d Delivery, others ...*unstructured.Unstructured) string {
	if sub.GetUID() == "" || len(others) > 0 {
		return ""
	}
	// No part has a line break: none passes through a header or a URL.
	sum := sha256.Sum256([]byte(strings.Join([]string{string(sub.GetUID()), d.Source, d.EventType, d.Version, d.Endpoint}, "\n")))
	return hex.EncodeToString(sum[:8])
}

// NewTrigger returns the Trigger that a Subscription becomes. others are equal
// Subscriptions that share it: a label of theirs that it lacks is kept, too. It gets none
// that a tool claims, which may delete what carries its label and is not in its source.
func NewTrigger(k migration.Kind, sub *unstructured.Unstructured, d Delivery, others ...*unstructured.Unstructured) *unstructured.Unstructured {
	labels := map[string]any{}
	for _, from := range append([]*unstructured.Unstructured{sub}, others...) {
		for key, value := range from.GetLabels() {
			if _, ok := labels[key]; !ok && !k8sobject.IsClaimed(key) {
				labels[key] = value
			}
		}
	}
	annotations := map[string]any{kyma.OriginAnnotation: sub.GetName()}
	if mark := Mark(sub, d, others...); mark != "" {
		annotations[kyma.DeliveryAnnotation] = mark
	}
	meta := map[string]any{
		"name":        kyma.TriggerName(sub),
		"namespace":   sub.GetNamespace(),
		"annotations": annotations,
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
				knative.SourceAttribute:           d.Source,
				knative.TypeAttribute:             d.EventType,
				knative.EventTypeVersionAttribute: d.Version,
			}},
			"subscriber": map[string]any{"uri": d.Endpoint},
		},
	}}
}
