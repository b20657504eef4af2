package observed

import "github.com/kyma-project/eventmesh-migration/internal/eventing/backend"

// The marks that say whether NATS may hold events. Each is an epoch. The first two are keys of the
// ConfigMap <prefix>-nats-config, in addition to the configuration.
const (
	// OpenedKey: the stream of this epoch was opened, or is about to be. Without it, no event was
	// ever taken.
	OpenedKey = "opened"
	// DrainedKey: the stream of this epoch is closed, and stays empty.
	DrainedKey = "drained"
	// DrainedAnnotation is on a volume claim: the epoch of which no event is left in it.
	DrainedAnnotation = "eventing.kyma-project.io/drained-at"
)

// Drained tells whether it is known that NATS holds no event: no event was ever taken, or a mark
// says that none is left.
func (w *World) Drained(names backend.Names) bool {
	config := w.Object("ConfigMap", names.NATSConfig())
	if config == nil {
		// It is the last one that is deleted, and the first one that is created after the Secrets.
		return w.Object("StatefulSet", names.NATS()) == nil && len(w.Undrained()) == 0
	}
	if epoch := Data(config)[DrainedKey]; epoch != "" {
		return epoch == config.GetAnnotations()[backend.EpochAnnotation]
	}
	return Data(config)[OpenedKey] == "" && len(w.Undrained()) == 0
}

// Undrained are the claims that may hold events: an epoch was written to them before the stream was
// opened, and no mark says that nothing of this epoch is left.
func (w *World) Undrained() []string {
	var names []string
	for _, c := range w.Claims {
		if epoch := c.Annotations[backend.EpochAnnotation]; epoch != "" && c.Annotations[DrainedAnnotation] != epoch {
			names = append(names, c.Name)
		}
	}
	return names
}
