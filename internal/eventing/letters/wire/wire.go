// Package wire defines the API between the controller and kubectl eventing for dead letters and
// deliveries. It has no client, so that kubectl eventing links no package of NATS.
package wire

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
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
	// Sink is the URL that did not take it, without the values of its query.
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

// Filter chooses dead letters. The zero value chooses all.
type Filter struct {
	Namespace    string    `json:"namespace,omitempty"`
	Subscription string    `json:"subscription,omitempty"`
	Type         string    `json:"type,omitempty"`
	Answer       string    `json:"answer,omitempty"`
	After        time.Time `json:"after,omitzero"`
	Before       time.Time `json:"before,omitzero"`
	// Sequences, if there are any, are those to choose from.
	Sequences []uint64 `json:"sequences,omitempty"`
}

// Passes tells whether a dead letter is chosen. Times are those at which it was stored.
func (f *Filter) Passes(l *Letter) bool {
	return (f.Namespace == "" || f.Namespace == l.Namespace) && (f.Subscription == "" || f.Subscription == l.Subscription) &&
		(f.Type == "" || f.Type == l.Type) && (f.Answer == "" || f.Answer == l.Answer) &&
		(f.After.IsZero() || !l.Stored.Before(f.After)) && (f.Before.IsZero() || l.Stored.Before(f.Before))
}

// Shown is a dead letter with the attributes of its event and, if it was asked for, its data.
type Shown struct {
	Letter
	// Headers are those of the event.
	Headers map[string]string `json:"headers"`
	Data    []byte            `json:"data,omitempty"`
}

// What came of one dead letter.
const (
	ResultDelivered = "delivered" // the sink took it, and it is no dead letter any more
	ResultRefused   = "refused"   // the sink did not take it
	ResultDeleted   = "deleted"
	ResultGone      = "gone"   // somebody else delivered or deleted it
	ResultFailed    = "failed" // it was not sent, or it cannot be deleted
)

// Done is what came of one dead letter.
type Done struct {
	Sequence     uint64 `json:"sequence"`
	Namespace    string `json:"namespace"`
	Subscription string `json:"subscription"`
	ID           string `json:"id,omitempty"`
	Result       string `json:"result"`
	Answer       string `json:"answer,omitempty"`
	Problem      string `json:"problem,omitempty"`
}

// Left tells whether it is still a dead letter.
func (d *Done) Left() bool { return d.Result == ResultRefused || d.Result == ResultFailed }

// Summary is the last line. Without it, the work was interrupted, and what is left stays.
type Summary struct {
	Done      bool `json:"done"`
	Total     int  `json:"total"`
	Delivered int  `json:"delivered"`
	Refused   int  `json:"refused"`
	Gone      int  `json:"gone"`
	Deleted   int  `json:"deleted"`
	Failed    int  `json:"failed"`
	// Left is how many of those that were chosen are still dead letters.
	Left int `json:"left"`
}

// Add counts one more.
func (s *Summary) Add(d Done) {
	s.Total++
	switch d.Result {
	case ResultDelivered:
		s.Delivered++
	case ResultRefused:
		s.Refused++
		s.Left++
	case ResultGone:
		s.Gone++
	case ResultDeleted:
		s.Deleted++
	default:
		s.Failed++
		s.Left++
	}
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
