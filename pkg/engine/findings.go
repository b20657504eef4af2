package engine

import (
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// findings are what a command tells people about objects.
type findings struct {
	log *zap.Logger

	mu   sync.Mutex
	list []migration.Finding
}

func (fs *findings) addFinding(found ...migration.Finding) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.list = append(fs.list, found...)
}

// tell reports a finding, and logs it at once: a process that is killed before its
// report is written leaves its log.
func (fs *findings) tell(f migration.Finding) {
	fs.addFinding(f)
	fs.log.Warn(f.Problem, zap.String("object", f.Object), zap.String("hint", f.Hint))
}

func (fs *findings) allFindings() []migration.Finding {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return slices.Clone(fs.list)
}

func (fs *findings) hasError() bool {
	return slices.ContainsFunc(fs.allFindings(), func(f migration.Finding) bool { return f.Severity == migration.Error })
}
