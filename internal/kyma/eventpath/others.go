package eventpath

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Others finds the namespaces whose Broker brings events to a Trigger that a rollback or undo does
// not delete: it is somebody else's.
type Others struct {
	mine map[string]bool
	used map[string]string
}

// NewOthers knows what may be deleted.
func NewOthers[T fmt.Stringer](refs []T) *Others {
	o := &Others{mine: map[string]bool{}, used: map[string]string{}}
	for _, ref := range refs {
		o.mine[ref.String()] = true
	}
	return o
}

// Add looks at a Trigger of the default Broker.
func (o *Others) Add(ref fmt.Stringer, trigger *unstructured.Unstructured) {
	if o.mine[ref.String()] || trigger.GetDeletionTimestamp() != nil {
		return
	}
	why := fmt.Sprintf("%s gets its events through it, and is not of the run that is undone", ref)
	if known, ok := o.used[trigger.GetNamespace()]; !ok || why < known {
		o.used[trigger.GetNamespace()] = why
	}
}

// Protect adds the reason for each namespace that has none.
func (o *Others) Protect(brokers map[string]string) {
	for namespace, why := range o.used {
		if _, live := brokers[namespace]; !live {
			brokers[namespace] = why
		}
	}
}
