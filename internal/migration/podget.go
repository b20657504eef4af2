package migration

import (
	"context"
	"fmt"
	"net/url"
	"time"
)

// podTimeout bounds one request to a pod.
const podTimeout = 15 * time.Second

// PodGet gets a path over HTTP from a port of a pod, through the API server's
// proxy, once: where no Service exposes the port, and a job runs outside the pod
// network. It needs the permission to get pods/proxy.
func (c *Cluster) PodGet(ctx context.Context, namespace, pod string, port int, path string, query url.Values) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	body, err := c.connection.Served.Raw(ctx, fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%d/proxy%s", namespace, pod, port, path), query)
	if err != nil {
		return nil, fmt.Errorf("cannot get %s from port %d of Pod %s/%s: %w", path, port, namespace, pod, err)
	}
	return body, nil
}
