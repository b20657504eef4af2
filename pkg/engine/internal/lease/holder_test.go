package lease

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationapi "k8s.io/api/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// TestIntroduction: a holder says who it is, and nothing of it counts for another holder.
func TestIntroduction(t *testing.T) {
	l := &Lock{identity: "vm_1_x", About: About{User: "ada", Host: "vm"}, working: map[string]bool{"b": true, "a": true, "ended": false}}
	held := &coordinationapi.Lease{}
	l.introduce(held, "vm_1_x")
	for name, tc := range map[string]struct {
		reason, holder string
		want           About
	}{
		"Holder": {"it is the one that wrote it", "vm_1_x", About{User: "ada", Host: "vm", Jobs: []string{"a", "b"}}},
		"Older":  {"a process of an older version took the lock, and left the annotation", "vm_2_y", About{}},
	} {
		seen := &Lock{Live: held, Seen: &resourcelock.LeaderElectionRecord{HolderIdentity: tc.holder}}
		if diff := cmp.Diff(tc.want, seen.Introduced()); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, tc.reason, diff)
		}
	}
	l.introduce(held, "")
	if len(held.Annotations) > 0 {
		t.Errorf("nobody holds the Lease, and it says: %v", held.Annotations)
	}
}
