//go:build unix

package main

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// watchEvery is how often the server looks at its volume: less often than the reserve of a small one could be written.
	watchEvery = 50 * time.Millisecond
	// mostReserve is the largest part of a volume that is kept free.
	mostReserve = 256 << 20
)

// volume keeps a part of the volume free. JetStream counts the bytes of events, and not those of its files: it can hold nearly twice as much
// on the disk. When the disk is full it can delete nothing any more, and does not recover. So events are refused while there is
// still room to delete: docs/decisions/1362-a-full-volume-refuses-events.md.
type volume struct {
	dir string
	// size is what the volume was asked to have; 0 if that is unknown. A volume that is a directory of a larger disk has the room of that.
	size   uint64
	stat   func(dir string, to *syscall.Statfs_t) error
	closed bool
}

// free is what a process without privileges can still write, and what there is for it in all.
func (v *volume) free() (free, all uint64, err error) {
	var s syscall.Statfs_t
	if err := v.stat(v.dir, &s); err != nil {
		return 0, 0, err
	}
	size := uint64(s.Bsize) //nolint:gosec // never negative
	return s.Bavail * size, (s.Blocks - s.Bfree + s.Bavail) * size, nil
}

// look decides whether events are taken. The limits say so to the accounts, and to clients that ask for them: 0 bytes of storage are refused
// at once. JetStream has no limit that says how full a disk is; that of a stream in memory means nothing to ours, and carries it, in percent.
func (v *volume) look() (limits server.JetStreamAccountLimits, err error) {
	limits = server.JetStreamAccountLimits{MaxMemory: -1, MaxStore: -1, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1, MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1}
	free, all, err := v.free()
	if err != nil || all == 0 {
		return limits, err
	}
	reserve := min(all/8, mostReserve)
	if v.closed {
		reserve += reserve / 4 // or it would open and close with each event
	}
	if v.closed = free < reserve; v.closed {
		limits.MaxStore = 0
	}
	if v.size > 0 {
		all = min(all, v.size)
	}
	limits.MemoryMaxStreamBytes = max(1, int64((all-min(free, all))*100/all)) //nolint:gosec // at most 100
	return limits, nil
}

// watch looks after the volume as long as the process runs. A reload of the configuration sets the limits of accounts, so they are set each time.
func (v *volume) watch(s *server.Server, accounts []*server.Account) {
	if len(accounts) == 0 {
		accounts = []*server.Account{s.GlobalAccount()}
	}
	for range time.Tick(watchEvery) {
		was := v.closed
		limits, err := v.look()
		if err != nil {
			fmt.Fprintf(os.Stderr, "Cannot look at the volume at %s: %s\n", v.dir, err)
			continue
		}
		if v.closed != was {
			fmt.Fprintln(os.Stderr, v.says())
		}
		for _, configured := range accounts {
			account, err := s.LookupAccount(configured.Name)
			if err != nil || !account.JetStreamEnabled() || account.JetStreamUsage().Limits == limits {
				continue
			}
			if err := account.UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": limits}); err != nil {
				fmt.Fprintf(os.Stderr, "Cannot limit the account %s: %s\n", account.Name, err)
			}
		}
	}
}

func (v *volume) says() string {
	if v.closed {
		return fmt.Sprintf("The volume at %s is nearly full: events are refused until there is room. "+
			"To see who holds it: kubectl get eventings.operator.kyma-project.io --all-namespaces -o yaml", v.dir)
	}
	return fmt.Sprintf("The volume at %s has room: events are taken.", v.dir)
}
