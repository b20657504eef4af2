package journal

import (
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

// RecreatedBy returns the change that creates again what change i deletes, -1 if
// none does.
func RecreatedBy(u *migration.Unit, i int) int {
	if u.Changes[i].Verb != migration.Delete {
		return -1
	}
	for j := i + 1; j < len(u.Changes); j++ {
		if u.Changes[j].Verb == migration.Create && u.Changes[j].Ref == u.Changes[i].Ref && !u.Changes[j].Replaces {
			return j
		}
	}
	return -1
}

// Recreates says whether the unit deletes the object of change i, now or later, and
// creates it again.
func Recreates(u *migration.Unit, i int) bool {
	for j := i; j < len(u.Changes); j++ {
		if u.Changes[j].Ref == u.Changes[i].Ref && RecreatedBy(u, j) >= 0 {
			return true
		}
	}
	return false
}

// RecreatesAny says whether the unit deletes any object and creates it again: such a
// unit looks at all of its objects again when it is resumed.
func RecreatesAny(u *migration.Unit) bool {
	for i := range u.Changes {
		if RecreatedBy(u, i) >= 0 {
			return true
		}
	}
	return false
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
