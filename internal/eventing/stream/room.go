package stream

import "github.com/nats-io/nats.go/jetstream"

// Volume is what a NATS server of ours says of its volume, in the limits of the account: cmd/internal/nats-server/volume.go.
type Volume struct {
	// Refuses: no event is taken, so that there is room to delete.
	Refuses bool
	// Percent is how full the volume is; 0 if that is unknown.
	Percent int
	// NotWritable: no file can be created in it.
	NotWritable bool
}

// notWritable is said in the place of how full the volume is.
const notWritable = 101

// Room reads what the server says of its volume. A server of another image says nothing.
func Room(of *jetstream.AccountInfo) Volume {
	v := Volume{Refuses: of.Limits.MaxStore == 0, NotWritable: of.Limits.MemoryMaxStreamBytes == notWritable}
	if percent := of.Limits.MemoryMaxStreamBytes; percent > 0 && percent <= 100 {
		v.Percent = int(percent)
	}
	return v
}
