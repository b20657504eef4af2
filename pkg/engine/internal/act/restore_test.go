package act

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
)

// TestGoneForGood: an object whose namespace or kind is gone cannot be restored by
// another attempt. Fails on the commit before: the journal stayed open for ever.
func TestGoneForGood(t *testing.T) {
	resource := schema.GroupResource{Resource: "things"}
	terminating := apierrors.NewForbidden(resource, "a", errors.New("because it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "NamespaceTerminating"}}
	for name, tc := range map[string]struct {
		err     error
		forGood bool
	}{
		"Namespace":   {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop"), true},
		"Terminating": {terminating, true},
		"Forbidden":   {apierrors.NewForbidden(resource, "a", errors.New("no")), false},
		"Timeout":     {apierrors.NewTimeoutError("later", 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			err := goneForGood(enginetest.Ref("Thing", "a"), tc.err)
			moved, ok := errors.AsType[*write.ChangedError](err)
			if got := ok && moved.ForGood; got != tc.forGood {
				t.Errorf("got %v", err)
			}
		})
	}
}
