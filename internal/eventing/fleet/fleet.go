// Package fleet merges the observations of all controllers, and divides between them the number of
// events that may be in flight. Each process keeps the reports of the others, so that any of them
// can become the leader.
package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/delivery"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/health"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters/wire"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/peers"
)

const (
	// reportEvery is how often each process tells the others what it has seen of its sinks.
	reportEvery = 2 * time.Second
	// reportsAMessage bounds the Subscriptions of one message, which has less than 64 KiB then.
	reportsAMessage = 100
	// watchFor is how long a process tells of an event that is watched, until it is asked again.
	watchFor = 10 * time.Second

	// What the controllers tell each other.
	aboutSinks, aboutWaiting, aboutWatch, aboutDelivery = "sinks", "waiting", "watch", "delivery"
)

// Fleet are all controllers that deliver: what they have seen together, and what each of them
// knows. Each process keeps what the others say, so that any of them can lead.
type Fleet struct {
	peers      *peers.Peers
	deliveries *delivery.Deliveries
	watches    *delivery.Watches
	log        *zap.Logger
	// changed is called when another process has seen something else of a sink.
	changed func(types.NamespacedName, time.Duration)

	mu sync.Mutex
	// others are what the other processes have seen, by run, and floors up to where the events of
	// each Subscription were taken.
	others map[string]map[types.NamespacedName]sighting
	floors map[types.NamespacedName]uint64
	// lost is when a process was heard last that is gone, or when this one began. complete is when
	// all events of a Subscription were known that NATS waits for.
	lost     time.Time
	complete map[types.NamespacedName]time.Time
	members  []string
	// failing are Subscriptions whose sink was said not to take events.
	failing map[types.NamespacedName]bool
	// sent is when this process told last.
	sent time.Time
	// open are Subscriptions that others know to have events here.
	open map[types.NamespacedName]bool
	// waited are those that the others were told of as ones with events that wait.
	waited map[types.NamespacedName]bool
	// watching are the events that this process tells somebody of, by the id of the watch, and
	// watched those that somebody asks for here.
	watching map[string]func()
	watched  map[string]chan wire.Delivery
}

// sighting is what another process has seen of a Subscription, by some settings.
type sighting struct {
	seen     delivery.Seen
	settings uint32
}

// New returns a Fleet of nobody. changed is called when another process has seen something else of
// a sink.
func New(log *zap.Logger, changed func(types.NamespacedName, time.Duration)) *Fleet {
	return &Fleet{
		log: log, changed: changed, lost: time.Now(),
		others: map[string]map[types.NamespacedName]sighting{}, floors: map[types.NamespacedName]uint64{}, complete: map[types.NamespacedName]time.Time{},
		failing: map[types.NamespacedName]bool{}, open: map[types.NamespacedName]bool{}, waited: map[types.NamespacedName]bool{}, watching: map[string]func(){}, watched: map[string]chan wire.Delivery{},
	}
}

// Join says who the others are, what this process delivers, and who watches it. It is called once,
// before anything is heard.
func (f *Fleet) Join(p *peers.Peers, d *delivery.Deliveries, w *delivery.Watches) {
	f.peers, f.deliveries, f.watches = p, d, w
	f.listen()
}

// Divide gives this process its part of what all may post at the same time. One event at a time is
// what NATS bounds: each process may have that one.
func (f *Fleet) Divide() {
	members, self := f.peers.Members(), f.peers.Self()
	f.mu.Lock()
	for run := range f.others {
		if !slices.Contains(members, run) {
			delete(f.others, run)
		}
	}
	for _, run := range f.members {
		if !slices.Contains(members, run) {
			f.lost = time.Now()
		}
	}
	for _, run := range members {
		if !slices.Contains(f.members, run) {
			f.sent = time.Time{} // it has heard nothing yet
		}
	}
	f.members = members
	f.mu.Unlock()
	f.log.Debug("controllers that deliver", zap.Int("number", len(members)))
	f.deliveries.Divide(func(subscription types.NamespacedName, all int) int { return part(members, self, subscription, all) })
}

// part is the part of a process of what all of them may post of a Subscription. What cannot be
// divided goes to other processes for each Subscription.
func part(members []string, self string, subscription types.NamespacedName, all int) int {
	n := len(members)
	if n <= 1 || all == 1 {
		return all
	}
	part := all / n
	if rank(members, self, subscription) < all%n {
		part++
	}
	return part
}

// rank is how many of the members come before this one for a Subscription.
func rank(members []string, self string, subscription types.NamespacedName) (before int) {
	weight := func(run string) uint32 { return hash(run, subscription.String()) }
	own := weight(self)
	for _, run := range members {
		if c := cmp.Compare(weight(run), own); c < 0 || c == 0 && run < self {
			before++
		}
	}
	return before
}

func hash(texts ...string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(strings.Join(texts, "\x00"))) // never fails
	return h.Sum32()
}

// alone tells whether no other process delivers.
func (f *Fleet) alone() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.members) <= 1
}

// seen is what all processes have seen of a Subscription with its present settings; false if this
// one does not deliver its events.
func (f *Fleet) seen(key types.NamespacedName) (all delivery.Seen, ok bool) {
	f.mu.Lock()
	floor := f.floors[key]
	f.mu.Unlock()
	all, settings, ok := f.deliveries.Seen(key, floor, f.alone())
	if !ok {
		return delivery.Seen{}, false
	}
	is := settingsHash(settings)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, of := range f.others {
		if s, known := of[key]; known && s.settings == is {
			all = all.With(s.seen)
		}
	}
	return all, true
}

func settingsHash(s delivery.Settings) uint32 {
	return hash(string(s.UID), s.Sink, s.DeadLetterSink)
}

// Health is that of the sink of a Subscription, as all processes have seen it.
func (f *Fleet) Health(key types.NamespacedName) health.Health {
	is := f.judge(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	mark(f.failing, key, fails(is))
	return is
}

func (f *Fleet) judge(key types.NamespacedName) health.Health {
	all, _ := f.seen(key)
	return all.Health.At(time.Now())
}

// mark lets a Subscription be in a set, or not.
func mark(set map[types.NamespacedName]bool, key types.NamespacedName, in bool) {
	if in {
		set[key] = true
	} else {
		delete(set, key)
	}
}

func fails(h health.Health) bool { return h.Problem != "" && h.Again == 0 }

// Recovered are Subscriptions whose sink was said not to take events, and that takes them now: what
// one process saw fail, another one has delivered, for which that was no news.
func (f *Fleet) Recovered() (all []types.NamespacedName) {
	f.mu.Lock()
	failing := slices.Collect(maps.Keys(f.failing))
	f.mu.Unlock()
	for _, key := range failing {
		if !fails(f.judge(key)) {
			all = append(all, key)
		}
	}
	return all
}

// Numbers are of the events of a Subscription that NATS has sent and that the sink has not taken.
type Numbers struct {
	// Complete is false while there may be events that no process has seen yet. Then there may be
	// more of them, and older ones.
	Complete bool
	// Oldest is when the oldest was published; zero without any.
	Oldest time.Time
	// Repeating is how many were refused at least once.
	Repeating int64
}

// Numbers are those of a Subscription of which NATS has sent so many events that were not taken,
// while all up to a sequence were.
func (f *Fleet) Numbers(key types.NamespacedName, unanswered int, floor uint64) Numbers {
	f.mu.Lock()
	f.floors[key] = floor
	f.mu.Unlock()
	all, ok := f.seen(key)
	if !ok {
		return Numbers{}
	}
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if all.Known >= int64(unanswered) {
		f.complete[key] = now
	}
	return Numbers{
		Complete: f.complete[key].After(f.lost) || now.Sub(f.lost) > delivery.CompleteAfter,
		Oldest:   all.Oldest, Repeating: min(all.Repeating, int64(max(unanswered, 0))),
	}
}

// Forget forgets a Subscription that is gone.
func (f *Fleet) Forget(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.floors, key)
	delete(f.complete, key)
	delete(f.open, key)
	delete(f.failing, key)
	for _, of := range f.others {
		delete(of, key)
	}
}

// Run tells the others what this process has seen, until the context ends.
func (f *Fleet) Run(ctx context.Context) error {
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if !f.alone() {
				f.report()
			}
		}
	}
}

// report tells of the sinks that events were posted to since the last time, and of those that have
// events here, or had some then.
func (f *Fleet) report() {
	now := time.Now()
	var all []sinkReport
	for _, key := range f.deliveries.Subscriptions() {
		f.mu.Lock()
		floor, open, sent := f.floors[key], f.open[key], f.sent
		f.mu.Unlock()
		seen, settings, ok := f.deliveries.Seen(key, floor, false)
		if !ok || !open && seen.Known == 0 && seen.Changed.Before(sent) {
			continue
		}
		f.mu.Lock()
		mark(f.open, key, seen.Known > 0)
		f.mu.Unlock()
		all = append(all, reportOf(key, seen, settingsHash(settings), now))
	}
	f.mu.Lock()
	f.sent = now
	f.mu.Unlock()
	for some := range slices.Chunk(all, reportsAMessage) {
		f.tell(aboutSinks, some)
	}
}

func (f *Fleet) tell(about string, content any) {
	if err := f.peers.Tell(about, content); err != nil {
		f.log.Error("cannot tell the other controllers", zap.String("about", about), zap.Error(err))
	}
}

// listen takes what the others say.
func (f *Fleet) listen() {
	on := func(about string, do func(from string, content []byte) error) {
		f.peers.On(about, func(from string, content []byte) {
			if err := do(from, content); err != nil {
				f.log.Warn("another controller said something that is not understood", zap.String("about", about), zap.Error(err))
			}
		})
	}
	on(aboutSinks, f.reported)
	on(aboutWaiting, f.waiting)
	on(aboutWatch, f.watch)
	on(aboutDelivery, f.delivered)
}

// reported takes what another process has seen.
func (f *Fleet) reported(from string, content []byte) error {
	var all []sinkReport
	if err := json.Unmarshal(content, &all); err != nil {
		return err
	}
	now := time.Now()
	for i := range all {
		key, is := all[i].Subscription, all[i].sighting(now)
		f.mu.Lock()
		of := f.others[from]
		if of == nil {
			of = map[types.NamespacedName]sighting{}
			f.others[from] = of
		}
		before := of[key]
		of[key] = is
		f.mu.Unlock()
		was, will := before.seen.Health.At(now), is.seen.Health.At(now)
		if was.Known != will.Known || was.Problem != will.Problem || was.Blocking.ID != will.Blocking.ID ||
			will.Letter.Sub(was.Letter) > time.Second || will.Posted.Sub(was.Posted) > time.Second {
			f.changed(key, 0)
		}
	}
	return nil
}

// waitingReport is what NATS says of a Subscription: how many events were sent and not taken, and
// up to where all were taken.
type waitingReport struct {
	Subscription types.NamespacedName `json:"subscription"`
	Unanswered   int                  `json:"unanswered"`
	Floor        uint64               `json:"floor"`
}

// Waiting is what NATS says of all Subscriptions.
type Waiting struct{ all []waitingReport }

// Add adds what NATS says of one.
func (w *Waiting) Add(key types.NamespacedName, info *jetstream.ConsumerInfo) {
	w.all = append(w.all, waitingReport{key, info.NumAckPending, info.AckFloor.Stream})
}

// TellWaiting tells the others of the Subscriptions whose events wait, and of those whose did the
// last time.
func (f *Fleet) TellWaiting(w *Waiting) {
	if f.alone() {
		return
	}
	var some []waitingReport
	f.mu.Lock()
	for _, r := range w.all {
		if r.Unanswered > 0 || f.waited[r.Subscription] {
			some = append(some, r)
		}
		mark(f.waited, r.Subscription, r.Unanswered > 0)
	}
	f.mu.Unlock()
	for part := range slices.Chunk(some, reportsAMessage) {
		f.tell(aboutWaiting, part)
	}
}

func (f *Fleet) waiting(_ string, content []byte) error {
	var all []waitingReport
	if err := json.Unmarshal(content, &all); err != nil {
		return err
	}
	for _, w := range all {
		f.mu.Lock()
		f.floors[w.Subscription] = w.Floor
		f.mu.Unlock()
		f.deliveries.Waiting(w.Subscription, w.Unanswered)
	}
	return nil
}
