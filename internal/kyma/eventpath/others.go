package eventpath

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/kyma"
)

// Others finds the namespaces whose Broker brings events to a Trigger that a rollback or undo does
// not delete: it is somebody else's.
type Others struct {
	mine map[string]bool
	// used has the Triggers by the namespace. A list that begins again hands them over twice.
	used map[string]map[string]other
}

// other is a Trigger that stays. converted says that trigger-sync has made it.
type other struct {
	converted bool
	remove    string
}

// NewOthers knows what may be deleted.
func NewOthers[T fmt.Stringer](refs []T) *Others {
	o := &Others{mine: map[string]bool{}, used: map[string]map[string]other{}}
	for _, ref := range refs {
		o.mine[ref.String()] = true
	}
	return o
}

// Add looks at a Trigger.
func (o *Others) Add(ref fmt.Stringer, trigger *unstructured.Unstructured) {
	broker := kyma.Text(kyma.MapAt(trigger.Object, "spec")["broker"])
	if o.mine[ref.String()] || trigger.GetDeletionTimestamp() != nil || broker != "" && broker != kyma.DefaultBroker {
		return
	}
	in := trigger.GetNamespace()
	if o.used[in] == nil {
		o.used[in] = map[string]other{}
	}
	_, converted := trigger.GetAnnotations()[kyma.OriginAnnotation]
	o.used[in][ref.String()] = other{
		converted: converted,
		remove:    fmt.Sprintf("kubectl -n %s delete %s.%s/%s", in, strings.ToLower(kyma.Trigger.Kind), kyma.Trigger.Group, trigger.GetName()),
	}
}

// Protect adds the reason for each namespace that has none, with what must be done first.
func (o *Others) Protect(brokers map[string]string) {
	for namespace, used := range o.used {
		if _, live := brokers[namespace]; !live {
			brokers[namespace] = because(used)
		}
	}
}

// named is how many Triggers a reason names.
const named = 3

// because names the Triggers, and what must be done about the first of them.
func because(used map[string]other) string {
	// The one that nobody converted comes first: to undo trigger-sync leaves it.
	refs := slices.SortedFunc(maps.Keys(used), func(a, b string) int {
		if used[a].converted != used[b].converted {
			if used[b].converted {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	names, verb := strings.Join(refs[:min(len(refs), named)], ", "), "gets its"
	if len(refs) > 1 {
		verb = "get their"
	}
	if more := len(refs) - named; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	why := names + " " + verb + " events through it"
	if first := used[refs[0]]; !first.converted {
		return why + ". The run that is undone has not made " + refs[0] + ". If nobody needs it, delete it, then undo again: " + first.remove
	}
	return why + ". Undo trigger-sync, then undo this again: eventmesh-migrate undo trigger-sync"
}
