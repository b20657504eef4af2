package drift

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/redact"
)

const (
	// keptFor is for how long nothing is applied that would end as it is. Later it is tried again:
	// the webhook may be gone.
	keptFor = 10 * time.Minute
	// keptAtMost is the same for a StatefulSet that would be replaced for it.
	keptAtMost = 24 * time.Hour
	// restless is the same for fields that something gives another value at each write. Within it,
	// they are not repaired either.
	restless = time.Minute
	// named is how many differences a message shows.
	named = 3
	// longestValue is how much of a value a difference shows, in bytes.
	longestValue = 120
)

// Difference is a field of an object that is not as it was applied.
type Difference struct {
	// Path names the field, such as spec.template.spec.containers[publisher].image.
	Path string
	// Want and Is are its values in JSON, shortened; empty in a Secret.
	Want, Is string
}

func (d Difference) String() string {
	if d.Want == "" {
		return d.Path
	}
	return fmt.Sprintf("%s is %s, and not %s", d.Path, d.Is, d.Want)
}

// Differences are the fields in which a live object is not as it is wanted, sorted by their path as
// far as they are not in lists; empty if it has not Drifted.
func Differences(want, is *unstructured.Unstructured) []Difference {
	found := differences("", want.Object, is.Object, false)
	if want.GetKind() == "Secret" {
		for i := range found {
			found[i].Want, found[i].Is = "", ""
		}
	}
	return found
}

func differences(path string, want, is any, quantities bool) (found []Difference) {
	if covered(want, is, quantities) {
		return nil
	}
	switch want := want.(type) {
	case map[string]any:
		has, same := is.(map[string]any)
		if !same {
			break
		}
		for _, key := range slices.Sorted(maps.Keys(want)) {
			below := key
			if path != "" {
				below = path + "." + key
			}
			found = append(found, differences(below, want[key], has[key], quantities || ofQuantities(key))...)
		}
		return found
	case []any:
		has, _ := is.([]any)
		if len(want) == 0 || !isObject(want[0]) {
			break
		}
		for i, item := range want {
			if slices.ContainsFunc(has, func(other any) bool { return covered(item, other, quantities) }) {
				continue
			}
			below := fmt.Sprintf("%s[%d]", path, i)
			var other any
			if name := nameOf(item); name != "" {
				below = fmt.Sprintf("%s[%s]", path, name)
				if at := slices.IndexFunc(has, func(other any) bool { return nameOf(other) == name }); at >= 0 {
					other = has[at]
				}
			}
			found = append(found, differences(below, item, other, quantities)...)
		}
		return found
	}
	return []Difference{{Path: path, Want: redact.Short(want, longestValue), Is: redact.Short(is, longestValue)}}
}

func nameOf(item any) string {
	object, _ := item.(map[string]any)
	name, _, _ := unstructured.NestedString(object, "name")
	return name
}

// Kept is what the API server has made of what was applied, by the UID of the object, where that
// differs: a webhook or a policy of the cluster gives a field another value at each write. To apply
// it again and again would change nothing.
type Kept map[types.UID]kept

type kept struct {
	at          time.Time
	differences []Difference
}

// Note remembers how an object is that was just created or applied.
func (k Kept) Note(want, is *unstructured.Unstructured, now time.Time) {
	maps.DeleteFunc(k, func(_ types.UID, of kept) bool { return now.Sub(of.at) > keptAtMost })
	delete(k, is.GetUID())
	if found := Differences(want, is); len(found) > 0 {
		k[is.GetUID()] = kept{now, found}
	}
}

// Of are the differences between a live object and what is wanted, if the API server would keep
// them. Empty means that it is to be applied.
func (k Kept) Of(want, is *unstructured.Unstructured, now time.Time) []Difference {
	last, known := k[is.GetUID()]
	if !known {
		return nil
	}
	age, limit := now.Sub(last.at), keptFor
	if len(Unchangeable(want, is)) > 0 {
		limit = keptAtMost
	}
	if age > limit {
		return nil
	}
	found := Differences(want, is)
	same := slices.Equal(found, last.differences)
	if !same && age < restless {
		same = slices.EqualFunc(found, last.differences, func(a, b Difference) bool { return a.Path == b.Path })
	}
	if !same {
		return nil
	}
	return found
}

// Told is a message about what is kept, for a status; "" if nothing is.
func Told(differences []string) string {
	if len(differences) == 0 {
		return ""
	}
	message := strings.Join(differences[:min(named, len(differences))], "; ")
	if more := len(differences) - named; more > 0 {
		message += fmt.Sprintf("; and %d more", more)
	}
	return "Something else changes each write of the operator, such as a webhook or a policy of the cluster, and its values stay: " + message +
		". To see the webhooks: kubectl get mutatingwebhookconfigurations"
}
