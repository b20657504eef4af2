package faultproxy

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// Request is what one HTTP request asks of the API server.
type Request struct {
	// Write numbers the writes in the order in which they arrived, from 1. It is
	// 0 for everything that changes nothing.
	Write int
	// Verb is create, update, patch, delete, deletecollection, get, list or
	// watch, as RBAC and the audit log name them; for a path that is no resource
	// it is the HTTP method in lower case.
	Verb string
	schema.GroupVersionResource
	Subresource string
	Namespace   string
	// Name is empty for a create whose body is in an unknown encoding.
	Name      string
	UserAgent string
	Path      string
	// Continues says that the list goes on from a continue token.
	Continues bool
	// DryRun says that a write is only asked for its outcome.
	DryRun bool
	// Renews says that the write renews a Lease that its writer holds already.
	Renews bool

	continueToken string
}

// Writes says whether the request can change the cluster.
func (r Request) Writes() bool {
	if r.Resource == "" || r.DryRun {
		return false
	}
	// Access and token reviews are created, but only answered.
	if r.Group == "authorization.k8s.io" || r.Group == "authentication.k8s.io" {
		return false
	}
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.Verb)
}

// Is says whether the request is for a resource (in its plural, lower-case
// spelling) and, if any are given, for one of these verbs.
func (r Request) Is(resource string, verbs ...string) bool {
	return r.Resource == resource && (len(verbs) == 0 || slices.Contains(verbs, r.Verb))
}

// String spells the request as a person would: "create secrets kyma-system/x".
func (r Request) String() string {
	if r.Resource == "" {
		return r.Verb + " " + r.Path
	}
	s := r.Verb + " " + r.GroupResource().String()
	if r.Subresource != "" {
		s += "/" + r.Subresource
	}
	switch {
	case r.Namespace != "" && r.Name != "":
		s += " " + r.Namespace + "/" + r.Name
	case r.Namespace != "":
		s += " in " + r.Namespace
	case r.Name != "":
		s += " " + r.Name
	}
	return s
}

// classify reads method, URL, headers and, for a create, the body.
func classify(method string, u *url.URL, header http.Header, body []byte) Request {
	r := Request{Verb: strings.ToLower(method), UserAgent: header.Get("User-Agent"), Path: u.Path}

	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		r.Version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		r.Group, r.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return r // discovery, health, OpenAPI
	}
	// "namespaces/x" is the Namespace itself, "namespaces/x/status" its
	// subresource, and "namespaces/x/pods" the pods in it.
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		r.Namespace, parts = parts[1], parts[2:]
	}
	r.Resource = parts[0]
	if len(parts) > 1 {
		r.Name = parts[1]
	}
	if len(parts) > 2 {
		r.Subresource = parts[2]
	}

	query := u.Query()
	r.DryRun = query.Has("dryRun")
	watch := query.Get("watch")
	switch method {
	case http.MethodGet, http.MethodHead:
		switch {
		case watch == "true" || watch == "1":
			r.Verb = "watch"
		case r.Name == "":
			r.Verb = "list"
			r.continueToken = query.Get("continue")
			r.Continues = r.continueToken != ""
		default:
			r.Verb = "get"
		}
	case http.MethodPost:
		r.Verb = "create"
	case http.MethodPut:
		r.Verb = "update"
	case http.MethodPatch:
		r.Verb = "patch"
	case http.MethodDelete:
		r.Verb = "delete"
		if r.Name == "" {
			r.Verb = "deletecollection"
		}
	}
	switch {
	case r.Verb == "create" && r.Name == "", r.Resource == "leases" && r.Verb == "update":
		r.read(body)
	}
	return r
}

// read takes from the body what the URL does not say. A body in an encoding that
// is not known here leaves it unsaid.
func (r *Request) read(body []byte) {
	var object struct {
		Metadata struct{ Name string }
		Spec     struct{ HolderIdentity, AcquireTime, RenewTime string }
	}
	// Typed clients speak protobuf.
	if decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
		if body, err = json.Marshal(decoded); err != nil {
			return
		}
	}
	if json.Unmarshal(body, &object) != nil {
		return
	}
	if r.Name == "" {
		r.Name = object.Metadata.Name
	}
	lease := object.Spec
	r.Renews = r.Resource == "leases" && r.Verb == "update" && lease.HolderIdentity != "" && lease.AcquireTime != lease.RenewTime
}
