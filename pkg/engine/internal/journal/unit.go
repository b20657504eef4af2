package journal

import (
	"slices"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Build makes all objects of the unit.
func Build(u *migration.Unit) {
	for i := range u.Changes {
		u.Changes[i].Object = u.Changes[i].Built()
	}
}

// Recreates says whether the unit recreates any object: such a unit looks at all of its
// objects again when it is resumed.
func Recreates(u *migration.Unit) bool {
	return slices.ContainsFunc(u.Changes, func(ch migration.Change) bool { return ch.Verb == migration.Recreate })
}

// FirstWrite is the index of the first change that writes, -1 if none does.
func FirstWrite(changes []migration.Change) int {
	for i := range changes {
		if changes[i].Writes() {
			return i
		}
	}
	return -1
}
