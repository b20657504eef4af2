// Package findings collects what a command tells people about objects.
package findings

import (
	"cmp"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/internal/redact"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// List are the findings of one command. It may be used by several goroutines.
type List struct {
	log *zap.Logger

	mu   sync.Mutex
	list []migration.Finding
}

// New returns a list without findings. What Tell is given goes to the log, too.
func New(log *zap.Logger) *List { return &List{log: log} }

// Add appends findings, with their hints.
func (l *List) Add(found ...migration.Finding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, WithHints(found)...)
}

// WithHints returns the findings, each with a hint for readers that know no other form of it.
func WithHints(found []migration.Finding) []migration.Finding {
	found = slices.Clone(found)
	for i := range found {
		found[i].Hint = cmp.Or(found[i].Advice().String(), found[i].Hint)
	}
	return found
}

// Tell adds a finding, and logs it at once: a process that is killed before its
// report is written leaves its log.
func (l *List) Tell(f migration.Finding) {
	l.Add(f)
	l.log.Warn(f.Problem, zap.String("object", f.Object), zap.String("hint", f.Advice().String()))
}

// All returns a copy of the findings so far.
func (l *List) All() []migration.Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// HasError says whether one of them has the severity error.
func (l *List) HasError() bool {
	return slices.ContainsFunc(l.All(), func(f migration.Finding) bool { return f.Severity == migration.Error })
}

// FirstError is what the first finding that is an error says, "" if none is.
func FirstError(findings []migration.Finding) string {
	for _, f := range findings {
		if f.Severity == migration.Error {
			if f.Object == "" {
				return f.Problem
			}
			return f.Object + ": " + f.Problem
		}
	}
	return ""
}

// Redact leaves out of the texts of a report what others must not read: they quote
// addresses, and what the API server and controllers said.
func Redact(r *migration.Report) {
	r.Message = redact.URLs(r.Message)
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Problem, f.Command, f.Note, f.Hint = redact.URLs(f.Problem), redact.URLs(f.Command), redact.URLs(f.Note), redact.URLs(f.Hint)
	}
	for i := range r.Changes {
		r.Changes[i].Message = redact.URLs(r.Changes[i].Message)
	}
}
