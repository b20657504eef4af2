package lease

import (
	"encoding/json"
	"maps"
	"slices"

	coordinationapi "k8s.io/api/coordination/v1"
)

// holderKey is of the annotation that says in words that people know who holds the Lease. The lock
// itself is held by its identity alone.
const holderKey = "holder"

// About is what people are told of a holder. None of it is secret.
type About struct {
	User string `json:"user,omitempty"`
	Host string `json:"host,omitempty"`
	// Jobs that the holder works on.
	Jobs []string `json:"jobs,omitempty"`
}

// introduction is the annotation. A process of an older version leaves the annotation of the
// holder before it, so it counts only with the identity that the Lease has.
type introduction struct {
	Identity string `json:"identity"`
	About
}

// introduce writes who holds the Lease, and removes that when nobody does.
func (l *Lock) introduce(lease *coordinationapi.Lease, holder string) {
	if holder != l.identity {
		delete(lease.Annotations, l.names.Key(holderKey))
		return
	}
	about := l.About
	for _, job := range slices.Sorted(maps.Keys(l.working)) {
		if l.working[job] {
			about.Jobs = append(slices.Clone(about.Jobs), job)
		}
	}
	raw, err := json.Marshal(introduction{Identity: holder, About: about})
	if err != nil {
		return // strings can be written
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[l.names.Key(holderKey)] = string(raw)
}

// Introduced is what the holder of the Lease as seen says of itself, empty if it says nothing.
func (l *Lock) Introduced() About {
	var said introduction
	if l.Live == nil || l.Seen == nil || json.Unmarshal([]byte(l.Live.Annotations[l.names.Key(holderKey)]), &said) != nil || said.Identity != l.Seen.HolderIdentity {
		return About{}
	}
	return said.About
}
