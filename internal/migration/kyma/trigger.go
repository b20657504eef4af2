package kyma

import (
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
)

// FilterOf returns the attributes by which a Trigger of any version selects events;
// one that is "" or missing means any value. opaque: its filters are those of later
// Knative releases, and cannot be judged.
func FilterOf(trigger *unstructured.Unstructured) (attributes map[string]string, opaque bool) {
	spec := k8sobject.MapAt(trigger.Object, "spec")
	if filters, _ := spec["filters"].([]any); len(filters) > 0 {
		return nil, true
	}
	// A nil filter is legal: it selects everything.
	filter := k8sobject.MapAt(spec, "filter")
	raw := k8sobject.MapAt(filter, "attributes")
	if raw == nil {
		raw = k8sobject.MapAt(filter, "sourceAndType")
	}
	attributes = map[string]string{}
	for key, value := range raw {
		attributes[key] = k8sobject.Text(value)
	}
	return attributes, false
}

// SubscriberOf returns the URL that a Trigger sends to, "" if it cannot be told.
// What is referred to is taken by the name that cluster DNS gives it; what only
// the Trigger's controller can resolve, from its status.
func SubscriberOf(trigger *unstructured.Unstructured) string {
	subscriber := k8sobject.MapAt(trigger.Object, "spec", "subscriber")
	uri := k8sobject.Text(subscriber["uri"])
	ref := k8sobject.MapAt(subscriber, "ref")
	if ref == nil && k8sobject.Text(subscriber["kind"]) != "" {
		ref = subscriber // as Knative 0.10 had it
	}
	if ref == nil {
		return uri
	}
	base := ""
	gv, err := schema.ParseGroupVersion(k8sobject.Text(ref["apiVersion"]))
	if err == nil && k8sobject.Text(ref["kind"]) == "Service" && (gv.Group == "" || gv.Group == Service.Group) {
		namespace := k8sobject.Text(ref["namespace"])
		if namespace == "" {
			namespace = trigger.GetNamespace()
		}
		base = "http://" + k8sobject.Text(ref["name"]) + "." + namespace + clusterSuffix
	}
	if base == "" {
		status := k8sobject.MapAt(trigger.Object, "status")
		if k8sobject.ReadinessOf(trigger).OK() {
			return k8sobject.Text(status["subscriberURI"])
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

// Address is a URL in the one form in which two that mean the same are equal:
// the default port and path left out, and a Service by its full name. A host is
// that of a Service only if its second label is a namespace: shop.example.com
// would become one otherwise.
func Address(raw string, isNamespace func(string) bool) string {
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
