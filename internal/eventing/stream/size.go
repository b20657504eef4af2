package stream

import (
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
)

// defaultDeadLetters is the size of the dead letters of an Eventing that was stored without one.
const defaultDeadLetters = 64 << 20

// Shares are the most that events and dead letters may take: together no more than the volume holds
// safely. volume is zero if it is not known. In memory, dead letters come in addition.
func Shares(c operatorv1alpha1.BackendConfig, volume resource.Quantity) (events, dead int64) {
	events, dead = c.NATSStreamMaxSize.Value(), c.DeadLetterMaxSize.Value()
	if dead <= 0 {
		dead = defaultDeadLetters
	}
	switch {
	case c.NATSStreamStorageType == operatorv1alpha1.StorageMemory:
		return events, min(dead, events/8)
	case volume.IsZero():
		return events, dead
	}
	safe := SafeSize(volume.Value())
	dead = min(dead, safe/4)
	return min(events, safe-dead), dead
}

// Wanted is the stream that is asked for, with no more than its volume holds safely.
func Wanted(c operatorv1alpha1.BackendConfig, claims []corev1.PersistentVolumeClaim, epoch string, open bool) jetstream.StreamConfig {
	want := Config(c, epoch, open)
	want.MaxBytes, _ = Shares(c, SmallestVolume(c, claims))
	return want
}

// AsOpen is Wanted, as open as a stream is.
func AsOpen(is jetstream.StreamConfig, c operatorv1alpha1.BackendConfig, claims []corev1.PersistentVolumeClaim, epoch string) jetstream.StreamConfig {
	want := Wanted(c, claims, epoch, Open(is))
	if at, ok := is.Metadata[ClosedAtKey]; ok && !Open(is) {
		want.Metadata[ClosedAtKey] = at
	}
	return want
}

// WantedLetters is the stream of dead letters that is asked for.
func WantedLetters(c operatorv1alpha1.BackendConfig, claims []corev1.PersistentVolumeClaim) jetstream.StreamConfig {
	_, size := Shares(c, SmallestVolume(c, claims))
	return DeadLetters(c, size)
}

// Shortage says that a volume does not hold the stream that is asked for; without a message it
// does.
type Shortage struct {
	Message string
	// Need is the volume that would hold it.
	Need resource.Quantity
}

// Limited says whether a volume holds the stream that is asked for.
func Limited(c operatorv1alpha1.BackendConfig, volume resource.Quantity) Shortage {
	want := c.NATSStreamMaxSize
	is, _ := Shares(c, volume)
	if is >= want.Value() {
		return Shortage{}
	}
	_, dead := Shares(c, resource.Quantity{})
	need := VolumeFor(want.Value() + min(dead, want.Value()/3+1)) // dead letters have at most a quarter
	return Shortage{fmt.Sprintf("The stream holds %s and not natsStreamMaxSize (%s): files can need twice as much as the events in them, and the volume has %s. It would need %s.",
		resource.NewQuantity(is>>20<<20, resource.BinarySI), &want, &volume, &need), need}
}
