package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Purge deletes from the stream what no consumer has to get. NATS does that itself when a consumer
// is deleted or gets other filters, but exactly only if that spans fewer than 100,000 sequences,
// and on one server it does not look again: docs/decisions/1021-delivery-and-consumers.md. What
// several servers store is deleted by Purge alone, also when all have taken it: Config says why.
type Purge struct {
	// Removed are filters that a consumer had and has no more.
	Removed []string
	// All: look at each subject that holds events, also at those that a consumer still has and that
	// no filter of Removed has.
	All bool
	// Allowed is asked before each purge; an error ends it. nil allows all.
	Allowed func() error
	// Before is how several servers were seen the last time. Do changes it. nil is for one server.
	Before *Look
}

var errIncomplete = errors.New("NATS does not know the state of each consumer now")

// ErrUnstable says that several servers have not said the same for StableFor. Purge again later.
var ErrUnstable = errors.New("the servers of NATS have just changed")

// StableFor is for how long several servers have to say the same before something is purged. What
// was purged while servers were replaced by what one of them said, somebody had been waiting for.
const StableFor = 10 * time.Second

// mostPurged is how many subjects are purged at once of an open stream that keeps what was taken:
// each one is a request that all servers store. Those with the most events come first.
const mostPurged = 100

// Look is what several servers say at a time.
type Look struct {
	// Tight: the stream, or a subject, has filled a part of its limit, or the stream is closed and
	// is to become empty. What all have taken should go soon.
	Tight bool

	// since is when the same server has begun to lead, as far as looks can tell.
	since time.Time
	// created is when the stream was: the sequences of another one say nothing.
	created time.Time
	last    uint64
	// leader is the server that leads, and those that are away.
	leader    string
	consumers map[string]seen
}

// seen is a consumer, since when the same server leads it, and when it was not named any more.
type seen struct {
	*jetstream.ConsumerInfo
	since, gone time.Time
}

// next makes a look the present one, and returns the one before if both can be compared: the same
// server leads for StableFor, and the stream is the same. Otherwise it returns nil.
func (l *Look) next(info *jetstream.StreamInfo, consumers []*jetstream.ConsumerInfo, now time.Time) *Look {
	former := *l
	is := Look{since: now, created: info.Created, last: info.State.LastSeq, leader: leaderOf(info.Cluster), consumers: map[string]seen{}}
	for _, c := range consumers {
		since := now
		if was, ok := former.consumers[c.Name]; ok && was.gone.IsZero() && was.Created.Equal(c.Created) && leaderOf(was.Cluster) == leaderOf(c.Cluster) {
			since = was.since
		}
		is.consumers[c.Name] = seen{ConsumerInfo: c, since: since}
	}
	for name, was := range former.consumers {
		if _, ok := is.consumers[name]; ok {
			continue
		}
		if was.gone.IsZero() {
			was.gone = now
		}
		if now.Sub(was.gone) < StableFor {
			is.consumers[name] = was
		}
	}
	if is.leader == "" {
		*l = Look{}
		return nil
	}
	same := former.leader == is.leader && former.created.Equal(is.created)
	if same {
		is.since = former.since
	}
	*l = is
	if !same || now.Sub(is.since) < StableFor {
		return nil
	}
	return &former
}

// of are the consumers of a subject as they were and as they are, by which nothing is purged that
// one of the two has not taken. ok is false if they have been others, or led by others, until now.
func (l *Look) of(former *Look, bySubject *index, subject string, now time.Time) (both []*jetstream.ConsumerInfo, ok bool) {
	for _, c := range bySubject.of(subject) {
		is := l.consumers[c.Name]
		if !is.gone.IsZero() || leaderOf(is.Cluster) == "" || now.Sub(is.since) < StableFor {
			return nil, false
		}
		both = append(both, c, former.consumers[c.Name].ConsumerInfo)
	}
	return both, true
}

// index has the consumers by their filters, also those that are not named any more.
func (l *Look) index() *index {
	var all []*jetstream.ConsumerInfo
	for _, is := range l.consumers {
		all = append(all, is.ConsumerInfo)
	}
	return indexOf(all)
}

// leaderOf is the server that leads, and which ones are away; "" while another one has not caught
// up. One that is away may be so for long, and the rest is most of them.
func leaderOf(c *jetstream.ClusterInfo) string {
	if c == nil || c.Leader == "" {
		return ""
	}
	is := c.Leader
	for _, r := range slices.SortedFunc(slices.Values(c.Replicas), func(a, b *jetstream.PeerInfo) int { return strings.Compare(a.Name, b.Name) }) {
		switch {
		case r.Offline:
			is += " without " + r.Name
		case !r.Current:
			return ""
		}
	}
	return is
}

// Do purges, and returns the subjects. open are the filters of Removed of which something may be
// left: another consumer has the same subject, and has not taken yet what came before.
//
// What is deleted was stored before the consumers were listed. A consumer that is created meanwhile
// gets only what is stored later, and one that is listed has taken everything up to its floor, so
// that nothing goes that somebody waits for. purged are subjects, those with the most events first.
func (p Purge) Do(ctx context.Context, s jetstream.Stream) (purged, open []string, err error) {
	before, err := s.Info(ctx)
	if err != nil || before.State.Msgs == 0 {
		return nil, nil, err
	}
	last := before.State.LastSeq
	consumers, err := consumersOf(ctx, s)
	if err != nil {
		return nil, p.Removed, err
	}
	now, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return nil, p.Removed, err
	}
	if !now.Created.Equal(before.Created) {
		return nil, nil, nil // sequences of another stream
	}
	bySubject, unstable := indexOf(consumers), false
	taking := func(subject string) ([]*jetstream.ConsumerInfo, bool) { return bySubject.of(subject), true }
	if before.Cluster != nil && len(before.Cluster.Replicas) > 0 {
		if p.Before == nil {
			return nil, p.Removed, ErrUnstable
		}
		at := time.Now()
		former := p.Before.next(before, consumers, at)
		p.Before.Tight = tight(now) || !Open(now.Config)
		if former == nil {
			return nil, p.Removed, ErrUnstable
		}
		last, bySubject = former.last, p.Before.index()
		taking = func(subject string) ([]*jetstream.ConsumerInfo, bool) {
			both, ok := p.Before.of(former, bySubject, subject, at)
			unstable = unstable || !ok
			return both, ok
		}
	}
	due, open := p.due(now, last, taking, before.State.Msgs > waiting(consumers)) // each event that somebody waits for is counted at least once
	for _, d := range due {
		if err := p.upTo(ctx, s, d); err != nil {
			return purged, p.Removed, err
		}
		if d.subject != "" {
			purged = append(purged, d.subject)
		}
	}
	if unstable {
		return purged, p.Removed, ErrUnstable
	}
	return purged, open, nil
}

// due is what is to be purged, and the filters of Removed of which something may be left. taking
// are the consumers of a subject, if they are known; left: the stream has more than somebody waits
// for.
func (p Purge) due(now *jetstream.StreamInfo, last uint64, taking func(subject string) ([]*jetstream.ConsumerInfo, bool), left bool) (due []subjectUpTo, open []string) {
	keepsTaken, lowest := KeepsTaken(now.Config), last
	for subject, count := range now.State.Subjects {
		consumers, ok := taking(subject)
		if !ok {
			lowest = 0
			continue
		}
		removed := slices.IndexFunc(p.Removed, func(filter string) bool { return matches(filter, subject) })
		upTo, shared, behind := unwanted(subject, last, consumers)
		lowest = min(lowest, upTo)
		if behind && removed >= 0 && !slices.Contains(open, p.Removed[removed]) {
			open = append(open, p.Removed[removed])
		}
		if upTo > 0 && (!shared || removed >= 0 || left || p.All || keepsTaken) {
			due = append(due, subjectUpTo{subject, upTo, count})
		}
	}
	slices.Sort(open)
	slices.SortFunc(due, func(a, b subjectUpTo) int {
		return cmp.Or(cmp.Compare(b.count, a.count), strings.Compare(a.subject, b.subject))
	})
	if keepsTaken && lowest > 0 { // what all have taken goes in one request
		due = slices.DeleteFunc(due, func(d subjectUpTo) bool { return d.upTo == lowest })
		due = slices.Insert(due, 0, subjectUpTo{upTo: lowest})
	}
	if keepsTaken && Open(now.Config) && !p.All && len(p.Removed) == 0 {
		due = due[:min(mostPurged, len(due))]
	}
	return due, open
}

// upTo purges, if that is allowed.
func (p Purge) upTo(ctx context.Context, s jetstream.Stream, d subjectUpTo) error {
	options := []jetstream.StreamPurgeOpt{jetstream.WithPurgeSequence(d.upTo + 1)}
	if d.subject != "" {
		options = append(options, jetstream.WithPurgeSubject(d.subject))
	}
	var err error
	if p.Allowed != nil {
		err = p.Allowed()
	}
	if err == nil {
		err = s.Purge(ctx, options...)
	}
	if err != nil {
		return fmt.Errorf("cannot purge subject %s up to sequence %d: %w", cmp.Or(d.subject, ">"), d.upTo, err)
	}
	return nil
}

// tight tells whether a quarter of what the stream, or a subject, may hold is taken.
func tight(of *jetstream.StreamInfo) bool {
	const part = 4
	if of.Config.MaxBytes > 0 && of.State.Bytes > uint64(of.Config.MaxBytes)/part {
		return true
	}
	for _, n := range of.State.Subjects {
		if of.Config.MaxMsgsPerSubject > 0 && n > uint64(of.Config.MaxMsgsPerSubject)/part {
			return true
		}
	}
	return false
}

// subjectUpTo is a subject, up to which sequence nobody has to get it, and how many events it has.
// "" is all subjects.
type subjectUpTo struct {
	subject     string
	upTo, count uint64
}

// unwanted is up to which sequence no consumer has to get messages of a subject any more; 0 if that
// is unknown. shared: a consumer has the subject. behind: one has not taken everything up to the
// last sequence. What a consumer says of its number of pending messages is not used: its leader may
// not know yet what the leader of the stream has stored.
func unwanted(subject string, last uint64, consumers []*jetstream.ConsumerInfo) (upTo uint64, shared, behind bool) {
	upTo = last
	for _, c := range consumers {
		if !Consumes(c.Config, subject) {
			continue
		}
		shared = true
		upTo = min(upTo, c.AckFloor.Stream)
		behind = behind || c.AckFloor.Stream < last && c.NumPending+uint64(max(c.NumAckPending, 0)) > 0
	}
	return upTo, shared, behind
}

// consumersOf are all consumers of a stream. A list of several servers leaves out those of which
// none answers in time.
func consumersOf(ctx context.Context, s jetstream.Stream) (all []*jetstream.ConsumerInfo, err error) {
	names := map[string]bool{}
	list := s.ConsumerNames(ctx)
	for name := range list.Name() {
		names[name] = true
	}
	if err := list.Err(); err != nil {
		return nil, err
	}
	infos := s.ListConsumers(ctx)
	for info := range infos.Info() {
		delete(names, info.Name)
		all = append(all, info)
	}
	if err := infos.Err(); err != nil {
		return nil, err
	}
	if len(names) > 0 {
		return nil, errIncomplete
	}
	return all, nil
}

func waiting(consumers []*jetstream.ConsumerInfo) (n uint64) {
	for _, c := range consumers {
		n += c.NumPending + uint64(max(c.NumAckPending, 0))
	}
	return n
}

// Filters are those of a consumer; none is all subjects.
func Filters(c jetstream.ConsumerConfig) []string {
	if c.FilterSubject != "" {
		return append(slices.Clone(c.FilterSubjects), c.FilterSubject)
	}
	return c.FilterSubjects
}

// Removed are the filters that a consumer loses.
func Removed(is, want jetstream.ConsumerConfig) []string {
	return slices.DeleteFunc(slices.Clone(Filters(is)), func(filter string) bool { return slices.Contains(Filters(want), filter) })
}

// Consumes tells whether a consumer gets the events of a subject.
func Consumes(c jetstream.ConsumerConfig, subject string) bool {
	filters := Filters(c)
	return len(filters) == 0 || slices.ContainsFunc(filters, func(filter string) bool { return matches(filter, subject) })
}

// matches tells whether a subject is one of a filter: * stands for one token, > at the end for one
// or more.
func matches(filter, subject string) bool {
	tokens := strings.Split(subject, ".")
	parts := strings.Split(filter, ".")
	for i, part := range parts {
		switch {
		case part == ">" && i == len(parts)-1:
			return len(tokens) > i
		case i >= len(tokens) || part != "*" && part != tokens[i]:
			return false
		}
	}
	return len(parts) == len(tokens)
}
