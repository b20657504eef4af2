package peers

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/test/natsserver"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

const limit = 30 * time.Second

// process is one controller of a test.
type process struct {
	*Peers

	conn            *nats.Conn
	changed, lapsed atomic.Int32
	heard           atomic.Value // what was told first
	stop            context.CancelFunc
}

func start(t *testing.T, s *natsserver.Server, pod string) *process {
	t.Helper()
	p := &process{}
	p.Peers = New(Options{Pod: pod, Log: zap.NewNop(), Changed: func() { p.changed.Add(1) }, Lapsed: func() { p.lapsed.Add(1) }})
	p.On("spec", func(_ string, content []byte) { p.heard.CompareAndSwap(nil, string(content)) })
	p.conn = connect(t, s, "")
	if err := p.Use(p.conn); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p.stop = cancel
	go func() { _ = p.Run(ctx) }()
	return p
}

func connect(t *testing.T, s *natsserver.Server, user string) *nats.Conn {
	t.Helper()
	options := []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond)}
	if user != "" {
		options = append(options, nats.UserInfo(user, "x"))
	}
	return s.Connect(t, options...)
}

func (p *process) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	poll.Until(t, limit, what, func(context.Context) error {
		if !holds() {
			return fmt.Errorf("live %t, members %d, changed %d, lapsed %d", p.Live(), len(p.Members()), p.changed.Load(), p.lapsed.Load())
		}
		return nil
	})
}

// TestPeers: processes know each other, one that is asked answers, one that leaves is gone at once,
// and one that is not heard after a while, in which it is waited for.
func TestPeers(t *testing.T) {
	t.Parallel() // it waits
	s := natsserver.Start(t, "", nil)
	a, b, c := start(t, s, "a"), start(t, s, "b"), start(t, s, "c")
	for _, p := range []*process{a, b, c} {
		p.await(t, "it knows all", func() bool { return p.Live() && len(p.Members()) == 3 })
		if p.lapsed.Load() != 1 {
			t.Errorf("it has looked %d times at what it knows", p.lapsed.Load())
		}
	}
	if !slices.Equal(a.Members(), b.Members()) {
		t.Errorf("%v and %v", a.Members(), b.Members())
	}
	if missing, err := a.Ask(t.Context(), "spec", "early"); err != ErrAlone || len(missing) > 0 { //nolint:errorlint // as it is returned
		t.Errorf("a moment after the begin: %v, %v", missing, err)
	}
	a.await(t, "it has listened for long enough", func() bool {
		missing, err := a.Ask(t.Context(), "spec", "now")
		return err == nil && len(missing) == 0
	})
	for _, p := range []*process{b, c} {
		if got := p.heard.Load(); got != `"early"` {
			t.Errorf("heard %v", got)
		}
	}
	c.stop()
	a.await(t, "c has left", func() bool { return len(a.Members()) == 2 })

	b.conn.Close()
	began := time.Now()
	if missing, err := a.Ask(t.Context(), "spec", "now"); err != nil || !slices.Equal(missing, []string{"b"}) {
		t.Errorf("b does not answer, and is not missed: %v, %v", missing, err)
	}
	for len(a.Members()) == 2 {
		if silent := time.Since(began); silent > LiveFor+time.Second && b.Live() {
			t.Fatalf("b is not heard for %s, and posts", silent)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if took := time.Since(began); took < LiveFor {
		t.Errorf("b is gone after %s, while it might post", took)
	}
	if b.Live() {
		t.Error("b is gone, and posts")
	}
	if missing, err := a.Ask(t.Context(), "spec", "now"); err != nil || len(missing) > 0 {
		t.Errorf("b is gone: %v, %v", missing, err)
	}
	if err := b.Use(connect(t, s, "")); err != nil {
		t.Fatal(err)
	}
	b.await(t, "it has looked again at what it knows", func() bool { return b.Live() && b.lapsed.Load() == 2 })
	a.await(t, "b is back", func() bool { return len(a.Members()) == 2 })
}

// TestWokenUp: a process that was stopped notices that before it does anything else, also if the
// first thing that it does is to hear itself.
func TestWokenUp(t *testing.T) {
	lapses := 0
	p := New(Options{Log: zap.NewNop(), Changed: func() {}})
	p.options.Lapsed = func() {
		lapses++
		if p.Live() {
			t.Error("it posts before it has looked")
		}
	}
	now := time.Now()
	p.sent[1], p.sent[2], p.sent[3] = now.Add(-time.Minute), now.Add(-2*time.Second), now
	p.steady, p.echoed, p.stale = now.Add(-time.Hour), now.Add(-LiveFor-time.Second), false
	if p.Live() {
		t.Error("it is not heard, and posts")
	}
	p.heardSelf(1, now)
	if p.Live() || lapses != 0 {
		t.Error("what it said long ago counts")
	}
	p.heardSelf(2, now)
	if lapses != 1 || p.Live() {
		t.Errorf("%d looks, live %t: the others have had no time to make room", lapses, p.Live())
	}
	p.heardSelf(3, now)
	p.steady = p.steady.Add(-listens)
	if lapses != 1 || !p.Live() {
		t.Errorf("%d looks, live %t", lapses, p.Live())
	}
}

// TestAge: a clock that was set makes nothing younger.
func TestAge(t *testing.T) {
	now := time.Now()
	if is := age(now.Add(-time.Minute), now); is != time.Minute {
		t.Error(is)
	}
	if is := age(now.Round(0).Add(time.Hour), now); is < time.Hour {
		t.Errorf("the clock was set back, and it is %s old", is)
	}
}

// TestMute: a server that does not let controllers speak says so, and they are told apart from one
// that is not heard.
func TestMute(t *testing.T) {
	t.Parallel() // it waits
	s := natsserver.Start(t, `authorization { users: [ { user: old, password: x, permissions { publish: ["a"], subscribe: ["_INBOX.>"] } } ] }`, nil)
	p := New(Options{Log: zap.NewNop(), Changed: func() {}, Lapsed: func() {}})
	if err := p.Use(connect(t, s, "old")); err != nil {
		t.Fatal(err)
	}
	if p.Mute() {
		t.Error("it is known at once")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = p.Run(ctx) }()
	poll.Until(t, limit, "the connection carries nothing", func(context.Context) error {
		if !p.Mute() {
			return fmt.Errorf("live %t", p.Live())
		}
		return nil
	})
	if p.Live() {
		t.Error("nobody hears it, and it is live")
	}
}
