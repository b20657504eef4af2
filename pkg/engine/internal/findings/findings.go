package findings

import (
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// List are what a command tells people about objects.
type List struct {
	Log *zap.Logger

	mu   sync.Mutex
	List []migration.Finding
}

func (fs *List) AddFinding(found ...migration.Finding) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.List = append(fs.List, found...)
}

// Tell reports a finding, and logs it at once: a process that is killed before its
// report is written leaves its log.
func (fs *List) Tell(f migration.Finding) {
	fs.AddFinding(f)
	fs.Log.Warn(f.Problem, zap.String("object", f.Object), zap.String("hint", f.Hint))
}

func (fs *List) AllFindings() []migration.Finding {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return slices.Clone(fs.List)
}

func (fs *List) HasError() bool {
	return slices.ContainsFunc(fs.AllFindings(), func(f migration.Finding) bool { return f.Severity == migration.Error })
}
