package manager

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/decide"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/dependency"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/identity"
)

// TestRemoveTrigger: the operator lets a Trigger go that a controller left, with the finalizer that
// would keep it for a controller that is there.
func TestRemoveTrigger(t *testing.T) {
	t.Parallel()
	names := backend.Names(backend.DefaultPrefix)
	for reason, change := range map[string]func(*unstructured.Unstructured){
		"as the controller has left it":    func(*unstructured.Unstructured) {},
		"somebody has deleted it":          func(u *unstructured.Unstructured) { u.SetDeletionTimestamp(&metav1.Time{Time: time.Now()}) },
		"of an earlier version":            func(u *unstructured.Unstructured) { u.SetFinalizers(nil) },
		"somebody else's of the same name": func(u *unstructured.Unstructured) { u.SetLabels(nil) },
	} {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(dependency.Trigger)
		u.SetNamespace("control")
		u.SetName(names.Controller())
		u.SetLabels(names.Labels(backend.PlaneMesh, "trigger", "1", nil))
		u.SetFinalizers([]string{backend.TriggerFinalizer})
		change(u)
		ours := u.GetLabels() != nil
		objects := fake.NewClientBuilder().WithObjects(u).Build()
		a := &actor{Rules: &decide.Rules{Identities: identity.Identities{Names: names, Namespace: "control"}}, client: objects, reader: objects}
		if err := a.removeTrigger(t.Context(), u.GetName()); err != nil {
			t.Errorf("%s: %v", reason, err)
		}
		if err := objects.Get(t.Context(), client.ObjectKeyFromObject(u), u); apierrors.IsNotFound(err) != ours {
			t.Errorf("%s: it is there afterwards: %v", reason, err)
		}
	}
}
