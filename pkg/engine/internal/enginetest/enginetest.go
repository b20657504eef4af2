// Package enginetest makes objects for the unit tests of the engine, and an API server without a
// network.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Object decodes an object, and gives it a kind and a UID.
func Object(t *testing.T, raw string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(raw), &obj.Object); err != nil {
		t.Fatal(err)
	}
	obj.SetAPIVersion("v1")
	obj.SetKind("Thing")
	obj.SetUID("u")
	return obj
}

// Make returns an object of the namespace shop with one field, and no UID yet.
func Make(kind, name, value string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"x": value}}}
	obj.SetAPIVersion("v1")
	obj.SetKind(kind)
	obj.SetNamespace("shop")
	obj.SetName(name)
	return obj
}

// Set is an edit of the field of an object from Make.
func Set(value string) func(*unstructured.Unstructured) {
	return func(obj *unstructured.Unstructured) { obj.Object["spec"] = map[string]any{"x": value} }
}

// Value is the field of an object from Make; "gone" if there is no object.
func Value(obj *unstructured.Unstructured) string {
	if obj == nil {
		return "gone"
	}
	value, _, _ := unstructured.NestedString(obj.Object, "spec", "x")
	return value
}

// Ref names an object in the namespace shop.
func Ref(kind, name string) migration.Ref {
	return migration.Ref{Resource: migration.Resource{Kind: kind, GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: kind}}, Namespace: "shop", Name: name}
}

// RefTo names an object of an API.
func RefTo(obj *unstructured.Unstructured) migration.Ref {
	ref := Ref(obj.GetKind(), obj.GetName())
	ref.Namespace, ref.GroupVersionResource.Resource = obj.GetNamespace(), kinds[obj.GetKind()]
	return ref
}

// Direct repeats nothing.
func Direct(ctx context.Context, op func(context.Context) error) error { return op(ctx) }

// Job plans what it is given, and none of the optional interfaces.
type Job struct {
	Planned *migration.Plan
	Err     error
	// Awaited are the conditions after changes, by the name of the object.
	Awaited map[string][]migration.Condition
}

// Name implements migration.Job.
func (*Job) Name() string { return "job" }

// Doc implements migration.Job.
func (*Job) Doc() (short, long string) { return "", "" }

// Plan implements migration.Job.
func (j *Job) Plan(context.Context, *migration.Cluster, migration.PlanOptions) (*migration.Plan, error) {
	return j.Planned, j.Err
}

// Await implements migration.Job.
func (j *Job) Await(ch *migration.Change) []migration.Condition { return j.Awaited[ch.Ref.Name] }

// Shows is the condition that an object has the value.
func Shows(ref migration.Ref, value string) migration.Condition {
	return migration.Condition{Text: "its value", On: []migration.Subject{ref.Subject()}, Eval: func(v migration.View) migration.Status {
		switch Value(v.Get(ref.Subject())) {
		case value:
			return migration.Status{State: migration.Met}
		case "bad":
			return migration.Status{State: migration.Failed, Message: "it is bad", Note: "make it good"}
		}
		return migration.Status{Message: "it is not there yet", Note: "look at it"}
	}}
}

// Metadata lists the metadata of Secrets as the API server would.
type Metadata struct {
	metadata.ResourceInterface
	Secrets corev1client.SecretInterface
}

// List implements metadata.ResourceInterface.
func (m Metadata) List(ctx context.Context, opts metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	secrets, err := m.Secrets.List(ctx, opts)
	if err != nil {
		return nil, err
	}
	list := &metav1.PartialObjectMetadataList{}
	for i := range secrets.Items {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: secrets.Items[i].ObjectMeta})
	}
	return list, nil
}

// Unwritable are Secrets that no patch reaches.
type Unwritable struct{ corev1client.SecretInterface }

// Patch implements corev1client.SecretInterface.
func (Unwritable) Patch(_ context.Context, name string, _ types.PatchType, _ []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Secret, error) {
	return nil, apierrors.NewForbidden(corev1.Resource("secrets"), name, errors.New("no"))
}

// Limited are Secrets that take no more than 1 MiB of data each, as the API server's do.
type Limited struct{ corev1client.SecretInterface }

func (l Limited) check(secret *corev1.Secret) error {
	n := 0
	for _, value := range secret.Data {
		n += len(value)
	}
	if n > corev1.MaxSecretSize {
		err := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Secret").GroupKind(), secret.Name, nil)
		err.ErrStatus.Message = fmt.Sprintf("Secret %q is invalid: data: ", secret.Name) + fmt.Sprintf("Too long: may not be more than %d bytes", corev1.MaxSecretSize)
		return err
	}
	return nil
}

// Create implements corev1client.SecretInterface.
func (l Limited) Create(ctx context.Context, secret *corev1.Secret, o metav1.CreateOptions) (*corev1.Secret, error) {
	if err := l.check(secret); err != nil {
		return nil, err
	}
	return l.SecretInterface.Create(ctx, secret, o)
}

// Patch implements corev1client.SecretInterface.
func (l Limited) Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, o metav1.PatchOptions, subresources ...string) (*corev1.Secret, error) {
	before, err := l.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	after, err := l.SecretInterface.Patch(ctx, name, kind, patch, o, subresources...)
	if err != nil {
		return nil, err
	}
	if refused := l.check(after); refused != nil {
		if _, err := l.Update(ctx, before, metav1.UpdateOptions{}); err != nil {
			return nil, err
		}
		return nil, refused
	}
	return after, nil
}
