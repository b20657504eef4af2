//go:build ignore

// Package openapi says what the types of Kubernetes 1.16 are made of. Its own package of that name
// is generated when a release is made, and is not in the Go module: without it the API server
// cannot be built. Here the types say it themselves. What only comments in their sources know,
// descriptions and required fields, is not said; the API server reads neither.
package openapi

import (
	"reflect"
	"strings"

	"github.com/go-openapi/spec"
	extensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	generated "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/runtime"
	aggregator "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// GetOpenAPIDefinitions are those of all that is served. What every API server has was generated,
// for that of CRDs.
func GetOpenAPIDefinitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	d := definitions{ref: ref, known: generated.GetOpenAPIDefinitions(ref)}
	for _, scheme := range []*runtime.Scheme{legacyscheme.Scheme, extensions.Scheme, aggregator.Scheme} {
		for kind, t := range scheme.AllKnownTypes() {
			if kind.Version != runtime.APIVersionInternal {
				d.define(t)
			}
		}
	}
	return d.known
}

type definitions struct {
	ref   common.ReferenceCallback
	known map[string]common.OpenAPIDefinition
}

// typed is implemented by types whose JSON is not what their fields are.
type typed interface {
	OpenAPISchemaType() []string
	OpenAPISchemaFormat() string
}

// define defines a named type, and all it is made of, and returns its name.
func (d definitions) define(t reflect.Type) string {
	name := util.GetCanonicalTypeName(reflect.New(t).Interface())
	if _, done := d.known[name]; done {
		return name
	}
	d.known[name] = common.OpenAPIDefinition{} // types may contain themselves
	var needs []string
	var schema spec.Schema
	if own, ok := reflect.New(t).Interface().(typed); ok {
		schema.Type, schema.Format = own.OpenAPISchemaType(), own.OpenAPISchemaFormat()
	} else {
		schema.Type, schema.Properties = spec.StringOrArray{"object"}, map[string]spec.Schema{}
		d.fields(t, schema.Properties, &needs)
	}
	d.known[name] = common.OpenAPIDefinition{Schema: schema, Dependencies: needs}
	return name
}

func (d definitions) fields(t reflect.Type, into map[string]spec.Schema, needs *[]string) {
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner := f.Type
		if inner.Kind() == reflect.Ptr {
			inner = inner.Elem()
		}
		switch {
		case f.PkgPath != "" || name == "-":
		case name == "" && (f.Anonymous || strings.Contains(options, "inline")):
			if inner.Kind() == reflect.Struct {
				d.fields(inner, into, needs)
			}
		case name != "":
			schema := d.schema(f.Type, needs)
			for tag, extension := range map[string]string{"patchStrategy": "x-kubernetes-patch-strategy", "patchMergeKey": "x-kubernetes-patch-merge-key"} {
				if value := f.Tag.Get(tag); value != "" {
					schema.AddExtension(extension, value)
				}
			}
			into[name] = schema
		}
	}
}

// schema is that of a field.
func (d definitions) schema(t reflect.Type, needs *[]string) spec.Schema {
	if t.Kind() == reflect.Ptr {
		return d.schema(t.Elem(), needs)
	}
	_, own := reflect.New(t).Interface().(typed)
	if own || t.Kind() == reflect.Struct {
		name := d.define(t)
		*needs = append(*needs, name)
		return spec.Schema{SchemaProps: spec.SchemaProps{Ref: d.ref(name)}}
	}
	of := func(kind, format string) spec.Schema {
		return spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{kind}, Format: format}}
	}
	switch t.Kind() {
	case reflect.String:
		return of("string", "")
	case reflect.Bool:
		return of("boolean", "")
	case reflect.Float32, reflect.Float64:
		return of("number", "double")
	case reflect.Int64, reflect.Uint64:
		return of("integer", "int64")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return of("integer", "int32")
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return of("string", "byte")
		}
		schema, items := of("array", ""), d.schema(t.Elem(), needs)
		schema.Items = &spec.SchemaOrArray{Schema: &items}
		return schema
	case reflect.Map:
		schema, values := of("object", ""), d.schema(t.Elem(), needs)
		schema.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: &values}
		return schema
	default:
		return of("object", "")
	}
}
