// Package findings collects what a command tells people about objects.
package findings

import (
	"cmp"
	"slices"
	"sync"

	"go.uber.org/zap"

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
