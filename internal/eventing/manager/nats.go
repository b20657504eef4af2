package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/api/meta"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/decide"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/internal/natsutil"
)

// requestTimeout bounds each request to NATS.
const requestTimeout = 5 * time.Second

// leaderTimeout bounds the question to one server how it is.
const leaderTimeout = time.Second

// roomEvery is how often it is asked whether there is room for events: people are told within 5
// seconds.
const roomEvery = 2 * time.Second

// connection is the one connection of the operator to NATS. It is replaced only when the address or
// the credentials change: an old one would reconnect for ever.
type connection struct {
	url string
	// changed is called when the connection comes and goes.
	changed func()

	mu sync.Mutex
	userConn
	// system is another user's connection, which asks single servers. It is there if there are
	// several.
	system  userConn
	problem error // of the last try to connect
	// away is when NATS was first found away, by this operator or after it had answered; behind is
	// the same of one of its servers.
	away, behind time.Time
	// empty is when the stream was; stuck is when it held events that no consumer has to deliver.
	empty, stuck steady
	// barrier is what proves of a closed stream that nothing comes after it.
	barrier barrier
	// room is what was last seen of the stream and its volume.
	room room
	// full are the subjects of which the stream takes no more events, since when; nil if this
	// operator has not looked yet.
	full map[string]time.Time
	// sizes are of events, by subject, as they were when the stream had stored the event sized.
	sizes map[string]uint64
	sized uint64
}

// userConn is a connection of one user.
type userConn struct {
	conn    *nats.Conn
	account uint64 // a hash of what conn was made with
}

// ensure connects, unless there is a connection with the same credentials.
func (u *userConn) ensure(url string, account natsutil.Account, options ...nats.Option) (*nats.Conn, error) {
	h := fnv.New64a()
	_, _ = h.Write(account.Seed)
	_, _ = h.Write(account.CA)
	if u.conn != nil && u.account == h.Sum64() {
		return u.conn, nil
	}
	u.close()
	conn, err := natsutil.Connect(url, account, options...)
	u.conn, u.account = conn, h.Sum64()
	return conn, err
}

func (u *userConn) close() {
	if u.conn != nil {
		u.conn.Close()
	}
	*u = userConn{}
}

// room says whether there is room for events: in all, and of each subject.
type room struct {
	level stream.Level
	full  string
	// letters is about how many dead letters there are; 0 if that is unknown.
	letters uint64
}

func (c *connection) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.userConn.close()
	c.system.close()
	c.problem = nil
}

// ensure returns the connection. It may not be established yet.
func (c *connection) ensure(account natsutil.Account) (*nats.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.conn
	conn, err := c.userConn.ensure(c.url, account,
		nats.ConnectHandler(func(*nats.Conn) { c.note(nil) }),
		nats.ReconnectHandler(func(*nats.Conn) { c.note(nil) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { c.note(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { c.keep(err) }))
	if conn != was {
		c.problem = err
	}
	return conn, err
}

func (c *connection) note(err error) {
	c.keep(err)
	c.changed()
}

func (c *connection) keep(err error) {
	c.mu.Lock()
	c.problem = err
	c.mu.Unlock()
}

// observe asks the servers. What they do not answer is said in the problem, and is no error: an
// operator has to act without NATS, too.
func (c *connection) observe(ctx context.Context, w *observed.World, d *decide.Rules) {
	account := d.Account(w, "manager")
	if len(account.Seed) == 0 || len(account.CA) == 0 {
		w.NATS.Problem = "Its credentials are being created."
		return
	}
	conn, err := c.ensure(account)
	if err != nil {
		w.NATS.Problem = fmt.Sprintf("Cannot connect to NATS: %v", err)
		return
	}
	if !c.established(ctx, conn) {
		c.mu.Lock()
		w.NATS.Problem = fmt.Sprintf("NATS does not answer at %s.", c.url)
		if c.problem != nil {
			w.NATS.Problem = fmt.Sprintf("NATS does not answer at %s: %v", c.url, c.problem)
		}
		c.mu.Unlock()
		return
	}
	if err := c.read(ctx, w, conn, d); err != nil {
		w.NATS = observed.NATS{Problem: fmt.Sprintf("NATS does not answer: %v", err)}
		return
	}
	w.NATS.Connected = true
	w.NATS.StaleCertificate = stale(conn, d.Certificate(w))
}

// reconnectGrace is for how long a connection may be broken before NATS counts as away: one of
// several servers has ended, and the first try to connect again finds another one
// (natsutil.Connect).
const reconnectGrace = 500 * time.Millisecond

// established tells whether the connection is, or is so again in a moment. It waits only where NATS
// is not known to be away.
func (c *connection) established(ctx context.Context, conn *nats.Conn) bool {
	c.mu.Lock()
	known := !c.away.IsZero()
	c.mu.Unlock()
	if known || conn.IsConnected() {
		return conn.IsConnected()
	}
	changes := conn.StatusChanged(nats.CONNECTED)
	defer conn.RemoveStatusListener(changes)
	if !conn.IsConnected() { // or it was before the changes were asked for
		select {
		case <-changes:
		case <-ctx.Done():
		case <-time.After(reconnectGrace):
		}
	}
	return conn.IsConnected()
}

// watch looks at the room for events, and calls changed when there is more or less of it than was
// seen last. Nothing else tells of it.
func (c *connection) watch(ctx context.Context) {
	for tick := time.NewTicker(roomEvery); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		c.mu.Lock()
		conn, last := c.conn, c.room
		c.mu.Unlock()
		if conn == nil || !conn.IsConnected() {
			continue
		}
		if now, err := c.roomOf(ctx, conn); err == nil && now != last {
			c.changed()
		}
	}
}

func (c *connection) roomOf(ctx context.Context, conn *nats.Conn) (room, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	js, err := jetstream.New(conn)
	if err != nil {
		return room{}, err
	}
	s, err := js.Stream(ctx, backend.Stream)
	if err != nil {
		return room{}, err
	}
	volume, err := c.volume(ctx, js, s.CachedInfo())
	if err != nil {
		return room{}, err
	}
	full, err := stream.Full(ctx, s)
	if err != nil {
		return room{}, err
	}
	letters, err := deadLetters(ctx, js)
	return room{stream.LevelOf(s.CachedInfo(), volume), strings.Join(full, " "), magnitude(letters)}, err
}

// volume reads what the server says of its volume that leads the stream. Of several servers, the
// account's limits are those of the one that leads JetStream. They are what is left if the other
// one does not answer: an older configuration may not allow the question.
func (c *connection) volume(ctx context.Context, js jetstream.JetStream, info *jetstream.StreamInfo) (stream.Volume, error) {
	account, err := js.AccountInfo(ctx)
	if err != nil {
		return stream.Volume{}, err
	}
	c.mu.Lock()
	system := c.system.conn
	c.mu.Unlock()
	volume := stream.Room(account)
	if system == nil || !several(info) {
		return volume, nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	if refuses, err := stream.RefusesAt(ctx, system, info.Cluster.Leader); err == nil {
		volume.Refuses, volume.NotWritable = refuses, refuses && volume.NotWritable
	}
	return volume, nil
}

// several tells whether the stream has a leader among several servers.
func several(info *jetstream.StreamInfo) bool {
	return info.Cluster != nil && info.Cluster.Leader != "" && len(info.Cluster.Replicas) > 0
}

// readRoom reads how much room there is, and if there is little, what holds it.
func (c *connection) readRoom(ctx context.Context, w *observed.World, s jetstream.Stream) (little bool, err error) {
	info := w.NATS.Stream
	full, err := stream.Full(ctx, s)
	if err != nil {
		return false, err
	}
	level := stream.LevelOf(info, w.NATS.Volume)
	c.mu.Lock()
	c.room = room{level, strings.Join(full, " "), magnitude(w.NATS.DeadLetters)}
	since := map[string]time.Time{}
	for _, subject := range full {
		since[subject] = w.Now
		if at, ok := c.full[subject]; ok {
			since[subject] = at
		} else if is := meta.FindStatusCondition(w.Eventing.Status.Conditions, operatorv1alpha1.ConditionBackendAvailable); c.full == nil && is != nil && is.Reason == operatorv1alpha1.ReasonTypeFull {
			since[subject] = is.LastTransitionTime.Time // seen by an operator before this one
		}
	}
	c.full, w.NATS.Full = since, since
	sizes := c.sizes
	if c.sized != info.State.LastSeq {
		sizes = nil
	}
	c.mu.Unlock()
	if level == stream.Enough && len(full) == 0 {
		return false, nil
	}
	if w.NATS.Counts, err = stream.Counts(ctx, s); err != nil {
		return true, err
	}
	if w.NATS.Sizes = sizes; sizes == nil {
		if w.NATS.Sizes, err = stream.Sizes(ctx, s, w.NATS.Counts); err != nil {
			return true, err
		}
		c.mu.Lock()
		c.sizes, c.sized = w.NATS.Sizes, info.State.LastSeq
		c.mu.Unlock()
	}
	return true, nil
}

// since notes for how long no server has answered, and for how long one has been behind the others.
func (c *connection) since(w *observed.World) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.NATS.Away = ongoing(&c.away, !w.NATS.Connected, w.Now)
	w.NATS.BehindFor = ongoing(&c.behind, len(w.NATS.Behind) > 0, w.Now)
}

// ongoing notes since when something is so, and returns for how long.
func ongoing(since *time.Time, is bool, now time.Time) time.Duration {
	switch {
	case !is:
		*since = time.Time{}
	case since.IsZero():
		*since = now
	default:
		return now.Sub(*since)
	}
	return 0
}

func (c *connection) read(ctx context.Context, w *observed.World, conn *nats.Conn, d *decide.Rules) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	at := reading{began: time.Now()}
	s, err := js.Stream(ctx, backend.Stream)
	at.ended = time.Now()
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
	case err != nil:
		return err
	default:
		w.NATS.Stream = s.CachedInfo()
	}
	if w.NATS.DeadLetters, err = deadLetters(ctx, js); err != nil {
		return err
	}
	// The same is read of NATS that is being left: it tells what holds the switch up.
	deleting := w.Eventing.DeletionTimestamp != nil || w.Eventing.Spec.Backend != nil && w.Eventing.Spec.Backend.Type.Canonical() != operatorv1alpha1.NATS
	if deleting {
		others := js.StreamNames(ctx)
		for name := range others.Name() {
			if name != backend.Stream && name != backend.DeadLetters {
				w.NATS.OtherStreams = append(w.NATS.OtherStreams, name)
			}
		}
		if err := others.Err(); err != nil {
			return err
		}
	}
	if info := w.NATS.Stream; info != nil {
		if several(info) {
			c.mu.Lock()
			_, _ = c.system.ensure(c.url, d.Account(w, "system")) // without it, the limits of the account are what is known
			c.mu.Unlock()
		}
		if w.NATS.Volume, err = c.volume(ctx, js, info); err != nil {
			return err
		}
		w.NATS.Behind = behind(info)
		if letters := w.NATS.DeadLetters; letters != nil { // what it holds is asked before NATS is removed
			w.NATS.Behind = slices.Compact(slices.Sorted(slices.Values(append(w.NATS.Behind, behind(letters)...))))
		}
		little, err := c.readRoom(ctx, w, s)
		if err != nil {
			return err
		}
		if deleting || little {
			consumers := s.ListConsumers(ctx)
			for consumer := range consumers.Info() {
				w.NATS.Consumers = append(w.NATS.Consumers, consumer)
			}
			if err := consumers.Err(); err != nil {
				return err
			}
		}
		if c.wantsBarrier(info, at) {
			if info, err = c.raise(ctx, js); err != nil {
				return err
			}
			w.NATS.Stream = info
		}
		w.NATS.Quiet = (c.behindBarrier(info) || c.quiet(info, at, d)) && (w.NATS.DeadLetters == nil || current(w.NATS.DeadLetters))
		w.NATS.Dangling = c.dangling(info, w.NATS.Consumers, at)
	}
	return nil
}

// magnitude is how many messages a stream has, in a power of two: people are told soon of the first
// ones, and not of each.
func magnitude(info *jetstream.StreamInfo) uint64 {
	if info == nil {
		return 0
	}
	return uint64(bits.Len64(info.State.Msgs)) //nolint:gosec // at most 64
}

// deadLetters reads the stream of dead letters; nil if there is none.
func deadLetters(ctx context.Context, js jetstream.JetStream) (*jetstream.StreamInfo, error) {
	s, err := js.Stream(ctx, backend.DeadLetters)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return s.CachedInfo(), nil
}

// stale tells whether the certificate of the connection is another one than that of the Secret.
func stale(conn *nats.Conn, want natsutil.Pair) bool {
	state, err := conn.TLSConnectionState()
	serial, bad := want.Serial()
	return err == nil && bad == nil && len(state.PeerCertificates) > 0 && state.PeerCertificates[0].SerialNumber.Cmp(serial) != 0
}

// reload makes each server that presents another certificate read its files again. When none does,
// the operator connects again, so that it sees the new certificate itself.
func (c *connection) reload(ctx context.Context, account natsutil.Account, want natsutil.Pair) error {
	end, err := want.NotAfter()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	conn, err := natsutil.Connect(c.url, account)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("cannot connect to NATS at %s: %w", c.url, err)
	}
	inbox := conn.NewRespInbox()
	answers, err := conn.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	if err := conn.PublishRequest("$SYS.REQ.SERVER.PING.VARZ", inbox, nil); err != nil {
		return err
	}
	stale := 0
	for {
		message, err := answers.NextMsg(time.Second)
		if errors.Is(err, nats.ErrTimeout) {
			break // how many servers answer is not known
		}
		if err != nil {
			return err
		}
		var answer struct {
			Server struct{ ID string }
			Data   struct {
				Expiry time.Time `json:"tls_cert_not_after"`
			}
		}
		if err := json.Unmarshal(message.Data, &answer); err != nil {
			return fmt.Errorf("cannot read the answer of a NATS server: %w", err)
		}
		if !answer.Data.Expiry.Equal(end) {
			stale++
			if _, err := conn.RequestWithContext(ctx, "$SYS.REQ.SERVER."+answer.Server.ID+".RELOAD", nil); err != nil {
				return fmt.Errorf("NATS server %s did not reload: %w", answer.Server.ID, err)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if stale == 0 && c.conn != nil {
		return c.conn.ForceReconnect()
	}
	return nil
}
