package journal

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// acceptedObjects is how many of the objects that are left a journal names: its Secret has room
// for these.
const acceptedObjects = 40

// accepted is what the journal says of an undo that was closed with objects left.
type accepted struct {
	Count   int      `json:"count"`
	Objects []string `json:"objects"`
}

// Accept notes in a journal which changes were not restored when a person closed it nevertheless.
func Accept(ctx context.Context, s *Store, j *Journal) error {
	var left accepted
	for _, e := range j.Entries() {
		for _, s := range e.Steps() {
			if r := s.Result(); r != migration.ChangeNotRestored && r != migration.ChangeProtected {
				continue
			}
			if left.Count++; left.Count <= acceptedObjects {
				left.Objects = append(left.Objects, s.Ref.String())
			}
		}
	}
	raw, err := json.Marshal(left)
	if err != nil {
		return fmt.Errorf("cannot encode the journal: %w", err)
	}
	return s.patch(ctx, j.All()[0].Name, "", map[string][]byte{"accepted": raw})
}
