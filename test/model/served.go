package model

import (
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Serve changes at which versions a kind is served from now on. Without one, the kind is away, and
// its objects with it: they are there again when it is.
func (s *Server) Serve(r schema.GroupResource, versions ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serving[r] = append([]string{}, versions...)
}

// versionsOf are those at which a kind is served.
func (s *Server) versionsOf(kind *Kind) []string {
	if versions, changed := s.serving[kind.Resource()]; changed {
		return versions
	}
	return []string{kind.Version}
}

// atVersion is what is shown of an object, or of a list, to who asks at that version. Nothing but
// that differs.
func atVersion(v any, r *Request) any {
	obj, ok := v.(Object)
	given, _ := obj["apiVersion"].(string)
	of, err := schema.ParseGroupVersion(given)
	want := schema.GroupVersion{Group: r.Group, Version: r.Version}
	if !ok || err != nil || of.Group != r.Group || r.Subresource == "scale" {
		return v
	}
	out := Object{}
	for k, field := range obj {
		out[k] = field
	}
	out["apiVersion"] = want.String()
	if items, isList := obj["items"].([]any); isList {
		shown := make([]any, len(items))
		for i := range items {
			shown[i] = atVersion(items[i], r)
		}
		out["items"] = shown
	}
	return out
}

// Admit lets f change what is to be stored, as schemas and webhooks do: fields are dropped, added
// and corrected. f must not keep the object.
func (s *Server) Admit(f func(r *Request, obj Object)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admit = append(s.admit, f)
}

func (s *Server) admitted(r *Request, obj Object) {
	if r.Subresource == "status" {
		return
	}
	for _, f := range s.admit {
		f(r, obj)
	}
}

// exactly are the objects as they were at the version that a list asks for; false if it asks for
// those of now.
func (s *Server) exactly(r *Request) (map[Key]Object, bool, error) {
	given := r.query.Get("resourceVersion")
	if given == "" || given == "0" || r.query.Get("resourceVersionMatch") != "Exact" {
		return nil, false, nil
	}
	at, err := strconv.ParseInt(given, 10, 64)
	switch {
	case err != nil:
		return nil, false, apierrors.NewBadRequest(err.Error())
	case at < s.oldest:
		return nil, false, apierrors.NewResourceExpired("The provided resource version is too old to display a consistent list result.")
	}
	then := map[Key]Object{}
	for _, w := range s.history {
		if w.Version > at {
			break
		}
		if w.After == nil {
			delete(then, w.Key)
		} else {
			then[w.Key] = w.After
		}
	}
	return then, true, nil
}
