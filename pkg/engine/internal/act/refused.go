package act

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// findWebhooks shows all webhooks, with their Services.
var findWebhooks = migration.Kubectl("", "get", "validatingwebhookconfigurations,mutatingwebhookconfigurations",
	"-o", "custom-columns=NAME:.metadata.name,WEBHOOKS:.webhooks[*].name,SERVICES:.webhooks[*].clientConfig.service.name")

// limited completes a finding about a request that a limit or a policy refuses: a quota, a size,
// the load. None of them is a permission. The namespace is that of the object, "" if the finding's
// own object tells it. false: the error is another one.
func limited(f migration.Finding, err error, namespace string) (migration.Finding, bool) {
	if namespace == "" {
		_, name, _ := strings.Cut(f.Object, " ")
		namespace, _, _ = strings.Cut(name, "/")
	}
	if large, ok := errors.AsType[*journal.TooLargeError](err); ok {
		f.ID, f.Command = "object-too-large", migration.Kubectl(large.Ref.Namespace, "get", large.Ref.GroupResource().String(), large.Ref.Name, "-o", "yaml")
		f.Note = "Make it smaller, or have the job leave it out, as its documentation says. Then run the job again. To see it:"
		return f, true
	}
	refusal := k8sutil.RefusalOf(err)
	switch {
	case refusal.Kind == k8sutil.OverQuota:
		f.ID, f.Command = "quota-exceeded", migration.Kubectl(namespace, "describe", "resourcequotas")
		f.Note = fmt.Sprintf("The ResourceQuota %s of namespace %s leaves no room. It is no missing permission. Raise the quota, and run the job again. To see it:", orSome(refusal.By), namespace)
	case refusal.Kind == k8sutil.OutOfRange:
		f.ID, f.Command = "limit-range", migration.Kubectl(namespace, "describe", "limitranges")
		f.Note = fmt.Sprintf("A LimitRange of namespace %s does not allow the size. It is no missing permission. Change it, and run the job again. To see it:", namespace)
	case refusal.Kind == k8sutil.ByPolicy && refusal.By != "":
		f.ID, f.Command = "policy-denied", migration.Kubectl("", "get", "validatingadmissionpolicies,validatingadmissionpolicybindings")
		f.Note = fmt.Sprintf("The admission policy %s denies the object. It is no missing permission. Change the policy, and run the job again. To see all:", refusal.By)
	case refusal.Kind == k8sutil.ByWebhook:
		f.ID, f.Command = "webhook-denied", findWebhooks
		f.Note = fmt.Sprintf("The admission webhook %s denies the object. It is no missing permission. Change its policy, and run the job again. To find it:", refusal.By)
	case refusal.Kind == k8sutil.TooLarge:
		f.ID = "object-too-large"
		f.Note = "The API server or etcd does not take an object, or a request, of that size. Trying again cannot help: make the object smaller, then run the job again."
	case refusal.Kind == k8sutil.StorageFull:
		f.ID, f.Command = "storage-full", "kubectl get --raw '/readyz?verbose'"
		f.Note = "etcd has no room: nobody can create or change anything. Compact and defragment it, or raise its quota, then disarm its alarm. Run the job again once the API server is ready:"
	case refusal.Kind == k8sutil.Overloaded:
		f.ID, f.Command = "api-server-overloaded", "kubectl get --raw '/readyz?verbose'"
		f.Note = "The API server took no requests of this job for longer than the job retries"
		if refusal.RetryAfter > 0 {
			f.Note += fmt.Sprintf(", and asks to wait %d s", refusal.RetryAfter)
		}
		f.Note += ". Find out what loads it, or give the job a lower --qps. Run the job again once it is ready:"
	default:
		return f, false
	}
	return f, true
}

func orSome(name string) string {
	if name == "" {
		return "(its name is unknown)"
	}
	return name
}

// OfState is the finding about a state object that the API server does not take, in the given
// namespace. false: the reason is another one.
func OfState(err error, namespace string) (migration.Finding, bool) {
	return limited(migration.Finding{ID: "failed", Severity: migration.Error, Problem: err.Error()}, err, namespace)
}

// TooLarge names each object that could not be restored for certain, of those that the plan has
// whole. The others are read, and refused, when they are journaled.
func TooLarge(units []migration.Unit) []migration.Finding {
	var found []migration.Finding
	for i := range units {
		for _, large := range journal.TooLarge(&units[i]) {
			f, _ := limited(migration.Finding{ID: "object-too-large", Severity: migration.Error, Object: large.Ref.String(), Problem: large.Error()}, large, "")
			found = append(found, f)
		}
	}
	return found
}

// PermissionLost is the finding about a state object that the API server does not let a run write
// any more.
func PermissionLost(object string, err error) migration.Finding {
	f := migration.Finding{
		ID: "permission-lost", Severity: migration.Error, Object: object, Problem: err.Error(),
		Note: "Grant what is missing to the account again, or use another account. Run the job again: it goes on where this run stopped.",
	}
	if told, ok := OfState(err, ""); ok {
		f.Note, f.Command = told.Note, told.Command
	}
	return f
}
