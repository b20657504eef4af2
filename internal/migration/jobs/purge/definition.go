package purge

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// definition is served at v1beta1 on Kubernetes 1.15, at both up to 1.21, and at v1
// today.
var definition = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// definitionName is that of Kyma Subscriptions.
const definitionName = "subscriptions.eventing.kyma-project.io"

// preserves is the field by which a schema keeps what it does not name.
const preserves = "x-kubernetes-preserve-unknown-fields"

// definitionFound is the CustomResourceDefinition of Kyma Subscriptions, and what
// becomes of it when it is deleted and created again.
type definitionFound struct {
	found
	// image is what it is created from again: mostly as it is.
	image *unstructured.Unstructured
	// converted says that the image has another form than the object, with the same
	// meaning.
	converted bool
	// refusal is why the API server would not create it, "" if it would; untried says
	// that this account may not ask.
	refusal string
	untried bool
}

// readDefinition reads the definition, and finds out how it could be created again:
// apiextensions v1 shows what was created at v1beta1, and refuses to create it.
func (s *snapshot) readDefinition(ctx context.Context, c reader) error {
	resource, served, err := c.Served(ctx, definition)
	if err != nil || !served {
		return err
	}
	ref := migration.Ref{Resource: resource, Name: definitionName}
	obj, err := c.Get(ctx, ref)
	if err != nil || obj == nil {
		return err
	}
	obj = k8sutil.Image(obj)
	s.definition = &definitionFound{found: found{ref, obj}, image: obj}
	if resource.Version != "v1" || !ofV1beta1(obj) {
		return nil // created again as what it was read
	}
	old := ref
	old.Version = "v1beta1"
	// Where that is not served, this is "not found", too.
	former, err := c.Get(ctx, old)
	if err != nil {
		return err
	}
	if former != nil {
		s.definition = &definitionFound{found: found{old, k8sutil.Image(former)}}
		s.definition.image = s.definition.object
	} else {
		s.definition.image, s.definition.converted = toV1(obj), true
	}
	err = c.TryCreate(ctx, s.definition.ref, s.definition.image)
	switch {
	case err == nil:
	case apierrors.IsForbidden(err):
		s.definition.untried = true
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		s.definition.refusal = err.Error()
		s.definition.image = s.definition.object
	default:
		return fmt.Errorf("cannot find out whether %s could be created again: %w", s.definition.ref, err)
	}
	return nil
}

// ofV1beta1 says whether a definition, read at v1, has a form that v1 does not
// create: it prunes nothing, or has a version without schema.
func ofV1beta1(crd *unstructured.Unstructured) bool {
	if keeps, _, _ := unstructured.NestedBool(crd.Object, "spec", "preserveUnknownFields"); keeps {
		return true
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if schema, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema"); schema == nil {
			return true
		}
	}
	return false
}

// toV1 is a definition that prunes nothing in the form in which v1 takes it: its
// schema says so, and not its spec. What is no object was accepted for one before,
// and no controller could read it.
func toV1(crd *unstructured.Unstructured) *unstructured.Unstructured {
	out := crd.DeepCopy()
	unstructured.RemoveNestedField(out.Object, "spec", "preserveUnknownFields")
	versions, _, _ := unstructured.NestedSlice(out.Object, "spec", "versions")
	for _, v := range versions {
		version, ok := v.(map[string]any)
		if !ok {
			continue
		}
		root, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema")
		if root == nil {
			root = map[string]any{}
		}
		root["type"] = "object"
		keepUnknown(root, true)
		version["schema"] = map[string]any{"openAPIV3Schema": root}
	}
	if len(versions) > 0 {
		_ = unstructured.SetNestedSlice(out.Object, versions, "spec", "versions") // its spec was found
	}
	return out
}

// keepUnknown lets a schema, and all in it, keep what it does not name: a schema of
// properties begins to prune again.
func keepUnknown(schema map[string]any, root bool) {
	properties, _ := schema["properties"].(map[string]any)
	if schema["type"] == nil && properties != nil {
		schema["type"] = "object"
	}
	if schema["type"] == "object" && schema["additionalProperties"] == nil {
		schema[preserves] = true
	}
	for name, p := range properties {
		if root && name == "metadata" {
			continue // the API server knows it
		}
		if below, ok := p.(map[string]any); ok {
			keepUnknown(below, false)
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if below, ok := schema[key].(map[string]any); ok {
			keepUnknown(below, false)
		}
	}
}
