package decide

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

// Level is how much room NATS has for events.
type Level int

// The levels, the best first.
const (
	Room   Level = iota
	Narrow       // the stream or the volume is 80 % full
	NoRoom       // events are refused
)

// LevelOf is the level of a stream and its volume. A stream is full when the largest event does not fit, or, if it is small, when a fiftieth is left.
func LevelOf(info *jetstream.StreamInfo, volume stream.Volume) Level {
	const largest = 1 << 20
	left := info.Config.MaxBytes - int64(info.State.Bytes) //nolint:gosec // less than 2^63
	switch {
	case volume.Refuses, info.Config.MaxBytes > 0 && left < min(largest, info.Config.MaxBytes/50):
		return NoRoom
	case volume.Percent >= FullPercent, Full(info.State.Bytes, info.Config.MaxBytes) >= FullPercent:
		return Narrow
	}
	return Room
}

// room says how full NATS is, if that is a problem, with what holds the space and what to do.
func room(d *Rules, w *World, o *Decision) (reason, message string) {
	info := w.NATS.Stream
	level := LevelOf(info, w.NATS.Volume)
	percent := min(100, Full(info.State.Bytes, info.Config.MaxBytes)) // a limit may have become smaller
	switch {
	case level == Room:
		return operatorv1alpha1.ReasonNATSAvailable, ""
	case w.NATS.Volume.NotWritable:
		o.AtLeast(operatorv1alpha1.StateError)
		return operatorv1alpha1.ReasonNotWritable, fmt.Sprintf("NATS refuses events: its volume cannot be written. Repair the volume or its file system; "+
			"then the server starts again by itself. See why: kubectl -n %s logs --prefix --tail=50 --selector=%s=%s,%s=%s",
			d.Namespace, nameLabel, natsComponent, backend.PodInstanceLabel, d.Names)
	case w.NATS.Volume.Refuses:
		message = fmt.Sprintf("NATS refuses events: its volume is %d %% full, and the rest is kept so that events can be deleted.", w.NATS.Volume.Percent)
	case level == NoRoom:
		message = fmt.Sprintf("NATS refuses events: the stream is %d %% full.", percent)
	case percent >= FullPercent:
		message = fmt.Sprintf("The stream is %d %% full, and refuses events when it is full.", percent)
	default:
		message = fmt.Sprintf("The volume of NATS is %d %% full, and events are refused when it is nearly full.", w.NATS.Volume.Percent)
	}
	reason = operatorv1alpha1.ReasonNATSAvailable
	if level == NoRoom {
		o.AtLeast(operatorv1alpha1.StateError)
		reason = operatorv1alpha1.ReasonStorageFull
	} else {
		o.AtLeast(operatorv1alpha1.StateWarning)
	}
	return reason, strings.TrimSpace(message + " " + backlogs(w) + " " + remedy(w))
}

// remedy is the next command: that about the Subscription with the most events that wait.
func remedy(w *World) string {
	all := mostWaiting(w)
	if len(all) == 0 {
		return ""
	}
	namespace, name, ok := strings.Cut(all[0].subscription, "/")
	if !ok {
		return ""
	}
	return fmt.Sprintf("Events are taken again when their sinks have taken theirs, or when such a Subscription is deleted. See why they wait: "+
		"kubectl -n %s describe subscriptions.eventing.kyma-project.io %s", namespace, name)
}
