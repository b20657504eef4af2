package k8sutil

import (
	"context"
	"net/url"
)

// Raw gets a path of the API server that is no resource, such as what a pod
// serves behind the server's proxy. It is one GET and no more: an answer of 503
// may be the pod's own, and whether to ask again is for the caller to say.
func (s *Served) Raw(ctx context.Context, path string, query url.Values) ([]byte, error) {
	request := s.client.RESTClient().Get().AbsPath(path)
	for key, values := range query {
		for _, value := range values {
			request.Param(key, value)
		}
	}
	return request.MaxRetries(0).DoRaw(ctx)
}
