// Package peers lets the controllers discover each other over NATS. It also confirms that each of
// them has received the information that a Subscription needs before it is reported as ready.
//
// Each process sends a heartbeat every second, to all processes including itself. A process that
// has not received its own heartbeat for LiveFor does not know whether the others receive it: it
// posts nothing until it has read everything again. The others continue without it only after
// GoneAfter, which is longer. A process that was paused and resumes therefore does nothing that the
// others consider finished. There is no leader: any process can fail.
package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"go.uber.org/zap"
)

const (
	// Subjects are those that the controllers use among themselves: the user of NATS needs to
	// publish and to subscribe to them.
	Subjects = prefix + ">"

	// LiveFor is how long a process posts after it last heard itself, and GoneAfter how long the
	// others wait for one that they do not hear. Between the two lies what clocks and waits differ.
	LiveFor   = 6 * time.Second
	GoneAfter = 8 * time.Second

	prefix     = "controllers."
	helloEvery = time.Second
	// listens is how long one that begins listens, so that the others make room for it first: they
	// answer its first hello.
	listens = 500 * time.Millisecond
	// muteAfter is after which time a connection that carries no hello never will: a server of an
	// earlier version does not allow it.
	muteAfter = 5 * time.Second
	// answers is how long the others have for an answer, until they are asked again.
	answers = time.Second

	helloSubject, answerSubject = prefix + "hello", prefix + "answer"
	aboutSubject                = prefix + "about."
)

// ErrAlone says that the others cannot be asked now: this process is not heard, or has not listened
// for long enough to know them all.
var ErrAlone = errors.New("the other controllers are not known yet")

// Options are of one process.
type Options struct {
	// Pod is its name. Two processes may have the same.
	Pod string
	Log *zap.Logger
	// Changed is called when other members are there.
	Changed func()
	// Lapsed is called when this process was not heard for LiveFor, or is heard for the first time:
	// what it knows may be old. Live is false until it has returned.
	Lapsed func()
}

// Peers are the controllers, as this one knows them. Its methods can be called at the same time.
type Peers struct {
	options Options
	run     string // of this process, unique

	mu            sync.Mutex
	conn          *nats.Conn
	subscriptions []*nats.Subscription
	began         time.Time // when this connection was taken
	// sent are hellos that have not come back. echoed is when the last of those was sent that have,
	// and steady since when that was so without a gap; zero if it is not.
	sent           map[uint64]time.Time
	next           uint64
	echoed, steady time.Time
	// stale says that Lapsed has to be called, or is.
	stale    bool
	members  map[string]member
	about    map[string]func(from string, content []byte)
	question map[string]chan string
}

// member is another process.
type member struct {
	pod   string
	heard time.Time
}

// message is what is sent. Each kind has some of the fields.
type message struct {
	Run string `json:"run"`
	Pod string `json:"pod,omitempty"`
	// Number is that of a hello; Leaving says that it is the last one.
	Number  uint64 `json:"number,omitempty"`
	Leaving bool   `json:"leaving,omitempty"`
	// Question is set if an answer is wanted, and in it.
	Question string          `json:"question,omitempty"`
	Content  json.RawMessage `json:"content,omitempty"`
}

// New returns Peers that know nobody. Use and Run let them.
func New(o Options) *Peers {
	return &Peers{
		options: o, run: uuid.NewString(), stale: true, sent: map[uint64]time.Time{}, members: map[string]member{},
		about: map[string]func(string, []byte){}, question: map[string]chan string{},
	}
}

// On lets a function be called for what others tell or ask about something: an answer is sent when
// it has returned. It must not wait for Peers. from is the run of the other process. It is called
// before Use.
func (p *Peers) On(about string, do func(from string, content []byte)) { p.about[about] = do }

// Use takes another connection; the one before is forgotten.
func (p *Peers) Use(conn *nats.Conn) error {
	isNew, err := p.use(conn)
	if isNew && err == nil {
		p.sayHello(time.Now())
	}
	return err
}

func (p *Peers) use(conn *nats.Conn) (isNew bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == conn {
		return false, nil
	}
	for _, s := range p.subscriptions {
		_ = s.Unsubscribe() // fails only if the connection is closed
	}
	p.conn, p.subscriptions, p.began = conn, nil, time.Now()
	if conn == nil {
		return false, nil
	}
	for subject, receive := range map[string]func(m *message, subject string){helloSubject: p.hello, answerSubject: p.answered, aboutSubject + ">": p.told} {
		s, err := conn.Subscribe(subject, func(m *nats.Msg) {
			var is message
			if err := json.Unmarshal(m.Data, &is); err != nil {
				p.options.Log.Warn("another controller said something that is not understood", zap.String("subject", m.Subject), zap.Error(err))
				return
			}
			receive(&is, m.Subject)
		})
		if err != nil {
			p.conn = nil
			return false, fmt.Errorf("cannot listen to the other controllers: %w", err)
		}
		p.subscriptions = append(p.subscriptions, s)
	}
	return true, nil
}

// Run says hello until the context ends, and then that this process leaves.
func (p *Peers) Run(ctx context.Context) error {
	ticker := time.NewTicker(helloEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			p.send(helloSubject, &message{Pod: p.options.Pod, Leaving: true})
			return nil
		case now := <-ticker.C:
			p.sayHello(now)
			p.look(now)
		}
	}
}

func (p *Peers) sayHello(now time.Time) {
	p.mu.Lock()
	p.next++
	number := p.next
	p.sent[number] = now
	for n, at := range p.sent {
		if age(at, now) > GoneAfter {
			delete(p.sent, n)
		}
	}
	p.mu.Unlock()
	p.send(helloSubject, &message{Pod: p.options.Pod, Number: number})
}

// send publishes a message. What is lost is said again, or asked again.
func (p *Peers) send(subject string, m *message) {
	p.mu.Lock()
	conn := p.conn
	p.mu.Unlock()
	if conn == nil || !conn.IsConnected() { // what was kept until it is would be old then
		return
	}
	m.Run = p.run
	raw, err := json.Marshal(m)
	if err == nil {
		err = conn.Publish(subject, raw)
	}
	if err != nil {
		p.options.Log.Debug("cannot tell the other controllers", zap.String("subject", subject), zap.Error(err))
	}
}

// look notices that this process is not heard, and that others are not.
func (p *Peers) look(now time.Time) {
	p.mu.Lock()
	if !p.steady.IsZero() && age(p.echoed, now) > LiveFor {
		p.steady, p.stale = time.Time{}, true
	}
	changed := false
	for run, m := range p.members {
		if age(m.heard, now) > GoneAfter {
			delete(p.members, run)
			changed = true
			p.options.Log.Info("a controller is not heard any more", zap.String("pod", m.pod))
		}
	}
	p.mu.Unlock()
	if changed {
		p.options.Changed()
	}
}

// hello is called for each hello, also for those of this process.
func (p *Peers) hello(m *message, _ string) {
	now := time.Now()
	if m.Run == p.run {
		p.heardSelf(m.Number, now)
		return
	}
	p.mu.Lock()
	_, known := p.members[m.Run]
	if m.Leaving {
		delete(p.members, m.Run)
	} else {
		p.members[m.Run] = member{m.Pod, now}
	}
	p.mu.Unlock()
	if !known && !m.Leaving {
		p.sayHello(now) // it need not wait for the next one
	}
	if known == m.Leaving {
		p.options.Changed()
	}
}

func (p *Peers) heardSelf(number uint64, now time.Time) {
	p.mu.Lock()
	sent, ok := p.sent[number]
	delete(p.sent, number)
	if !ok || age(sent, now) > LiveFor {
		p.mu.Unlock()
		return
	}
	// The process may have been stopped, and this may be the first thing that it does since.
	if p.steady.IsZero() || age(p.echoed, now) > LiveFor {
		p.steady, p.stale = now, true
	}
	p.echoed = sent
	stale := p.stale
	p.mu.Unlock()
	if !stale {
		return
	}
	p.options.Lapsed()
	p.mu.Lock()
	p.stale = false
	p.mu.Unlock()
}

// age is how long ago something was, by the clock that counts less when it is set: that of a
// machine that was suspended, or the other one.
func age(at, now time.Time) time.Duration {
	return max(now.Sub(at), now.Round(0).Sub(at.Round(0)).Abs())
}

// Live tells whether this process is heard, and so may post: not before the others have had the
// time to make room for it.
func (p *Peers) Live() bool {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.stale && !p.steady.IsZero() && now.Sub(p.steady) >= listens && age(p.echoed, now) <= LiveFor
}

// Mute tells whether this connection carries no hello: its server is of an earlier version, and all
// controllers of this one wait for it.
func (p *Peers) Mute() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.steady.IsZero() && p.echoed.Before(p.began) && p.conn != nil && p.conn.IsConnected() && time.Since(p.began) >= muteAfter
}

// Self is the run of this process, and Members are all runs that there are, with this one, sorted.
func (p *Peers) Self() string { return p.run }

// Members are the runs of all processes that are heard, with this one, sorted.
func (p *Peers) Members() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := []string{p.run}
	for run := range p.members {
		all = append(all, run)
	}
	slices.Sort(all)
	return all
}

// Tell tells all others about something. Nobody says whether they have heard it.
func (p *Peers) Tell(about string, content any) error {
	raw, err := json.Marshal(content)
	if err == nil {
		p.send(aboutSubject+about, &message{Content: raw})
	}
	return err
}

// Ask tells all others about something, and returns the pods of those that have not answered within
// a second. The error is ErrAlone if there may be others that are not known.
func (p *Peers) Ask(ctx context.Context, about string, content any) (missing []string, err error) {
	raw, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	id := uuid.NewString()
	p.mu.Lock()
	if p.stale || p.steady.IsZero() || time.Since(p.steady) < GoneAfter {
		err = ErrAlone
	}
	waiting := map[string]string{}
	for run, m := range p.members {
		waiting[run] = m.pod
	}
	heard := make(chan string, 2*len(waiting)+1)
	p.question[id] = heard
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.question, id)
		p.mu.Unlock()
	}()
	if len(waiting) == 0 {
		return nil, err
	}
	p.send(aboutSubject+about, &message{Question: id, Content: raw})
	limit := time.NewTimer(answers)
	defer limit.Stop()
	for len(waiting) > 0 {
		select {
		case run := <-heard:
			delete(waiting, run)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-limit.C:
			for _, pod := range waiting {
				missing = append(missing, pod)
			}
			slices.Sort(missing)
			return missing, err
		}
	}
	return nil, err
}

func (p *Peers) told(m *message, subject string) {
	if m.Run == p.run {
		return
	}
	if do := p.about[subject[len(aboutSubject):]]; do != nil {
		do(m.Run, m.Content)
	}
	if m.Question != "" {
		p.send(answerSubject, &message{Question: m.Question})
	}
}

func (p *Peers) answered(m *message, _ string) {
	p.mu.Lock()
	heard := p.question[m.Question]
	p.mu.Unlock()
	if heard == nil {
		return // not of this process, or too late
	}
	select {
	case heard <- m.Run:
	default:
	}
}
