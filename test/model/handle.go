package model

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/version"
)

// take carries a request out, all at once.
func (s *Server) take(ctx context.Context, r *Request) *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Time = time.Now()
	resp := s.answer(ctx, r)
	r.Code = resp.StatusCode
	s.requests = append(s.requests, r)
	return resp
}

func (s *Server) answer(ctx context.Context, r *Request) *http.Response {
	code, v, err := s.carryOut(ctx, r)
	if err != nil {
		return respondStatus(statusOf(err))
	}
	if w, ok := v.(*watcher); ok {
		resp := respond(http.StatusOK, "application/json", nil)
		resp.Body, resp.ContentLength = w, -1
		return resp
	}
	return respondJSON(code, atVersion(v, r))
}

func (s *Server) carryOut(ctx context.Context, r *Request) (int, any, error) {
	if r.Verb == "" {
		v, err := s.discover(r)
		return http.StatusOK, v, err
	}
	if r.Group == "authorization.k8s.io" && r.Plural == "selfsubjectaccessreviews" {
		v, err := s.review(r)
		return http.StatusCreated, v, err
	}
	kind := s.kinds[schema.GroupResource{Group: r.Group, Resource: r.Plural}]
	if kind == nil || !slices.Contains(s.versionsOf(kind), r.Version) || r.Subresource != "" && !(r.Subresource == "status" && kind.Status || r.Subresource == "scale" && kind.Scale) {
		return 0, nil, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Verb, schema.GroupResource{Group: r.Group, Resource: r.Plural}, r.Name, "", 0, true)
	}
	if s.denied != nil && s.denied(Permission{r.Verb, r.Group, r.Plural, r.Subresource, r.Namespace}) {
		return 0, nil, apierrors.NewForbidden(kind.Resource(), r.Name, fmt.Errorf("User %q cannot %s resource %q in API group %q", r.Actor, r.Verb, r.Plural, r.Group)) //nolint:staticcheck // the real server's words
	}
	if err := s.refused(r); err != nil {
		return 0, nil, err
	}
	key := r.Key()
	obj := s.objects[key]
	switch r.Verb {
	case "list":
		v, err := s.list(r, kind)
		return http.StatusOK, v, err
	case "watch":
		v, err := s.watch(ctx, r, kind)
		return http.StatusOK, v, err
	case "create":
		sent, err := s.decode(r, kind)
		if err != nil {
			return 0, nil, err
		}
		v, err := s.create(r, kind, sent)
		return http.StatusCreated, v, err
	case "deletecollection":
		return 0, nil, apierrors.NewMethodNotSupported(kind.Resource(), r.Verb)
	}
	if obj == nil {
		return 0, nil, apierrors.NewNotFound(kind.Resource(), r.Name)
	}
	switch r.Verb {
	case "get":
		return http.StatusOK, shown(view(r, kind, obj), r), nil
	case "update":
		sent, err := s.decode(r, kind)
		if err != nil {
			return 0, nil, err
		}
		if r.Subresource == "scale" {
			sent = scaled(obj, sent)
		}
		after, err := s.replace(r, kind, key, sent)
		if err != nil {
			return 0, nil, err
		}
		return http.StatusOK, view(r, kind, after), nil
	case "patch":
		after, err := s.patch(r, kind, key, obj)
		if err != nil {
			return 0, nil, err
		}
		return http.StatusOK, view(r, kind, after), nil
	case "delete":
		v, err := s.deletion(r, kind, key, obj)
		return http.StatusOK, v, err
	}
	return 0, nil, apierrors.NewMethodNotSupported(kind.Resource(), r.Verb)
}

func equal(a, b any) bool { return reflect.DeepEqual(a, b) }

func (s *Server) decode(r *Request, kind *Kind) (Object, error) {
	obj := Object{}
	if err := json.Unmarshal(r.body, &obj); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if obj["kind"] == nil {
		obj["kind"], obj["apiVersion"] = kind.Kind, kind.GroupVersion().String()
	}
	return prune(obj), nil
}

// prune drops nulls, as the real server does when it decodes.
func prune(obj Object) Object {
	for k, v := range obj {
		switch value := v.(type) {
		case nil:
			delete(obj, k)
		case map[string]any:
			prune(value)
		}
	}
	return obj
}

// view is an object as a subresource shows it.
func view(r *Request, kind *Kind, obj Object) Object {
	if r.Subresource != "scale" || obj == nil {
		return obj
	}
	m := meta(obj)
	scale := Object{
		"apiVersion": "autoscaling/v1", "kind": "Scale",
		"metadata": map[string]any{
			"name": m["name"], "uid": m["uid"], "resourceVersion": m["resourceVersion"], "creationTimestamp": m["creationTimestamp"],
		},
		"spec": map[string]any{}, "status": map[string]any{"replicas": int64(0)},
	}
	if kind.Namespaced {
		meta(scale)["namespace"] = m["namespace"]
	}
	if spec, _ := obj["spec"].(map[string]any); spec["replicas"] != nil {
		scale["spec"] = map[string]any{"replicas": spec["replicas"]}
	}
	return scale
}

// scaled is the object with the replicas, and the preconditions, of a Scale.
func scaled(obj, scale Object) Object {
	obj = runtime.DeepCopyJSON(obj)
	spec, _ := obj["spec"].(map[string]any)
	if spec == nil {
		spec = map[string]any{}
		obj["spec"] = spec
	}
	given, _ := scale["spec"].(map[string]any)
	if given["replicas"] == nil {
		spec["replicas"] = int64(0)
	} else {
		spec["replicas"] = given["replicas"]
	}
	for _, field := range []string{"uid", "resourceVersion"} {
		if v := meta(scale)[field]; v != nil {
			meta(obj)[field] = v
		}
	}
	return obj
}

// shown is an object as the Accept header wants it.
func shown(obj Object, r *Request) Object {
	if !strings.Contains(r.accept, "as=PartialObjectMetadata") {
		return obj
	}
	return Object{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": obj["metadata"]}
}

func (s *Server) patch(r *Request, kind *Kind, key Key, before Object) (Object, error) {
	shown := view(r, kind, before)
	raw, err := json.Marshal(shown)
	if err != nil {
		return nil, err
	}
	switch r.contentType {
	case string(types.MergePatchType):
		raw, err = jsonpatch.MergePatch(raw, r.body)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	case string(types.JSONPatchType):
		patch, err := jsonpatch.DecodePatch(r.body)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if raw, err = patch.Apply(raw); err != nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, r.Verb, kind.Resource(), key.Name, err.Error(), 0, false)
		}
	default:
		return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, r.Verb, kind.Resource(), key.Name, "", 0, false)
	}
	after := Object{}
	if err := json.Unmarshal(raw, &after); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	after = prune(after)
	if r.Subresource == "scale" {
		after = scaled(before, after)
	}
	return s.replace(r, kind, key, after)
}

func (s *Server) deletion(r *Request, kind *Kind, key Key, obj Object) (any, error) {
	var opts metav1.DeleteOptions
	if len(r.body) > 0 {
		if err := json.Unmarshal(r.body, &opts); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if p := opts.Preconditions; p != nil {
		if p.UID != nil && string(*p.UID) != text(obj, "uid") {
			return nil, apierrors.NewConflict(kind.Resource(), key.Name,
				fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, text(obj, "uid"))) //nolint:staticcheck // the real server's words
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != text(obj, "resourceVersion") {
			return nil, apierrors.NewConflict(kind.Resource(), key.Name,
				fmt.Errorf("Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", *p.ResourceVersion, text(obj, "resourceVersion"))) //nolint:staticcheck // the real server's words
		}
	}
	if r.DryRun || slices.Contains(opts.DryRun, metav1.DryRunAll) {
		r.DryRun = true
		return obj, nil
	}
	if opts.PropagationPolicy != nil && *opts.PropagationPolicy == metav1.DeletePropagationOrphan {
		s.orphan(text(obj, "uid"))
	}
	if stays := s.delete(r.Actor, r.N, kind, key); stays != nil {
		return stays, nil
	}
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: key.Name, Group: key.Group, Kind: key.Plural, UID: types.UID(text(obj, "uid"))},
	}, nil
}

// selection is what a list or a watch asks for.
type selection struct {
	label labels.Selector
	field fields.Selector
}

func selectionOf(r *Request) (selection, error) {
	label, err := labels.Parse(r.query.Get("labelSelector"))
	if err != nil {
		return selection{}, apierrors.NewBadRequest(err.Error())
	}
	field, err := fields.ParseSelector(r.query.Get("fieldSelector"))
	if err != nil {
		return selection{}, apierrors.NewBadRequest(err.Error())
	}
	for _, one := range field.Requirements() {
		if one.Field != "metadata.name" && one.Field != "metadata.namespace" {
			return selection{}, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", one.Field))
		}
	}
	return selection{label, field}, nil
}

func (s selection) matches(obj Object) bool {
	if obj == nil {
		return false
	}
	set := labels.Set{}
	given, _ := meta(obj)["labels"].(map[string]any)
	for k, v := range given {
		set[k], _ = v.(string)
	}
	return s.label.Matches(set) && s.field.Matches(fields.Set{"metadata.name": text(obj, "name"), "metadata.namespace": text(obj, "namespace")})
}

func (s *Server) list(r *Request, kind *Kind) (any, error) {
	selected, err := selectionOf(r)
	if err != nil {
		return nil, err
	}
	var items []Object
	listVersion := s.version
	if token := r.query.Get("continue"); token != "" {
		rest, ok := s.pages[token]
		if !ok {
			return nil, apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result.")
		}
		items = rest
		at, _, _ := strings.Cut(token, "-")
		if listVersion, err = strconv.ParseInt(at, 10, 64); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	} else {
		objects, past, err := s.exactly(r)
		if err != nil {
			return nil, err
		}
		if !past {
			objects = s.objects
		}
		for _, key := range sortedObjects(objects) {
			obj := objects[key]
			if key.Group == kind.Group && key.Plural == kind.Plural && (r.Namespace == "" || key.Namespace == r.Namespace) && selected.matches(obj) {
				items = append(items, obj)
			}
		}
	}
	listMeta := map[string]any{"resourceVersion": strconv.FormatInt(listVersion, 10)}
	if limit, _ := strconv.Atoi(r.query.Get("limit")); limit > 0 && len(items) > limit {
		token := fmt.Sprintf("%d-%d", listVersion, len(s.pages)+1)
		s.pages[token] = items[limit:]
		listMeta["continue"], listMeta["remainingItemCount"] = token, int64(len(items)-limit)
		items = items[:limit]
	}
	out := make([]any, len(items))
	for i, obj := range items {
		out[i] = shown(obj, r)
	}
	list := Object{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind + "List", "metadata": listMeta, "items": out}
	if strings.Contains(r.accept, "as=PartialObjectMetadataList") {
		list["apiVersion"], list["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	return list, nil
}

func (s *Server) review(r *Request) (any, error) {
	review := Object{}
	if err := json.Unmarshal(r.body, &review); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	spec, _ := review["spec"].(map[string]any)
	attributes, _ := spec["resourceAttributes"].(map[string]any)
	get := func(field string) string {
		v, _ := attributes[field].(string)
		return v
	}
	denied := s.denied != nil && s.denied(Permission{get("verb"), get("group"), get("resource"), get("subresource"), get("namespace")})
	review["kind"], review["apiVersion"] = "SelfSubjectAccessReview", "authorization.k8s.io/v1"
	review["status"] = map[string]any{"allowed": !denied}
	return review, nil
}

// discover answers as a server without aggregated discovery does.
func (s *Server) discover(r *Request) (any, error) {
	path := strings.Trim(r.path, "/")
	groups := map[string][]string{"authorization.k8s.io": {"v1"}}
	for _, k := range s.kinds {
		for _, v := range s.versionsOf(k) {
			if !slices.Contains(groups[k.Group], v) {
				groups[k.Group] = append(groups[k.Group], v)
			}
		}
	}
	switch {
	case path == "api":
		return &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}, nil
	case path == "apis":
		list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for _, name := range sortedKeys(groups) {
			if name == "" {
				continue
			}
			group := metav1.APIGroup{Name: name}
			for _, v := range groups[name] {
				group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + v, Version: v})
			}
			group.PreferredVersion = group.Versions[0]
			list.Groups = append(list.Groups, group)
		}
		return list, nil
	case path == "version":
		return &version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.0"}, nil
	}
	rest, ok := strings.CutPrefix(path, "apis/")
	if !ok {
		rest, ok = strings.CutPrefix(path, "api/")
	}
	gv, err := schema.ParseGroupVersion(rest)
	if !ok || err != nil || !slices.Contains(groups[gv.Group], gv.Version) {
		return nil, apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "", 0, true)
	}
	list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, k := range s.kinds {
		if k.Group != gv.Group || !slices.Contains(s.versionsOf(k), gv.Version) {
			continue
		}
		add := func(name, kind string, verbs ...string) {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name, Kind: kind, Namespaced: k.Namespaced, Verbs: verbs})
		}
		add(k.Plural, k.Kind, "create", "delete", "get", "list", "patch", "update", "watch")
		if k.Status {
			add(k.Plural+"/status", k.Kind, "get", "patch", "update")
		}
		if k.Scale {
			add(k.Plural+"/scale", "Scale", "get", "patch", "update")
		}
	}
	slices.SortFunc(list.APIResources, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

var errWatchClosed = errors.New("model: the watch was closed")
