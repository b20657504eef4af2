package trigger

import (
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/kyma"
)

// terms are what makes Triggers and Subscriptions of one namespace equal: which
// events go to which address.
type terms struct{ source, eventType, version, address string }

// termsOf are the terms of a Subscription.
func termsOf(d delivery, isNamespace func(string) bool) terms {
	return terms{d.source, d.eventType, d.version, address(d.endpoint, isNamespace)}
}

// overlap says how the events of a Trigger relate to those of exact terms.
type overlap int

const (
	// unrelated: another Broker or address, or a filter that is narrower, or that
	// cannot be judged.
	unrelated overlap = iota
	// same: exactly these events go to the same address.
	same
	// wider: these events, and others, go to the same address.
	wider
)

// selection is what a Trigger selects and where it sends it, read once.
type selection struct {
	// terms of the filter; an attribute that is "" or missing means any value.
	terms
	// opaque filters (those of later Knative releases, or on other attributes)
	// are equal to nothing.
	opaque bool
}

// selectionOf reads a Trigger of any version; ok is false if it has another
// Broker than the default one.
func selectionOf(trigger *unstructured.Unstructured, isNamespace func(string) bool) (s selection, ok bool) {
	spec := kyma.MapAt(trigger.Object, "spec")
	if broker := kyma.Text(spec["broker"]); broker != "" && broker != kyma.DefaultBroker {
		return s, false
	}
	s.address = address(subscriberOf(trigger), isNamespace)
	if filters, _ := spec["filters"].([]any); len(filters) > 0 {
		s.opaque = true
		return s, true
	}
	// A nil filter is legal: it selects everything.
	filter := kyma.MapAt(spec, "filter")
	attributes := kyma.MapAt(filter, "attributes")
	if attributes == nil {
		attributes = kyma.MapAt(filter, "sourceAndType")
	}
	for key, value := range attributes {
		switch key {
		case kyma.SourceAttribute:
			s.source = kyma.Text(value)
		case kyma.TypeAttribute:
			s.eventType = kyma.Text(value)
		case kyma.EventTypeVersionAttribute:
			s.version = kyma.Text(value)
		default:
			s.opaque = true
		}
	}
	return s, true
}

// compare says how what is selected relates to exact terms.
func (s *selection) compare(t terms) overlap {
	if s.opaque || s.address == "" || s.address != t.address {
		return unrelated
	}
	admits := func(has, wants string) bool { return has == "" || has == wants }
	switch {
	case s.terms == t:
		return same
	case admits(s.source, t.source) && admits(s.eventType, t.eventType) && admits(s.version, t.version):
		return wider
	default:
		return unrelated
	}
}

// subscriberOf returns the URL that a Trigger sends to, "" if it cannot be told.
// What is referred to is taken by the name that cluster DNS gives it; what only
// the Trigger's controller can resolve, from its status.
func subscriberOf(trigger *unstructured.Unstructured) string {
	subscriber := kyma.MapAt(trigger.Object, "spec", "subscriber")
	uri := kyma.Text(subscriber["uri"])
	ref := kyma.MapAt(subscriber, "ref")
	if ref == nil && kyma.Text(subscriber["kind"]) != "" {
		ref = subscriber // as Knative 0.10 had it
	}
	if ref == nil {
		return uri
	}
	base := ""
	gv, err := schema.ParseGroupVersion(kyma.Text(ref["apiVersion"]))
	if err == nil && kyma.Text(ref["kind"]) == "Service" && (gv.Group == "" || gv.Group == kyma.Service.Group) {
		namespace := kyma.Text(ref["namespace"])
		if namespace == "" {
			namespace = trigger.GetNamespace()
		}
		base = "http://" + kyma.Text(ref["name"]) + "." + namespace + clusterSuffix
	}
	if base == "" {
		status := kyma.MapAt(trigger.Object, "status")
		if kyma.ReadinessOf(trigger).OK() {
			return kyma.Text(status["subscriberURI"])
		}
		return ""
	}
	// A URI beside a reference is relative to it.
	b, err := url.Parse(base)
	if err != nil {
		return ""
	}
	u, err := b.Parse(uri)
	if err != nil {
		return ""
	}
	return u.String()
}

const clusterSuffix = ".svc.cluster.local"

// address is a URL in the one form in which two that mean the same are equal:
// the default port and path left out, and a Service by its full name. A host is
// that of a Service only if its second label is a namespace: shop.example.com
// would become one otherwise.
func address(raw string, isNamespace func(string) bool) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return ""
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	host = strings.TrimSuffix(strings.TrimSuffix(host, clusterSuffix), ".svc")
	if service, namespace, ok := strings.Cut(host, "."); ok && service != "" && isNamespace(namespace) {
		host += clusterSuffix
	} else {
		host = strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port := u.Port(); port != "" && (u.Scheme != "http" || port != "80") && (u.Scheme != "https" || port != "443") {
		host += ":" + port
	}
	normal := url.URL{Scheme: strings.ToLower(u.Scheme), User: u.User, Host: host, Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery}
	if normal.Path == "/" {
		normal.Path = ""
	}
	return normal.String()
}
