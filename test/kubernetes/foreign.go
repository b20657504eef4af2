package kubernetes

import (
	"context"
	"fmt"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// KubeconfigEnv names the variable that lends the tests a cluster: the paths of kubeconfig files,
// as KUBECONFIG has them.
const KubeconfigEnv = "EVENTMESH_TEST_KUBECONFIG"

// MadeForTests labels every Application that a test makes. One without it is somebody's, and its
// cluster no place for tests.
const MadeForTests = "eventmesh-migration.kyma-project.io/made-for-tests"

// Foreign says whether Start will use the cluster of EVENTMESH_TEST_KUBECONFIG.
func Foreign() bool { return os.Getenv(KubeconfigEnv) != "" }

// refuseOthers is RefuseOthers, before this process wrote anything.
func (c *ControlPlane) refuseOthers(ctx context.Context) error {
	if err := RefuseOthers(ctx, c.dynamic); err != nil {
		return fmt.Errorf("cannot use the cluster of %s: %w", KubeconfigEnv, err)
	}
	return nil
}

// RefuseOthers returns an error if the cluster has Applications that no test made: tests delete
// what they find.
func RefuseOthers(ctx context.Context, client dynamic.Interface) error {
	applications := schema.GroupVersionResource{Group: "applicationconnector.kyma-project.io", Version: "v1alpha1", Resource: "applications"}
	list, err := client.Resource(applications).List(ctx, metav1.ListOptions{LabelSelector: "!" + MadeForTests, Limit: 1})
	switch {
	case apierrors.IsNotFound(err): // the kind is not served
		return nil
	case err != nil:
		return fmt.Errorf("cannot list Applications, so that it cannot be said whose they are: %w", err)
	case len(list.Items) > 0:
		return fmt.Errorf("the cluster has Applications that the tests did not make (%s lacks the label %s), and the tests delete what they find: use a cluster you can lose, or unset %s",
			list.Items[0].GetName(), MadeForTests, KubeconfigEnv)
	}
	return nil
}
