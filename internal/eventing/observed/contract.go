package observed

import "github.com/kyma-project/eventmesh-migration/internal/eventing/backend"

// Contract is what the publisher and the controller are to follow.
func (w *World) Contract(names backend.Names) (backend.Backends, error) {
	return backend.ParseBackends(Data(w.Object("ConfigMap", names.Backends())))
}

// ControllerState is what the controller says; empty if it says nothing that can be read.
func (w *World) ControllerState(names backend.Names) backend.ControllerState {
	state, _ := backend.ParseControllerState(Data(w.Object("ConfigMap", names.ControllerState())))
	return state
}

// Followed tells whether the controller says that it follows the present backends.
func (w *World) Followed(names backend.Names) bool {
	contract, err := w.Contract(names)
	return err == nil && w.ControllerState(names).Follows(contract)
}
