package kyma

import "fmt"

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
