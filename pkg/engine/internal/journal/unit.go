package journal

import (
	"slices"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Deletes returns the change, i or a later one, that deletes the object of change i,
// -1 if none does.
func Deletes(u *migration.Unit, i int) int {
	for j := i; j < len(u.Changes); j++ {
		if u.Changes[j].Verb == migration.Delete && u.Changes[j].Ref == u.Changes[i].Ref {
			return j
		}
	}
	return -1
}

// Build makes all objects of the unit.
func Build(u *migration.Unit) {
	for i := range u.Changes {
		u.Changes[i].Object = u.Changes[i].Built()
	}
}

// GuardEnd returns the index behind the changes that belong to the guarded change i.
func GuardEnd(u *migration.Unit, i int) int {
	for i++; i < len(u.Changes); i++ {
		if u.Changes[i].Guard {
			return i
		}
	}
	return len(u.Changes)
}

// RecreationOf returns the change behind change i that recreates its object, -1 if none does.
func RecreationOf(u *migration.Unit, i int) int {
	for j := i + 1; j < len(u.Changes); j++ {
		if u.Changes[j].Verb == migration.Recreate && u.Changes[j].Ref == u.Changes[i].Ref {
			return j
		}
	}
	return -1
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
