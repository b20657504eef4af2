package eventpath

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
)

// Others finds the namespaces whose Broker brings events to a Trigger that a rollback or undo does
// not delete: it is somebody else's.
type Others struct {
	mine map[string]bool
	// used has the Triggers by the namespace, and of each whether trigger-sync has made it. A list
	// that begins again hands them over twice.
	used map[string]map[string]bool
}

// NewOthers knows what may be deleted.
func NewOthers[T fmt.Stringer](refs []T) *Others {
	o := &Others{mine: map[string]bool{}, used: map[string]map[string]bool{}}
	for _, ref := range refs {
		o.mine[ref.String()] = true
	}
	return o
}

// Add looks at a Trigger.
func (o *Others) Add(ref fmt.Stringer, trigger *unstructured.Unstructured) {
	broker := k8sobject.Text(k8sobject.MapAt(trigger.Object, "spec")["broker"])
	if o.mine[ref.String()] || trigger.GetDeletionTimestamp() != nil || broker != "" && broker != kyma.DefaultBroker {
		return
	}
	in := trigger.GetNamespace()
	if o.used[in] == nil {
		o.used[in] = map[string]bool{}
	}
	_, o.used[in][ref.String()] = trigger.GetAnnotations()[kyma.OriginAnnotation]
}

// Protect adds the reason for each namespace that has none.
func (o *Others) Protect(brokers map[string]string) {
	for namespace, used := range o.used {
		if _, live := brokers[namespace]; !live {
			brokers[namespace] = because(used)
		}
	}
}

const (
	// named is how many Triggers a reason names.
	named     = 3
	converted = ", made by trigger-sync,"
)

// because names the Triggers; the first is the one about which something must be done.
func because(used map[string]bool) string {
	// One that nobody converted comes first: to undo trigger-sync leaves it.
	refs := slices.SortedFunc(maps.Keys(used), func(a, b string) int {
		switch {
		case used[a] == used[b]:
			return strings.Compare(a, b)
		case used[b]:
			return -1
		}
		return 1
	})
	why := strings.Join(refs[:min(len(refs), named)], ", ")
	if more := len(refs) - named; more > 0 {
		why += fmt.Sprintf(" and %d more", more)
	}
	if used[refs[0]] {
		why += converted
	}
	if len(refs) > 1 {
		return why + " get their events through it"
	}
	return why + " gets its events through it"
}

var usedBy = regexp.MustCompile(`^Trigger ([^/ ]+)/([^, ]+).* events through it$`)

// WayOut is what must be done before a Broker of that reason may be deleted; nothing for another
// reason.
func WayOut(reason string) struct{ Note, Command string } {
	type way = struct{ Note, Command string }
	trigger := usedBy.FindStringSubmatch(reason)
	switch {
	case trigger == nil:
		return way{}
	case strings.Contains(reason, converted):
		return way{"To delete the Broker, too, undo trigger-sync first. Then repeat this undo.", "eventmesh-migrate undo trigger-sync"}
	}
	return way{
		"This run has not made the Trigger. If nobody needs it, delete it. Then undo again.",
		fmt.Sprintf("kubectl -n %s delete %s.%s/%s", trigger[1], strings.ToLower(knative.Trigger.Kind), knative.Trigger.Group, trigger[2]),
	}
}
