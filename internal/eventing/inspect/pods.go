package inspect

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/wording"
)

// The keys of the ConfigMap that the controller writes.
const (
	keyLeader      = "leader"
	keyCertificate = "apiCertificate"
)

// Controller is the pod of the controller that leads, and the SHA-256 of the certificate of its
// API.
func (c *Cluster) Controller(ctx context.Context, home Home) (pod, certificate string, err error) {
	name := home.Names.ControllerState()
	u, err := c.Get(ctx, configMaps, home.Namespace, name)
	if err != nil {
		return "", "", err
	}
	if u == nil {
		return "", "", fmt.Errorf("ConfigMap %s/%s does not exist, so no controller has led yet. To see why: kubectl eventing status", home.Namespace, name)
	}
	data, _, _ := unstructured.NestedStringMap(u.Object, "data")
	pod, certificate = data[keyLeader], data[keyCertificate]
	switch {
	case pod == "":
		return "", "", fmt.Errorf("ConfigMap %s/%s names no leader: the controller is starting. To see how it is: kubectl eventing status", home.Namespace, name)
	case certificate == "":
		return "", "", fmt.Errorf("Pod %s/%s has no API for dead letters: its version is older than this program. Upgrade eventing, or see which versions there are: kubectl eventing status", home.Namespace, pod) //nolint:staticcheck // it begins with a kind
	}
	return pod, certificate, nil
}

// Publisher is a pod of the publisher that takes events.
func (c *Cluster) Publisher(ctx context.Context, home Home) (pod string, err error) {
	selector := "app.kubernetes.io/name=publisher-proxy,app.kubernetes.io/instance=" + string(home.Names)
	all, err := c.List(ctx, pods, home.Namespace, selector)
	if err != nil {
		return "", err
	}
	for _, u := range all {
		if u.GetDeletionTimestamp() == nil && podReady(u) {
			return u.GetName(), nil
		}
	}
	return "", fmt.Errorf("none of the %s of the publisher is ready. To see why: %s", wording.Count(len(all), "pod"),
		wording.CommandLine("kubectl", "-n", home.Namespace, "describe", "pods", "-l", selector))
}

func podReady(pod *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(pod.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && condition["type"] == "Ready" {
			return condition["status"] == "True"
		}
	}
	return false
}

// NamespaceExists tells whether a namespace does.
func (c *Cluster) NamespaceExists(ctx context.Context, name string) (bool, error) {
	u, err := c.Get(ctx, namespaces, "", name)
	return u != nil, err
}

// PageOf is the pod of the operator that shows the page, and the SHA-256 of its certificate.
func PageOf(ctx context.Context, c *Cluster, home Home) (pod, certificate string, err error) {
	name := home.Names.ManagerPage()
	u, err := c.Get(ctx, configMaps, home.Namespace, name)
	if err != nil {
		return "", "", err
	}
	if u == nil {
		return "", "", fmt.Errorf("the operator shows no page: ConfigMap %s/%s does not exist. An administrator installs the chart eventing-manager with --set page.enabled=true", home.Namespace, name)
	}
	data, _, _ := unstructured.NestedStringMap(u.Object, "data")
	pod, certificate = data[backend.PagePod], data[backend.PageCertificate]
	if pod == "" || certificate == "" {
		return "", "", fmt.Errorf("ConfigMap %s/%s names no pod yet: the operator is starting. To see how it is: %s", home.Namespace, name,
			wording.CommandLine("kubectl", "-n", home.Namespace, "get", "deployments", string(home.Names)+"-manager"))
	}
	return pod, certificate, nil
}
