package observed

import (
	"slices"
	"strings"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

// Subscription is what decisions need of one.
type Subscription struct {
	// Version is the resource version.
	Namespace, Name, Version string
	Generation               int64
	Deleting                 bool
	// Finalizer: it has the finalizer of the controller.
	Finalizer bool
	// Valid: the controller has not found its spec invalid in this generation.
	Valid bool
	// Skipped: an administrator has taken it out of a switch.
	Skipped bool
	// Refused: its sink does not take events now.
	Refused bool
	// Epochs are those in which the controller found it ready in this generation, by backend.
	Epochs map[operatorv1alpha1.BackendType]string
}

// String is <namespace>/<name>.
func (s Subscription) String() string { return s.Namespace + "/" + s.Name }

// Names are those of some Subscriptions, for people: the first ones, if there are many.
func Names(subscriptions []Subscription) string {
	const most = 5
	var all []string
	for _, s := range subscriptions {
		all = append(all, s.String())
	}
	slices.Sort(all)
	if len(all) > most {
		return strings.Join(all[:most], ", ") + " and others"
	}
	return strings.Join(all, ", ")
}

// Missing are the Subscriptions for which events wait in NATS, of one subject if that is not empty,
// and which do not exist.
func (w *World) Missing(subject string) (missing []Subscription) {
	there := map[string]bool{}
	for _, s := range w.Subscriptions {
		there[s.String()] = true
	}
	for _, c := range w.NATS.Consumers {
		namespace, name, ours := stream.Subscription(c.Config)
		s := Subscription{Namespace: namespace, Name: name}
		if ours && !there[s.String()] && (subject == "" || stream.Consumes(c.Config, subject)) && c.NumPending+uint64(max(c.NumAckPending, 0)) > 0 {
			missing = append(missing, s)
		}
	}
	return missing
}

// Refused are the Subscriptions whose sinks do not take events now.
func (w *World) Refused() []Subscription {
	return slices.DeleteFunc(slices.Clone(w.Subscriptions), func(s Subscription) bool { return !s.Refused || s.Deleting || !s.Valid })
}
