package journal

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// objectBytes is how large an object may be that a run deletes, patches or creates. etcd takes
// requests of 1.5 MiB; a restored object is larger than its pre-image by what the API server
// writes into it, such as managedFields, and what somebody has to write into it later.
const objectBytes = 1280 << 10

// TooLargeError says that an object may be too large to be restored.
type TooLargeError struct {
	Ref   migration.Ref
	Bytes int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s has %d KiB: an object of more than %d KiB cannot be restored for certain, so it is not changed", e.Ref, e.Bytes>>10, objectBytes>>10)
}

// TooLarge returns the objects of a unit that are too large for a run, as far as its plan has
// them.
func TooLarge(u *migration.Unit) []*TooLargeError {
	var found []*TooLargeError
	for i := range u.Changes {
		ch := &u.Changes[i]
		if ch.Verb == migration.Patch {
			continue // it has some fields of its object, and Append sees the others
		}
		if n := size(ch.Object); n > objectBytes {
			found = append(found, &TooLargeError{ch.Ref, n})
		}
	}
	return found
}

// tooLarge says whether a pre-image of the entry, or an object that it creates, is too large.
func (e *Entry) tooLarge() error {
	for i := range e.Pre {
		if n := size(e.Pre[i].Object); n > objectBytes {
			return &TooLargeError{e.Unit.Changes[i].Ref, n}
		}
	}
	if found := TooLarge(&e.Unit); len(found) > 0 {
		return found[0]
	}
	return nil
}

// size is how many bytes an object takes, encoded. One that is small by far is not encoded.
func size(obj *unstructured.Unstructured) int {
	if obj == nil {
		return 0
	}
	if n := length(obj.Object); n < objectBytes/8 { // a character takes six bytes at most
		return n
	}
	raw, err := json.Marshal(obj.Object)
	if err != nil {
		return 0 // it came as JSON
	}
	return len(raw)
}

// length counts the bytes of all keys and texts.
func length(v any) int {
	n := 0
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			n += len(key) + length(value)
		}
	case []any:
		for _, value := range v {
			n += length(value)
		}
	case string:
		n = len(v)
	default:
		n = 8
	}
	return n + 4
}
