package crd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// Lock is what users can rely on of one version of a kind: which objects it accepts. It is stored
// with each release, and later versions are compared with it.
type Lock struct {
	Group   string `json:"group"`
	Kind    string `json:"kind"`
	Plural  string `json:"plural"`
	Scope   string `json:"scope"`
	Version string `json:"version"`
	// Schema has no descriptions: a better text changes nothing for users.
	Schema *apiextensionsv1.JSONSchemaProps `json:"schema"`
}

// Name is that of the file: <plural>.<version>.json.
func (l *Lock) Name() string { return l.Plural + "." + l.Version + ".json" }

// Locks returns one for each version that a definition serves.
func Locks(d *apiextensionsv1.CustomResourceDefinition) []*Lock {
	var all []*Lock
	for i := range d.Spec.Versions {
		if v := version(d, d.Spec.Versions[i].Name); v != nil {
			schema := v.Schema.OpenAPIV3Schema.DeepCopy()
			undescribe(schema)
			all = append(all, &Lock{Group: d.Spec.Group, Kind: d.Spec.Names.Kind, Plural: d.Spec.Names.Plural, Scope: string(d.Spec.Scope), Version: v.Name, Schema: schema})
		}
	}
	return all
}

// JSON is the lock as it is stored, always in the same bytes.
func (l *Lock) JSON() ([]byte, error) {
	raw, err := json.MarshalIndent(l, "", "  ")
	return append(raw, '\n'), err
}

// ParseLock reads what JSON wrote. An unknown field is an error.
func ParseLock(raw []byte) (*Lock, error) {
	l := &Lock{}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(l); err != nil {
		return nil, fmt.Errorf("cannot read the lock: %w", err)
	}
	if l.Schema == nil {
		return nil, fmt.Errorf("the lock of %s.%s has no schema", l.Plural, l.Group)
	}
	return l, nil
}

func undescribe(s *apiextensionsv1.JSONSchemaProps) {
	s.Description, s.Example, s.ExternalDocs = "", nil, nil
	for child := range children(s) {
		undescribe(child.schema)
	}
	for name, p := range s.Properties {
		undescribe(&p)
		s.Properties[name] = p
	}
}

type child struct {
	path   string
	schema *apiextensionsv1.JSONSchemaProps
}

// children are the schemas of items and of the values of maps.
func children(s *apiextensionsv1.JSONSchemaProps) func(func(child) bool) {
	return func(yield func(child) bool) {
		if s.Items != nil && s.Items.Schema != nil && !yield(child{"[]", s.Items.Schema}) {
			return
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			yield(child{"{}", s.AdditionalProperties.Schema})
		}
	}
}

// Break is one thing that a released version accepted and the new one may refuse.
type Break struct {
	// Path is that of the field: ".spec.backend.type". Items of a list are "[]", values of a map
	// "{}".
	Path string
	// What says what became of it.
	What string
}

// Breaks compares a released lock with the one of the new version. Fields may be added, enums may
// grow, limits may widen. What is read by users and not written, the status, may not lose fields
// either.
func Breaks(released, now *Lock) []Break {
	if now == nil {
		return []Break{{"", fmt.Sprintf("version %s is served no longer", released.Version)}}
	}
	var all []Break
	for _, same := range []struct{ path, was, is string }{
		{"group", released.Group, now.Group}, {"kind", released.Kind, now.Kind}, {"plural", released.Plural, now.Plural}, {"scope", released.Scope, now.Scope},
	} {
		if same.was != same.is {
			all = append(all, Break{same.path, fmt.Sprintf("was %s and is %s", same.was, same.is)})
		}
	}
	compare("", released.Schema, now.Schema, &all)
	return all
}

func compare(at string, was, is *apiextensionsv1.JSONSchemaProps, all *[]Break) {
	report := func(path, format string, args ...any) {
		*all = append(*all, Break{path, fmt.Sprintf(format, args...)})
	}
	if was.Type != is.Type {
		report(at, "was %s and is %s", word(was.Type), word(is.Type))
	}
	if was.Nullable && !is.Nullable {
		report(at, "may be null no longer")
	}
	if kept := was.XPreserveUnknownFields; kept != nil && *kept && (is.XPreserveUnknownFields == nil || !*is.XPreserveUnknownFields) {
		report(at, "keeps unknown fields no longer")
	}
	enum(at, was, is, report)
	limits(at, was, is, report)
	for _, name := range is.Required {
		if !slices.Contains(was.Required, name) {
			report(at+"."+name, "is required now")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was.Properties)) {
		before := was.Properties[name]
		after, ok := is.Properties[name]
		if !ok {
			report(at+"."+name, "is gone")
			continue
		}
		compare(at+"."+name, &before, &after, all)
	}
	after := map[string]*apiextensionsv1.JSONSchemaProps{}
	for c := range children(is) {
		after[c.path] = c.schema
	}
	for c := range children(was) {
		if after[c.path] == nil {
			report(at+c.path, "is gone")
			continue
		}
		compare(at+c.path, c.schema, after[c.path], all)
	}
	known := map[string]bool{}
	for _, rule := range was.XValidations {
		known[squeeze(rule.Rule)] = true
	}
	for _, rule := range is.XValidations {
		if !known[squeeze(rule.Rule)] {
			report(at, "has a new rule: %s", squeeze(rule.Rule))
		}
	}
}

// enum reports values that are refused now. No enum is all values.
func enum(at string, was, is *apiextensionsv1.JSONSchemaProps, report func(string, string, ...any)) {
	if len(is.Enum) == 0 {
		return
	}
	if len(was.Enum) == 0 {
		report(at, "has an enum now")
		return
	}
	for _, value := range was.Enum {
		if !slices.ContainsFunc(is.Enum, func(v apiextensionsv1.JSON) bool { return bytes.Equal(v.Raw, value.Raw) }) {
			report(at, "does not take %s any longer", value.Raw)
		}
	}
}

func limits(at string, was, is *apiextensionsv1.JSONSchemaProps, report func(string, string, ...any)) {
	atMost := func(name string, was, is *int64) {
		if is != nil && (was == nil || *is < *was) {
			report(at, "has a smaller %s: %d", name, *is)
		}
	}
	atLeast := func(name string, was, is *int64) {
		if is != nil && *is > 0 && (was == nil || *is > *was) {
			report(at, "has a larger %s: %d", name, *is)
		}
	}
	atMost("maxLength", was.MaxLength, is.MaxLength)
	atMost("maxItems", was.MaxItems, is.MaxItems)
	atMost("maxProperties", was.MaxProperties, is.MaxProperties)
	atLeast("minLength", was.MinLength, is.MinLength)
	atLeast("minItems", was.MinItems, is.MinItems)
	atLeast("minProperties", was.MinProperties, is.MinProperties)
	if is.Maximum != nil && (was.Maximum == nil || *is.Maximum < *was.Maximum || is.ExclusiveMaximum && !was.ExclusiveMaximum) {
		report(at, "has a smaller maximum: %v", *is.Maximum)
	}
	if is.Minimum != nil && (was.Minimum == nil || *is.Minimum > *was.Minimum || is.ExclusiveMinimum && !was.ExclusiveMinimum) {
		report(at, "has a larger minimum: %v", *is.Minimum)
	}
	if is.Pattern != "" && is.Pattern != was.Pattern {
		report(at, "has another pattern: %s", is.Pattern)
	}
	if is.Format != "" && is.Format != was.Format {
		report(at, "has another format: %s", is.Format)
	}
	for _, of := range []struct {
		name    string
		was, is any
	}{{"allOf", was.AllOf, is.AllOf}, {"anyOf", was.AnyOf, is.AnyOf}, {"oneOf", was.OneOf, is.OneOf}, {"not", was.Not, is.Not}} {
		if !apiequality.Semantic.DeepEqual(of.was, of.is) {
			report(at, "has another %s", of.name)
		}
	}
	if is.UniqueItems && !was.UniqueItems {
		report(at, "must have unique items now")
	}
}

func word(typ string) string {
	if typ == "" {
		return "of any type"
	}
	return typ
}

// squeeze has a rule in one line: line breaks in it mean nothing.
func squeeze(rule string) string { return strings.Join(strings.Fields(rule), " ") }
