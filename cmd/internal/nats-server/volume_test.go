//go:build unix

package main

import (
	"syscall"
	"testing"
)

// TestTheReserve: events are refused when only the reserve is left, and taken again when there is more than that.
func TestTheReserve(t *testing.T) {
	t.Parallel()
	const block, blocks = 4096, 25600 // 100 MiB
	var free uint64
	v := &volume{stat: func(_ string, to *syscall.Statfs_t) error {
		// A twentieth is for root alone.
		to.Bsize, to.Blocks, to.Bfree, to.Bavail = block, blocks, free+blocks/20, free
		return nil
	}}
	for _, tc := range []struct {
		reason  string
		free    uint64
		store   int64
		percent int64
	}{
		{"it is empty", blocks / 100 * 95, -1, 1},
		{"it is half full", blocks / 100 * 50, -1, 47},
		{"a little more than the reserve is left", blocks / 100 * 13, -1, 86},
		{"the reserve is left", blocks / 100 * 11, 0, 88},
		{"a little has been deleted", blocks / 100 * 13, 0, 86},
		{"nothing is left", 0, 0, 100},
		{"more has been deleted", blocks / 100 * 16, -1, 83},
	} {
		free = tc.free
		limits, err := v.look()
		if err != nil || limits.MaxStore != tc.store || limits.MemoryMaxStreamBytes != tc.percent {
			t.Errorf("%s: %d bytes may be stored, %d %% full, %v; want %d and %d", tc.reason, limits.MaxStore, limits.MemoryMaxStreamBytes, err, tc.store, tc.percent)
		}
	}
	v.size = blocks * block / 10
	free = blocks / 4
	if limits, err := v.look(); err != nil || limits.MaxStore != -1 || limits.MemoryMaxStreamBytes != 1 {
		t.Errorf("a directory of a disk that is 73 %% full, with room for more than the volume: %+v, %v", limits, err)
	}
}
