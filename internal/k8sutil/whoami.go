package k8sutil

import (
	"context"
	"encoding/json"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// WhoAmI returns the name by which the API server knows this account. "" if the server does not
// say it: Kubernetes before 1.26 does not.
func WhoAmI(ctx context.Context, cfg *rest.Config) string {
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return ""
	}
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		gv := authenticationv1.GroupName + "/" + version
		raw, err := client.RESTClient().Post().AbsPath("/apis/"+gv+"/selfsubjectreviews").SetHeader("Content-Type", "application/json").
			Body(fmt.Appendf(nil, `{"apiVersion":%q,"kind":"SelfSubjectReview"}`, gv)).Do(ctx).Raw()
		var review authenticationv1.SelfSubjectReview // the status is the same in all versions
		if err == nil && json.Unmarshal(raw, &review) == nil && review.Status.UserInfo.Username != "" {
			return review.Status.UserInfo.Username
		}
		if ctx.Err() != nil {
			break
		}
	}
	return ""
}
