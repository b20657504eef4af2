package k8sutil

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// unusedPath is no path of an API server. Nobody is allowed to read it, unless all paths are
// allowed.
const unusedPath = "/eventmesh-migration-who-am-i"

// WhoAmI returns the name by which the API server knows this account. Kubernetes before 1.26 has no
// kind that says it: there, the name is in the refusal of a request that nobody is allowed to send.
// "" if the server does not say it at all, as to an account that is allowed everything.
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
			return ""
		}
	}
	err = client.RESTClient().Get().AbsPath(unusedPath).Do(ctx).Error()
	if !apierrors.IsForbidden(err) {
		return ""
	}
	return refused(err.Error())
}

// refused is the account in a message like: User "system:serviceaccount:default:reader" cannot get
// path "/x".
func refused(message string) string {
	_, after, _ := strings.Cut(message, "User ")
	quoted, err := strconv.QuotedPrefix(after)
	if err != nil || !strings.HasPrefix(after[len(quoted):], " cannot ") {
		return ""
	}
	name, err := strconv.Unquote(quoted)
	if err != nil {
		return ""
	}
	return name
}
