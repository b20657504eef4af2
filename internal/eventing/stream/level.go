package stream

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

// FullPercent is how full the stream or its volume may be before that is a warning.
const FullPercent = 80

// Level is how much room NATS has for events.
type Level int

// The levels, the best first.
const (
	Enough Level = iota
	Narrow       // the stream or the volume is 80 % full
	None         // events are refused
)

// LevelOf is the level of a stream and its volume. A stream is full when the largest event does not
// fit, or, if it is small, when a tenth is left.
func LevelOf(info *jetstream.StreamInfo, volume Volume) Level {
	const largest = 1 << 20
	left := info.Config.MaxBytes - int64(info.State.Bytes) //nolint:gosec // less than 2^63
	switch {
	case volume.Refuses, info.Config.MaxBytes > 0 && left < min(largest, info.Config.MaxBytes/10):
		return None
	case volume.Percent >= FullPercent, Percent(info.State.Bytes, info.Config.MaxBytes) >= FullPercent:
		return Narrow
	}
	return Enough
}

// Percent is how much of a limit is taken.
func Percent(bytes uint64, limit int64) int {
	if limit <= 0 {
		return 0
	}
	return int(float64(bytes) / float64(limit) * 100)
}

// Tightness says how much room there is, and what is refused, or will be, if that is a problem. It
// is one subject if not all are: those of which the stream takes no more are full, since a time.
func Tightness(info *jetstream.StreamInfo, volume Volume, full map[string]time.Time) (level Level, subject, message string) {
	level = LevelOf(info, volume)
	percent := min(100, Percent(info.State.Bytes, info.Config.MaxBytes)) // a limit may have become smaller
	switch {
	case volume.Refuses:
		message = fmt.Sprintf("NATS refuses events: its volume is %d %% full, and the rest is kept so that events can be deleted.", volume.Percent)
	case level == None:
		message = fmt.Sprintf("NATS refuses events of more than %d KiB: the stream is %d %% full.", max(0, info.Config.MaxBytes-int64(info.State.Bytes))>>10, percent) //nolint:gosec // less than 2^63
	case len(full) > 0:
		level = None
		subject, message = typeFull(full, info.Config.MaxMsgsPerSubject)
	case level == Enough:
	case percent >= FullPercent:
		message = fmt.Sprintf("The stream is %d %% full, and refuses events when it is full.", percent)
	default:
		message = fmt.Sprintf("The volume of NATS is %d %% full, and events are refused when it is nearly full.", volume.Percent)
	}
	return level, subject, message
}

// typeFull names the type that has been refused for the longest time, and the limit.
func typeFull(full map[string]time.Time, most int64) (subject, message string) {
	subjects := slices.SortedFunc(maps.Keys(full), func(a, b string) int {
		return cmp.Or(full[a].Compare(full[b]), cmp.Compare(a, b))
	})
	subject = subjects[0]
	what := "subject " + subject
	if source, eventType, err := backend.ParseSubject(subject); err == nil {
		what = fmt.Sprintf("type %s of source %s", eventType, source)
	}
	message = fmt.Sprintf("NATS refuses events of %s since %s: %d of them wait, which is the limit (natsMaxMsgsPerTopic).", what, full[subject].UTC().Format(time.RFC3339), most)
	if others := len(subjects) - 1; others > 0 {
		message += fmt.Sprintf(" The same holds for %d more.", others)
	}
	return subject, message
}

// Remedy is the next command: that about the Subscription with the most bytes.
func Remedy(holders []Holder) string {
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

// backlog is a Subscription and how many events wait for it.
type backlog struct {
	subscription string
	waiting      uint64
}

// mostWaiting are the Subscriptions for which events wait, those with the most first.
func mostWaiting(consumers []*jetstream.ConsumerInfo) (all []backlog) {
	for _, c := range consumers {
		if waiting := c.NumPending + uint64(max(c.NumAckPending, 0)); waiting > 0 {
			all = append(all, backlog{c.Config.Metadata[SubscriptionKey], waiting})
		}
	}
	slices.SortFunc(all, func(a, b backlog) int { return int(int64(b.waiting) - int64(a.waiting)) }) //nolint:gosec // neither reaches 2^63
	return all
}

// Backlogs names the three Subscriptions with the most events that wait.
func Backlogs(consumers []*jetstream.ConsumerInfo) string {
	all := mostWaiting(consumers)
	var texts []string
	for _, b := range all[:min(3, len(all))] {
		texts = append(texts, fmt.Sprintf("%s (%d)", b.subscription, b.waiting))
	}
	if len(texts) == 0 {
		return ""
	}
	return "Most events wait for " + strings.Join(texts, ", ") + "."
}

// Waiting is how many events of a stream somebody waits for. Where taken events are kept, one that
// two Subscriptions wait for may count twice.
func Waiting(of *jetstream.StreamInfo, consumers []*jetstream.ConsumerInfo) uint64 {
	if !KeepsTaken(of.Config) {
		return of.State.Msgs
	}
	return min(of.State.Msgs, waiting(consumers))
}

// Holds says what a stream holds that is not empty, and for whom.
func Holds(of *jetstream.StreamInfo, consumers []*jetstream.ConsumerInfo) string {
	n := Waiting(of, consumers)
	if n == 0 {
		return fmt.Sprintf("NATS holds %d events that all have taken. The controller that leads deletes them, while each server is up to date or away.", of.State.Msgs)
	}
	return fmt.Sprintf("NATS holds %d events. %s", n, Backlogs(consumers))
}

// reserveOf is the part of a volume that a server keeps free: cmd/internal/nats-server/volume.go.
func reserveOf(volume int64) int64 { return min(volume/8, 256<<20) }

// SafeSize is the most that a stream may hold on a volume. The disk can have twice what the stream
// counts: a file is rewritten only when less than half of it is alive, and TestSoakDisk measured
// nearly that.
func SafeSize(volume int64) int64 { return (volume - reserveOf(volume)) / 2 }

// VolumeFor is the smallest volume, in whole MiB, on which a stream may have a size.
func VolumeFor(size int64) resource.Quantity {
	need := min(2*size+2*size/7, 2*size+256<<20)
	return *resource.NewQuantity((need+1<<20-1)>>20<<20, resource.BinarySI)
}

// SmallestVolume is the size of the smallest volume. An administrator may have enlarged them.
func SmallestVolume(config operatorv1alpha1.BackendConfig, claims []corev1.PersistentVolumeClaim) resource.Quantity {
	smallest := config.NATSStorage.Size
	for i, c := range claims {
		if size := c.Status.Capacity[corev1.ResourceStorage]; !size.IsZero() && (i == 0 || size.Cmp(smallest) < 0) {
			smallest = size
		}
	}
	return smallest
}

// Unfit are claims that cannot be used: those of another number of servers, whose stream would not
// fit, and those that are too small.
func Unfit(config operatorv1alpha1.BackendConfig, claims []corev1.PersistentVolumeClaim) (names []string) {
	want := fmt.Sprint(config.NATSStreamReplicas)
	for _, c := range claims {
		has, size := c.Annotations[backend.ServersAnnotation], c.Spec.Resources.Requests[corev1.ResourceStorage]
		if has != "" && has != want || !size.IsZero() && size.Cmp(config.NATSStorage.Size) < 0 {
			names = append(names, c.Name)
		}
	}
	return names
}
