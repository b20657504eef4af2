package wait

import (
	"fmt"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

const (
	// FreshFor is how long after it was read what a job answers from may be acted on. What
	// reading took is added.
	FreshFor = 2 * time.Second
	// MaxCost is how long reading for one answer may take: what an answer is from is never
	// older than MaxCost and FreshFor together when a request is sent.
	MaxCost = 10 * time.Second
	// maxAsking is how long a job is asked again and again when requests come too late for
	// its answers, if it was asked at least minAsks times.
	maxAsking = 2 * k8sutil.RetryBudget
	minAsks   = 3
)

// Answer is how old an answer of a job is. Its age is that of what the job has read.
type Answer struct {
	// Read is when the first read began that it is from, Given when it was given.
	Read, Given time.Time
	// Idle is how long that read had been there for others before this job asked.
	Idle time.Duration
}

// Cost is how long reading took.
func (a Answer) Cost() time.Duration { return a.Given.Sub(a.Read) - a.Idle }

// TooDear says whether reading took so long that the answer is never acted on.
func (a Answer) TooDear() bool { return a.Cost() > MaxCost }

// Holds says whether the answer may be acted on now.
func (a Answer) Holds() bool {
	return !a.TooDear() && time.Since(a.Read) <= a.Cost()+FreshFor
}

// Asks counts the answers to one question that could not be acted on. Its zero value has none.
type Asks struct {
	first time.Time
	n     int
}

// Again says whether the job may be asked again, after an answer that was too old: an error if not.
func (k *Asks) Again(a Answer) error {
	if k.n++; k.n == 1 {
		k.first = a.Read
	}
	switch {
	case k.n < minAsks:
	case a.TooDear():
		return &OldAnswersError{fmt.Sprintf("to read what it depends on took %s, and may take %s at most", round(a.Cost()), MaxCost)}
	case time.Since(k.first) > maxAsking:
		return &OldAnswersError{fmt.Sprintf("no request could be sent within %s of an answer in %s; the last answer was %s old", FreshFor+round(a.Cost()), round(time.Since(k.first)), round(time.Since(a.Read)))}
	}
	return nil
}

// OldAnswersError says that all answers to a question were too old when a request was to be sent.
type OldAnswersError struct{ Problem string }

func (e *OldAnswersError) Error() string { return e.Problem }

func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
