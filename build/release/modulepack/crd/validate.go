// Package crd judges objects by a CustomResourceDefinition as an API server does, without one:
// schema, CEL rules, unknown fields. And it compares what two versions of a definition accept.
package crd

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// Parse reads a definition, version apiextensions.k8s.io/v1, from YAML or JSON. An unknown field is
// an error.
func Parse(raw []byte) (*apiextensionsv1.CustomResourceDefinition, error) {
	d := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(raw, d); err != nil {
		return nil, fmt.Errorf("cannot read the CustomResourceDefinition: %w", err)
	}
	return d, nil
}

// version returns a version of a definition that is served and has a schema, nil if there is none.
func version(d *apiextensionsv1.CustomResourceDefinition, name string) *apiextensionsv1.CustomResourceDefinitionVersion {
	for i := range d.Spec.Versions {
		if v := &d.Spec.Versions[i]; v.Name == name && v.Served && v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
			return v
		}
	}
	return nil
}

// Validator judges objects of one version of a kind. It can be used several times, one after the
// other.
type Validator struct {
	gvk        schema.GroupVersionKind
	namespaced bool
	structural *structuralschema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

// New compiles a version of a definition. The error says that the definition cannot be used, or
// does not serve that version.
func New(d *apiextensionsv1.CustomResourceDefinition, served string) (*Validator, error) {
	v := version(d, served)
	if v == nil {
		return nil, fmt.Errorf("CustomResourceDefinition %s does not serve version %q", d.Name, served)
	}
	props := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, props, nil); err != nil {
		return nil, fmt.Errorf("cannot convert the schema of %s: %w", d.Name, err)
	}
	structural, err := structuralschema.NewStructural(props)
	if err != nil {
		return nil, fmt.Errorf("cannot use the schema of %s: %w", d.Name, err)
	}
	validator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, fmt.Errorf("cannot use the schema of %s: %w", d.Name, err)
	}
	return &Validator{
		schema.GroupVersionKind{Group: d.Spec.Group, Version: served, Kind: d.Spec.Names.Kind}, d.Spec.Scope == apiextensionsv1.NamespaceScoped,
		structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit),
	}, nil
}

// Validate returns what an API server that has the definition would refuse about a new object, each
// with its path and value: fields that the schema does not know, values that it forbids, and CEL
// rules, after the defaults are filled in. The object is not changed. The error says that it is of
// another kind or version.
func (v *Validator) Validate(ctx context.Context, u *unstructured.Unstructured) (field.ErrorList, error) {
	if u.GroupVersionKind() != v.gvk {
		return nil, fmt.Errorf("cannot judge %s %s: this is the definition of %s", u.GetAPIVersion(), u.GetKind(), v.gvk)
	}
	object, err := copied(u.Object)
	if err != nil {
		return nil, err
	}
	var all field.ErrorList
	if v.namespaced && u.GetNamespace() == "" {
		all = append(all, field.Required(field.NewPath("metadata", "namespace"), "the kind is namespaced"))
	}
	if u.GetName() == "" {
		all = append(all, field.Required(field.NewPath("metadata", "name"), ""))
	}
	unknown := pruning.PruneWithOptions(object, v.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	for _, path := range unknown {
		all = append(all, field.Forbidden(field.NewPath(path), "the kind has no such field"))
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(object, v.structural)
	defaulting.Default(object, v.structural)
	all = append(all, validation.ValidateCustomResource(nil, object, v.schema)...)
	all = append(all, listtype.ValidateListSetsAndMaps(nil, v.structural, object)...)
	if len(all) > 0 {
		return all, nil // rules are written for objects that the schema allows
	}
	failed, _ := v.rules.Validate(ctx, nil, v.structural, object, nil, celconfig.RuntimeCELCostBudget)
	return append(all, failed...), nil
}

// copied is an object as an API server reads it. Numbers that YAML was read into are float64, which
// the rules do not take for integers.
func copied(object map[string]any) (map[string]any, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	return out, utiljson.Unmarshal(raw, &out)
}

// Established says whether the definition can be applied at all: names that fit, one stored
// version, a schema for each version.
func Established(d *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	var all field.ErrorList
	if want := d.Spec.Names.Plural + "." + d.Spec.Group; d.Name != want {
		all = append(all, field.Invalid(field.NewPath("metadata", "name"), d.Name, "must be "+want))
	}
	stored := 0
	for i, v := range d.Spec.Versions {
		if v.Storage {
			stored++
		}
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			all = append(all, field.Required(field.NewPath("spec", "versions").Index(i).Child("schema"), ""))
		}
	}
	if stored != 1 {
		all = append(all, field.Invalid(field.NewPath("spec", "versions"), stored, "exactly one version must be stored"))
	}
	return all
}
