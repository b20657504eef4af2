package mesh

import (
	"maps"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/knative"
)

// The kinds of the mesh, in the version that eventing needs.
var (
	triggers = schema.GroupVersionResource{Group: knative.Trigger.Group, Version: "v1", Resource: "triggers"}
	brokers  = schema.GroupVersionResource{Group: knative.Broker.Group, Version: "v1", Resource: "brokers"}
)

const (
	deliverPath = "/deliver/"
	// triggerQuery is before the name of the Trigger in the URI of its subscriber: a probe of all
	// Triggers has no type that tells it.
	triggerQuery = "?" + backend.TriggerParameter + "="
	// brokerAnnotation has the UID of the Broker that a Trigger was created for.
	brokerAnnotation = "eventing.kyma-project.io/broker"
)

// Broker is the Broker that Triggers are for, and the epoch in which they are wanted.
type Broker struct {
	Name  string
	UID   types.UID
	Epoch string
	// URL is where it takes events.
	URL string
}

// wanted are the Triggers of a Subscription, by name.
func (t *Triggers) wanted(s *eventingv1alpha2.Subscription, b Broker) map[string]*unstructured.Unstructured {
	all := map[string]*unstructured.Unstructured{}
	for _, eventType := range s.Spec.Types {
		source, of := matched(s, eventType)
		attributes := map[string]any{knative.TypeAttribute: of}
		if source != "" {
			attributes[knative.SourceAttribute] = source
		}
		name, uri := triggerName(s, eventType), deliverPath+s.Namespace+"/"+s.Name
		spec := map[string]any{"broker": b.Name, "filter": map[string]any{"attributes": attributes}}
		if expression, ok := expressionOf(of, source); ok {
			spec["filters"] = []any{map[string]any{"cesql": expression}}
		}
		spec["subscriber"] = map[string]any{
			"ref": map[string]any{"apiVersion": "v1", "kind": "Service", "namespace": t.namespace, "name": t.names.Controller()},
			"uri": uri + triggerQuery + name,
		}
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": triggers.GroupVersion().String(), "kind": knative.Trigger.Kind, "spec": spec}}
		u.SetName(name)
		u.SetNamespace(t.namespace)
		u.SetLabels(t.names.Labels(backend.PlaneMesh, "trigger", t.version, nil))
		u.SetAnnotations(map[string]string{backend.EpochAnnotation: b.Epoch, brokerAnnotation: string(b.UID)})
		all[name] = u
	}
	return all
}

// another is a Trigger that is about to be created. Its URI is one that no Trigger had before: a
// probe that came through an earlier one of the same name says nothing about it.
func another(want *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	u := want.DeepCopy()
	uri, _ := uriOf(u)
	return u, unstructured.SetNestedField(u.Object, uri+"."+uuid.NewString(), "spec", "subscriber", "uri")
}

// uriOf is where a Trigger delivers to. creation is what tells it from an earlier one of its name:
// "" if an earlier version has created it.
func uriOf(trigger *unstructured.Unstructured) (uri, creation string) {
	uri, _, _ = unstructured.NestedString(trigger.Object, "spec", "subscriber", "uri")
	path, query, asked := strings.Cut(uri, triggerQuery)
	if !asked {
		return uri, ""
	}
	name, creation, _ := strings.Cut(query, ".")
	return path + triggerQuery + name, creation
}

func triggerName(s *eventingv1alpha2.Subscription, eventType string) string {
	source, of := matched(s, eventType)
	return backend.TriggerName(string(s.UID), source, s.Spec.TypeMatching == eventingv1alpha2.Exact, of)
}

// matched are source and type of the events that a type of a Subscription means.
func matched(s *eventingv1alpha2.Subscription, eventType string) (source, of string) {
	return backend.Matched(s.Spec.TypeMatching == eventingv1alpha2.Exact, s.Spec.Source, eventType)
}

// expressionOf is a filter in CloudEvents SQL for a type and a source ("" is any), which also lets
// the probe of all Triggers through. False if they have characters that Knative reads otherwise:
// its parser has no way to write a backslash.
func expressionOf(eventType, source string) (expression string, ok bool) {
	if strings.ContainsFunc(eventType+source, func(r rune) bool { return r < ' ' || r > '~' || r == '\'' || r == '\\' }) {
		return "", false
	}
	expression = knative.TypeAttribute + " = '" + eventType + "'"
	if source != "" {
		expression += " AND " + knative.SourceAttribute + " = '" + source + "'"
	}
	return "(EXISTS " + backend.ProbeAttribute + " AND " + backend.ProbeAttribute + " = '" + everyTrigger + "') OR (" + expression + ")", true
}

// wide tells whether the filter of a Trigger lets the probe of all through.
func wide(trigger *unstructured.Unstructured) bool { return len(filtersOf(trigger)) > 0 }

func filtersOf(trigger *unstructured.Unstructured) []any {
	filters, _, _ := unstructured.NestedSlice(trigger.Object, "spec", "filters")
	return filters
}

// attributesOf is the filter that Knative uses if there is no other one. It is in each Trigger.
func attributesOf(trigger *unstructured.Unstructured) map[string]string {
	attributes, _, _ := unstructured.NestedStringMap(trigger.Object, "spec", "filter", "attributes")
	return attributes
}

// differs tells whether a Trigger does something else than is wanted. What Knative's webhook adds
// is no difference. One without the filter for probes of all, as an earlier version created it, is
// none either: it is probed alone.
func differs(is, want *unstructured.Unstructured) bool {
	spec := func(u *unstructured.Unstructured, fields ...string) string {
		text, _, _ := unstructured.NestedString(u.Object, append([]string{"spec"}, fields...)...)
		return text
	}
	for _, fields := range [][]string{
		{"broker"},
		{"subscriber", "ref", "apiVersion"},
		{"subscriber", "ref", "kind"},
		{"subscriber", "ref", "namespace"},
		{"subscriber", "ref", "name"},
	} {
		if spec(is, fields...) != spec(want, fields...) {
			return true
		}
	}
	uri, _ := uriOf(is)
	wantURI, _ := uriOf(want)
	path, _, _ := strings.Cut(wantURI, "?")
	asWanted, asEarlier := uri == wantURI && wide(is) == wide(want), uri == path && !wide(is)
	return !asWanted && !asEarlier || wide(is) && !equality.Semantic.DeepEqual(filtersOf(is), filtersOf(want)) ||
		!maps.Equal(attributesOf(is), attributesOf(want)) || is.GetAnnotations()[brokerAnnotation] != want.GetAnnotations()[brokerAnnotation]
}

// marked tells whether a Trigger has the labels and the epoch that are wanted.
func marked(is, want *unstructured.Unstructured) bool {
	for key, value := range want.GetLabels() {
		if is.GetLabels()[key] != value {
			return false
		}
	}
	return is.GetAnnotations()[backend.EpochAnnotation] == want.GetAnnotations()[backend.EpochAnnotation]
}

// subscriptionOf is the Subscription that a Trigger delivers to; empty if it is no Trigger of ours.
func subscriptionOf(trigger *unstructured.Unstructured) types.NamespacedName {
	uri, _, _ := unstructured.NestedString(trigger.Object, "spec", "subscriber", "uri")
	uri, _, _ = strings.Cut(uri, "?")
	path, ours := strings.CutPrefix(uri, deliverPath)
	namespace, name, whole := strings.Cut(path, "/")
	if !ours || !whole {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: namespace, Name: name}
}
