package decide

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

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

// LevelOf is the level of a stream and its volume. A stream is full when the largest event does not
// fit, or, if it is small, when a tenth is left.
func LevelOf(info *jetstream.StreamInfo, volume stream.Volume) Level {
	const largest = 1 << 20
	left := info.Config.MaxBytes - int64(info.State.Bytes) //nolint:gosec // less than 2^63
	switch {
	case volume.Refuses, info.Config.MaxBytes > 0 && left < min(largest, info.Config.MaxBytes/10):
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
	reason = operatorv1alpha1.ReasonStorageFull
	subject := "" // of the type that is refused, if not all are
	switch {
	case w.NATS.Volume.NotWritable:
		o.AtLeast(operatorv1alpha1.StateError)
		return operatorv1alpha1.ReasonNotWritable, fmt.Sprintf("NATS refuses events: its volume cannot be written. Repair the volume or its file system; "+
			"then the server starts again by itself. See why: kubectl -n %s logs --prefix --tail=50 --selector=%s=%s,%s=%s",
			d.Namespace, nameLabel, natsComponent, backend.PodInstanceLabel, d.Names)
	case w.NATS.Volume.Refuses:
		message = fmt.Sprintf("NATS refuses events: its volume is %d %% full, and the rest is kept so that events can be deleted.", w.NATS.Volume.Percent)
	case level == NoRoom:
		message = fmt.Sprintf("NATS refuses events of more than %d KiB: the stream is %d %% full.", max(0, info.Config.MaxBytes-int64(info.State.Bytes))>>10, percent) //nolint:gosec // less than 2^63
	case len(w.NATS.Full) > 0:
		subject, message = typeFull(w)
		reason, level = operatorv1alpha1.ReasonTypeFull, NoRoom
	case level == Room:
		return operatorv1alpha1.ReasonNATSAvailable, ""
	case percent >= FullPercent:
		message = fmt.Sprintf("The stream is %d %% full, and refuses events when it is full.", percent)
	default:
		message = fmt.Sprintf("The volume of NATS is %d %% full, and events are refused when it is nearly full.", w.NATS.Volume.Percent)
	}
	if level == NoRoom {
		o.AtLeast(operatorv1alpha1.StateError)
	} else {
		o.AtLeast(operatorv1alpha1.StateWarning)
		reason = operatorv1alpha1.ReasonNATSAvailable
	}
	holders := w.NATS.Holders(subject)
	next := remedy(holders)
	if next == "" && reason == operatorv1alpha1.ReasonTypeFull {
		next = fmt.Sprintf(`A larger limit: kubectl -n %s patch eventings.operator.kyma-project.io %s --type=merge -p '{"spec":{"backend":{"config":{"natsMaxMsgsPerTopic":%d}}}}'`,
			w.Eventing.Namespace, w.Eventing.Name, 2*info.Config.MaxMsgsPerSubject)
	}
	return reason, strings.TrimSpace(strings.Join(slices.DeleteFunc([]string{message, stream.NameHolders(holders), next}, func(s string) bool { return s == "" }), " "))
}

// typeFull names the type that has been refused for the longest time, and the limit.
func typeFull(w *World) (subject, message string) {
	subjects := slices.SortedFunc(maps.Keys(w.NATS.Full), func(a, b string) int {
		return cmp.Or(w.NATS.Full[a].Compare(w.NATS.Full[b]), cmp.Compare(a, b))
	})
	subject = subjects[0]
	what := "subject " + subject
	if source, eventType, err := backend.ParseSubject(subject); err == nil {
		what = fmt.Sprintf("type %s of source %s", eventType, source)
	}
	most := w.NATS.Stream.Config.MaxMsgsPerSubject
	message = fmt.Sprintf("NATS refuses events of %s since %s: %d of them wait, which is the limit (natsMaxMsgsPerTopic).", what, w.NATS.Full[subject].UTC().Format(time.RFC3339), most)
	if others := len(subjects) - 1; others > 0 {
		message += fmt.Sprintf(" The same holds for %d more.", others)
	}
	return subject, message
}

// remedy is the next command: that about the Subscription with the most bytes.
func remedy(holders []stream.Holder) string {
	if len(holders) == 0 {
		return ""
	}
	namespace, name, ok := strings.Cut(holders[0].Subscription, "/")
	if !ok {
		return ""
	}
	return fmt.Sprintf("Events are taken again when their sinks have taken theirs, or when such a Subscription is deleted. See why they wait: "+
		"kubectl -n %s describe subscriptions.eventing.kyma-project.io %s", namespace, name)
}
