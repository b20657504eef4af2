package manager

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// refused tells whether the API server will refuse the same again: by its rules, or by a quota, a
// policy or a webhook, whose answers have any code.
func refused(err error) bool {
	switch k8sutil.RefusalOf(err).Kind {
	case k8sutil.NotRefused:
		return apierrors.IsInvalid(err) || apierrors.IsForbidden(err)
	case k8sutil.NoAccount, k8sutil.Overloaded, k8sutil.StorageFull:
		return false // of each request, or for a moment
	}
	return true
}

// remedy is what to do about a refusal in a namespace: a sentence after a space; "" if the answer
// says it all.
func remedy(err error, namespace string) string {
	switch k8sutil.RefusalOf(err).Kind {
	case k8sutil.OverQuota:
		return ". It is no missing permission: raise the ResourceQuota. Next: kubectl -n " + namespace + " describe resourcequotas"
	case k8sutil.OutOfRange:
		return ". It is no missing permission: change the LimitRange, or the resources in the spec. Next: kubectl -n " + namespace + " describe limitranges"
	case k8sutil.ByWebhook:
		return ". It is no missing permission: change the policy behind the webhook. Next: kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations"
	case k8sutil.NoPermission:
		return ". Apply the manifest of the operator again: its ClusterRole has the permission"
	}
	return ""
}
