//go:build unix

package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// TestTheReserve: events are refused when only the reserve is left, and taken again when there is
// more than that.
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

// TestAVolumeThatFails: events are refused while no file can be created, and the server starts
// again when one can. One of several ends at once, unless the others have no room, either. Before,
// nothing tried to write.
func TestAVolumeThatFails(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, tc := range []struct {
		reason  string
		failed  []error
		several bool
		enabled bool
		after   time.Duration
		store   int64
		percent int64
		ends    bool
	}{
		{"it works", []error{nil}, false, true, time.Hour, -1, 50, false},
		{"it is read-only", []error{nil, syscall.EROFS}, false, true, time.Hour, 0, notWritable, false},
		{"it was read-only", []error{syscall.EROFS, nil}, false, true, 0, -1, 50, true},
		{"it is read-only, and there are others", []error{syscall.EROFS}, true, true, 0, 0, notWritable, true},
		{"it has no inodes left, and the others have none, either", []error{syscall.ENOSPC}, true, true, time.Hour, 0, notWritable, false},
		{"JetStream was disabled just now", []error{nil}, false, false, time.Second, -1, 50, false},
		{"JetStream stays disabled, and the volume is good", []error{nil}, false, false, disabledFor, -1, 50, true},
		{"JetStream stays disabled, and the volume is not good", []error{syscall.EIO}, false, false, time.Hour, 0, notWritable, false},
	} {
		var next error
		v := &volume{
			limit: time.Minute,
			write: func(string) error { return next },
			stat: func(_ string, to *syscall.Statfs_t) error {
				to.Bsize, to.Blocks, to.Bfree, to.Bavail = 4096, 1000, 500, 500
				return nil
			},
		}
		for _, next = range tc.failed {
			v.try()
		}
		v.ends(now, tc.enabled, tc.several)
		ends := v.ends(now.Add(tc.after), tc.enabled, tc.several)
		limits, err := v.look()
		if err != nil || limits.MaxStore != tc.store || limits.MemoryMaxStreamBytes != tc.percent || (ends != "") != tc.ends {
			t.Errorf("%s: %d bytes may be stored, %d %% full, %v, ends: %q", tc.reason, limits.MaxStore, limits.MemoryMaxStreamBytes, err, ends)
		}
	}
}

// TestAVolumeThatHangs: a write neither ends nor fails. One of several servers ends; one alone
// refuses events until the write ends, and goes on without a restart.
func TestAVolumeThatHangs(t *testing.T) {
	t.Parallel()
	var result chan error
	v := &volume{
		limit: 10 * time.Millisecond,
		write: func(string) error { return <-result },
		stat: func(_ string, to *syscall.Statfs_t) error {
			to.Bsize, to.Blocks, to.Bfree, to.Bavail = 4096, 1000, 500, 500
			return nil
		},
	}
	says := func(ends string, refuses bool) {
		t.Helper()
		limits, err := v.look()
		if err != nil || refuses != (limits.MaxStore == 0) || refuses != (limits.MemoryMaxStreamBytes == notWritable) {
			t.Errorf("%d bytes may be stored, %d %% full, %v", limits.MaxStore, limits.MemoryMaxStreamBytes, err)
		}
		if alone, ofThree := v.ends(time.Now(), true, false), v.ends(time.Now(), true, true); alone != "" || ofThree != ends {
			t.Errorf("alone it ends: %q, and of three: %q", alone, ofThree)
		}
	}
	hangs := "The volume at  cannot be written: a write takes longer than 10s. The server ends, so that another one takes over."
	result = make(chan error)
	for range 2 { // the second time, the same write is waited for
		v.try()
		says(hangs, true)
	}
	result <- nil
	v.limit = time.Minute
	v.try()
	says("", false)
	close(result)
	v.try()
	says("", false)
}

// TestJetStreamThatWasDisabled: the server disables JetStream after some errors, and never enables
// it again. It is not ready then, nothing kills it for that, and it ends by itself, if its volume
// can be written, to be started again.
func TestJetStreamThatWasDisabled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not start")
	}
	probes := probesOfTheChart(t)
	answers := func(probe string) int {
		r := httptest.NewRecorder()
		s.HandleHealthz(r, httptest.NewRequest(http.MethodGet, probes[probe], nil))
		return r.Code
	}
	if ready, live := answers("readinessProbe"), answers("livenessProbe"); ready != http.StatusOK || live != http.StatusOK {
		t.Errorf("ready %d, live %d", ready, live)
	}
	if err := s.ShutdownJetStream(); err != nil { // as the server does it itself
		t.Fatal(err)
	}
	if ready, live := answers("readinessProbe"), answers("livenessProbe"); ready != http.StatusServiceUnavailable || live != http.StatusOK {
		t.Errorf("without JetStream: ready %d, live %d", ready, live)
	}
	ends := make(chan string, 1)
	go func() {
		ends <- (&volume{dir: dir, stat: syscall.Statfs, write: create, limit: hangLimit}).watch(s, nil, false)
	}()
	select {
	case why := <-ends:
		if !strings.HasPrefix(why, "JetStream is disabled") {
			t.Errorf("the server ends: %q", why)
		}
	case <-time.After(30 * time.Second):
		t.Error("the server goes on without JetStream")
	}
}

// probesOfTheChart are the paths that the kubelet asks one server alone for.
func probesOfTheChart(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../../charts/eventing/charts/nats/templates/statefulset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{}
	for _, found := range regexp.MustCompile(`(?s)(\w+Probe):\n.*?httpGet: \{path: "([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
		paths[found[1]] = found[2]
	}
	if len(paths) != 3 {
		t.Fatalf("probes %v", paths)
	}
	return paths
}
