package letters

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters/wire"
)

// The headers of a dead letter, in addition to those of its event.
const (
	headerPrefix    = "Dead-Letter-"
	headerUID       = headerPrefix + "Subscription-Uid"
	headerSink      = headerPrefix + "Sink"
	headerAnswer    = headerPrefix + "Answer"
	headerProblem   = headerPrefix + "Problem"
	headerTries     = headerPrefix + "Tries"
	headerPublished = headerPrefix + "Published"
	headerFirst     = headerPrefix + "First-Try"
	headerLast      = headerPrefix + "Last-Try"

	// natsPrefix begins the headers that NATS reads or adds.
	natsPrefix = "Nats-"
	// longestText bounds what is kept of a text for people.
	longestText = 300
)

// Headers are those of the event of a dead letter, by name in small letters.
func Headers(m *nats.Msg) map[string]string {
	all := map[string]string{}
	for name, values := range m.Header {
		if len(values) > 0 && !hasPrefix(name, natsPrefix) && !hasPrefix(name, headerPrefix) {
			all[strings.ToLower(name)] = values[0]
		}
	}
	return all
}

// ErrNotDelivered is of a Subscription whose events are not delivered by this process: it does not
// exist, has errors, or NATS does not serve.
var ErrNotDelivered = errors.New("no events of the Subscription are delivered now")

// Outcome is what came of a dead letter that was sent to its sink again.
type Outcome struct {
	// Answer is the status, or "error" without one. Problem is "" if the sink took the event.
	Answer, Problem string
}

// message is a dead letter as it is stored. of is the message as it came from the stream.
func message(l *wire.Letter, of *nats.Msg) *nats.Msg {
	m := nats.NewMsg(backend.DeadLetterSubject(l.Namespace, l.Subscription))
	m.Data = of.Data
	for name, values := range of.Header {
		if !hasPrefix(name, natsPrefix) && !hasPrefix(name, headerPrefix) {
			m.Header[name] = values
		}
	}
	set := func(name, value string) {
		if value != "" {
			m.Header[name] = []string{value}
		}
	}
	set(headerUID, l.UID)
	set(headerSink, l.Sink)
	set(headerAnswer, l.Answer)
	set(headerProblem, short(l.Problem))
	set(headerTries, strconv.FormatUint(l.Tries, 10))
	set(headerPublished, written(l.Published))
	set(headerFirst, written(l.First))
	set(headerLast, written(l.Last))
	return m
}

var errNoLetter = errors.New("the message is no dead letter of ours")

// parse is the opposite of message.
func parse(subject string, header nats.Header, sequence uint64, stored time.Time, bytes int) (wire.Letter, error) {
	l := wire.Letter{Sequence: sequence, Stored: stored, Bytes: bytes}
	var ok bool
	if l.Namespace, l.Subscription, ok = backend.ParseDeadLetterSubject(subject); !ok {
		return l, fmt.Errorf("subject %q: %w", subject, errNoLetter)
	}
	attribute := func(name string) string { return find(header, name) }
	l.ID, l.Source, l.Type = attribute("ce-id"), attribute("ce-source"), attribute("ce-type")
	l.UID, l.Sink, l.Answer, l.Problem = header.Get(headerUID), header.Get(headerSink), header.Get(headerAnswer), header.Get(headerProblem)
	l.Tries, _ = strconv.ParseUint(header.Get(headerTries), 10, 64) // somebody else may have stored it
	l.Published, l.First, l.Last = instant(header.Get(headerPublished)), instant(header.Get(headerFirst)), instant(header.Get(headerLast))
	return l, nil
}

// find reads a header whatever its capitals are: clients of NATS send them as they are.
func find(header nats.Header, name string) string {
	for key, values := range header {
		if strings.EqualFold(key, name) && len(values) > 0 {
			return values[0]
		}
	}
	return ""
}

func hasPrefix(name, prefix string) bool {
	return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
}

func written(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func instant(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// short is a text that fits into one line of a header.
func short(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.ToValidUTF8(text[:min(len(text), longestText)], "")
}
