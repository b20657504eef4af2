package observed

import (
	"maps"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

// Backends are what the publisher and the controller are to follow.
func (w *World) Backends(names backend.Names) (backend.Backends, error) {
	return backend.ParseBackends(Data(w.Object("ConfigMap", names.Backends())))
}

// ControllerState is what the controller says; empty if it says nothing that can be read. A version
// of Subscriptions that is later than that of the ConfigMap is none: the ConfigMap was restored
// from a backup of another cluster, where the versions were later. Without it, the status of each
// Subscription says the same.
func (w *World) ControllerState(names backend.Names) backend.ControllerState {
	config := w.Object("ConfigMap", names.ControllerState())
	state, _ := backend.ParseControllerState(Data(config))
	maps.DeleteFunc(state.Ready, func(_ operatorv1alpha1.BackendType, version string) bool {
		order, err := resourceversion.CompareResourceVersion(version, config.GetResourceVersion())
		return err != nil || order > 0
	})
	return state
}

// Followed tells whether the controller says that it follows the present backends.
func (w *World) Followed(names backend.Names) bool {
	backends, err := w.Backends(names)
	return err == nil && w.ControllerState(names).Follows(backends)
}
