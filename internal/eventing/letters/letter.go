package letters

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
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

// AnswerInvalid is the answer of a message that is no event: it was sent to no sink.
const AnswerInvalid = "invalid"

// Letter is what is known of a dead letter, without what is in it.
type Letter struct {
	// Sequence is its number in the stream of dead letters.
	Sequence uint64 `json:"sequence"`
	// Namespace and Subscription name the Subscription that gave it up, and UID is its UID.
	Namespace    string `json:"namespace"`
	Subscription string `json:"subscription"`
	UID          string `json:"uid,omitempty"`
	// Sink is the URL that did not take it.
	Sink string `json:"sink,omitempty"`
	// ID, Source and Type are the event's; empty of a message that is no event.
	ID     string `json:"id,omitempty"`
	Source string `json:"source,omitempty"`
	Type   string `json:"type,omitempty"`
	// Answer is the status of the last answer, "error" without one, or AnswerInvalid. Problem is
	// the same in words.
	Answer  string `json:"answer"`
	Problem string `json:"problem,omitempty"`
	// Tries is how often it was sent to the sink.
	Tries uint64 `json:"tries"`
	// Published is when it was stored as an event, First when the sink first refused it, as far as
	// the process knew that gave it up, and Last when it was sent last. Stored is when it became a
	// dead letter.
	Published time.Time `json:"published,omitzero"`
	First     time.Time `json:"first,omitzero"`
	Last      time.Time `json:"last,omitzero"`
	Stored    time.Time `json:"stored,omitzero"`
	// Bytes is the size of its data.
	Bytes int `json:"bytes"`
}

// Key is the Subscription.
func (l *Letter) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: l.Namespace, Name: l.Subscription}
}

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
func message(l *Letter, of *nats.Msg) *nats.Msg {
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

// read is the opposite of message.
func read(subject string, header nats.Header, sequence uint64, stored time.Time, bytes int) (Letter, error) {
	l := Letter{Sequence: sequence, Stored: stored, Bytes: bytes}
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
	if len(text) <= longestText {
		return text
	}
	end := longestText
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// Delivery is one try to deliver an event.
type Delivery struct {
	Namespace    string `json:"namespace"`
	Subscription string `json:"subscription"`
	Sink         string `json:"sink"`
	Type         string `json:"type"`
	// Stored is when NATS had stored the event, Received when this process got it from there,
	// Posted when it was sent to the sink, and Answered when the sink had answered, or had not.
	Stored   time.Time `json:"stored"`
	Received time.Time `json:"received"`
	Posted   time.Time `json:"posted"`
	Answered time.Time `json:"answered"`
	// Try counts from 1.
	Try uint64 `json:"try"`
	// Answer is the status, or "error" without one. Problem is "" if the sink took the event.
	Answer  string `json:"answer"`
	Problem string `json:"problem,omitempty"`
}
