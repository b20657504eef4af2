package observed

import (
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

// Exists tells whether there is any object of the plane of a backend but those that outlive it.
func (w *World) Exists(names backend.Names, b operatorv1alpha1.BackendType) bool {
	plane := string(backend.PlaneOf(b))
	for key, u := range w.Ours {
		if u.GetLabels()[backend.PlaneLabel] == plane && !Lasting(names, key) {
			return true
		}
	}
	return false
}

// Lasting tells whether an object of NATS stays while another backend is wanted. These are the
// Secrets that the controller's pods have as volumes. A kubelet needs up to 90 s until it has
// written a new Secret into a running pod, and a switch to NATS would wait for that. An older
// version has given them the label of NATS.
func Lasting(names backend.Names, k Key) bool {
	return k == Key{"Secret", names.NATSUsers()} || k == Key{"Secret", names.NATSCA()}
}
