package kyma

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// HTTPSourceProblem says why an HTTPSource cannot take events, "" if it can: its
// Channel is ready and has an address, its adapter (a Knative Service) is ready,
// and it says so itself. All three have its name. Its own condition is not
// believed alone: it goes stale when a Channel cannot be made. Any of the three
// may be nil.
func HTTPSourceProblem(source, channel, service *unstructured.Unstructured) string {
	switch {
	case source == nil:
		return "it does not exist"
	case source.GetDeletionTimestamp() != nil:
		return "it is being deleted"
	}
	for _, child := range []struct {
		what string
		obj  *unstructured.Unstructured
	}{{"its Channel", channel}, {"its adapter (the Knative Service of its name)", service}} {
		if child.obj == nil {
			if channel == nil && service != nil {
				return "its adapter exists without a Channel to send to"
			}
			return child.what + " does not exist"
		}
		if child.obj.GetDeletionTimestamp() != nil {
			return child.what + " is being deleted"
		}
		owner, controlled := ControllerOf(child.obj)
		if controlled && owner.GroupKind == HTTPSource && owner.UID != source.GetUID() {
			return child.what + " belongs to an earlier HTTPSource and is about to be garbage-collected"
		}
		if r := ReadinessOf(child.obj); !r.OK() {
			return child.what + " " + r.Problem()
		}
		if child.obj == channel && !Addressed(channel) {
			return "its Channel has no address"
		}
	}
	if r := ReadinessOf(source); !r.OK() {
		return "it " + r.Problem()
	}
	return ""
}

// Problem words a readiness that is not OK, as the end of a sentence.
func (r Readiness) Problem() string {
	switch {
	case r.Status == "":
		return "has no status yet"
	case !r.Current:
		return "has changed, and its controller has not caught up"
	case r.Reason == "" && r.Message == "":
		return "is not ready"
	case r.Message == "":
		return fmt.Sprintf("is not ready: %s", r.Reason)
	case r.Reason == "":
		return fmt.Sprintf("is not ready: %s", r.Message)
	}
	return fmt.Sprintf("is not ready: %s: %s", r.Reason, r.Message)
}
