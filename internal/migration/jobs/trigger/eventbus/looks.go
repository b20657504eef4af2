package eventbus

import (
	"sync"
	"time"
)

// Look is how many events had ever come to a channel at a time.
type Look struct {
	Sequence uint64
	At       time.Time
}

// Looks are the first looks at channels of NATS Streaming, by their name. The zero value
// has none.
type Looks struct {
	mu        sync.Mutex
	byChannel map[string]Look
}

// Clear forgets all looks.
func (l *Looks) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.byChannel)
}

// First keeps the first look at a channel, and returns it. The window in
// which nobody may publish begins with it, and goes on beside all other waits.
func (l *Looks) First(channel string, f InFlight) Look {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, known := l.byChannel[channel]
	if c, ok := f.Channels[channel]; !known && ok && f.Unreadable == "" {
		first = Look{c.LastSequence, f.At}
		if l.byChannel == nil {
			l.byChannel = map[string]Look{}
		}
		l.byChannel[channel] = first
	}
	return first
}
