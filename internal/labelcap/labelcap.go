// Package labelcap keeps the number of values of a metric's labels small, whatever clients send.
package labelcap

import (
	"strings"
	"sync"
)

// Other is the value of each label that is beyond the limit.
const Other = "other"

// Cap lets the first values of labels through.
type Cap struct {
	most int
	mu   sync.RWMutex
	seen map[string]bool
}

// New returns a Cap for at most so many combinations of values.
func New(most int) *Cap { return &Cap{most: most, seen: map[string]bool{}} }

// Values returns a combination of values, or Other for each of them if there are too many
// combinations already.
func (c *Cap) Values(values ...string) []string {
	key := strings.Join(values, "\x00")
	c.mu.RLock()
	known := c.seen[key]
	c.mu.RUnlock()
	if known || c.learn(key) {
		return values
	}
	others := make([]string, len(values))
	for i := range others {
		others[i] = Other
	}
	return others
}

func (c *Cap) learn(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.seen[key] && len(c.seen) >= c.most {
		return false
	}
	c.seen[key] = true
	return true
}

// Forget makes room: the combinations that begin with a value are gone.
func (c *Cap) Forget(first string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.seen {
		if key == first || strings.HasPrefix(key, first+"\x00") {
			delete(c.seen, key)
		}
	}
}
