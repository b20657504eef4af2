//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// watchEvery is how often the server looks at its volume: less often than the reserve of a
	// small one could be written.
	watchEvery = 50 * time.Millisecond
	// mostReserve is the largest part of a volume that is kept free.
	mostReserve = 256 << 20
	// writeEvery is how often a file is created: a file system that has become read-only, or has no
	// inodes left, says so only then.
	writeEvery = 500 * time.Millisecond
	// hangLimit is how long a write may take. A volume of a provider may answer nothing for
	// minutes, and fail no write. Publishers wait for 5 seconds then.
	hangLimit = 10 * time.Second
	// disabledFor is for how long JetStream may be disabled on a good volume: a server that ends
	// disables it, too.
	disabledFor = 2 * time.Second
	// endWithin is how long a server may need to end that cannot write.
	endWithin = 10 * time.Second
	// notWritable is what is said in the place of how full the volume is:
	// internal/eventing/stream/room.go.
	notWritable = 101
)

// volume keeps a part of the volume free. JetStream counts the bytes of events, and not those of
// its files: it can hold nearly twice as much on the disk. When the disk is full it can delete
// nothing any more, and does not recover. So events are refused while there is still room to
// delete: docs/decisions/1362-the-space-of-nats.md.
type volume struct {
	dir string
	// size is what the volume was asked to have; 0 if that is unknown. A volume that is a directory
	// of a larger disk has the room of that.
	size   uint64
	stat   func(dir string, to *syscall.Statfs_t) error
	write  func(dir string) error
	limit  time.Duration
	closed bool
	// writing is the result of the write that is under way; nil if none is.
	writing <-chan error
	// failed is why the last file could not be created, broken that one could not since the
	// process started, and recovered that one can be created again.
	failed            error
	broken, recovered bool
	// disabled is since when JetStream is.
	disabled time.Time
}

// errHangs says that a write has neither ended nor failed within the limit.
var errHangs = fmt.Errorf("a write takes longer than %s", hangLimit)

// create creates a file in a directory, and removes it.
func create(dir string) error { return createWith(dir, func(*os.File) error { return nil }) }

// createSynced is create for a server that acknowledges an event when it is on the disk. Without
// it, files can be created for long on a disk that does not answer.
func createSynced(dir string) error { return createWith(dir, (*os.File).Sync) }

func createWith(dir string, sync func(*os.File) error) error {
	f, err := os.OpenFile(filepath.Join(dir, name+".write"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(name)
	return errors.Join(err, sync(f), f.Close(), os.Remove(f.Name()))
}

// try finds out whether the volume can be written. A write that hangs is waited for again the next
// time. What has only hung has failed nothing: JetStream goes on when it does.
func (v *volume) try() {
	if v.writing == nil {
		writing := make(chan error, 1)
		go func() { writing <- v.write(v.dir) }()
		v.writing = writing
	}
	select {
	case v.failed = <-v.writing:
		v.writing = nil
		v.recovered = v.recovered || v.broken && v.failed == nil
		v.broken = v.broken || v.failed != nil
	case <-time.After(v.limit):
		v.failed = errHangs
	}
}

// ends says why the process has to end, so that it is started again; "" if it goes on. A stream
// whose write has failed once takes no events for as long as the process runs, and JetStream that
// the server has disabled stays so. Of several servers, one that cannot write ends at once, so that
// another one leads: it starts again when it can write. One whose writes hang would lead on, and
// nobody could publish.
func (v *volume) ends(now time.Time, enabled, several bool) string {
	if enabled || v.failed != nil || v.closed {
		v.disabled = time.Time{}
	} else if v.disabled.IsZero() {
		v.disabled = now
	}
	switch {
	case v.recovered:
		return fmt.Sprintf("The volume at %s can be written again. The server starts again, because it may have stopped to store.", v.dir)
	case several && v.failed != nil && !errors.Is(v.failed, syscall.ENOSPC): // without room, no other server would do better
		return fmt.Sprintf("The volume at %s cannot be written: %s. The server ends, so that another one takes over.", v.dir, v.failed)
	case !v.disabled.IsZero() && now.Sub(v.disabled) >= disabledFor:
		return "JetStream is disabled, and its volume can be written. The server starts again."
	}
	return ""
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

// look decides whether events are taken. The limits say so to the accounts, and to clients that ask
// for them: 0 bytes of storage are refused at once. JetStream has no limit that says how full a
// disk is; that of a stream in memory means nothing to a server whose streams are in files, and
// carries it, in percent.
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
	if v.failed != nil {
		limits.MaxStore, limits.MemoryMaxStreamBytes = 0, notWritable
	}
	return limits, nil
}

// watch looks after the volume as long as the process runs. A reload of the configuration sets the
// limits of accounts, so they are set each time. several: there are other servers. It returns why
// the process has to end.
func (v *volume) watch(s *server.Server, accounts []*server.Account, several bool) string {
	if len(accounts) == 0 {
		accounts = []*server.Account{s.GlobalAccount()}
	}
	var tried time.Time
	for tick := time.Tick(watchEvery); ; {
		now := <-tick
		was, failed := v.closed, v.failed
		if now.Sub(tried) >= writeEvery {
			tried = now
			v.try()
		}
		if v.failed != nil && failed == nil {
			fmt.Fprintf(os.Stderr, "The volume at %s cannot be written: %s. Events are refused until it can.\n", v.dir, v.failed)
		}
		// A server that hands over takes no connections, and ends by itself.
		enabled := s.JetStreamEnabled() || !s.ReadyForConnections(time.Millisecond)
		if why := v.ends(now, enabled, several); why != "" {
			return why
		}
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
