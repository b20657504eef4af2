package k8sutil

import (
	"context"
	"net/url"
)

// Raw gets a path of the API server that is no resource, such as what a pod
// serves behind the server's proxy. It never does anything but a GET.
func (s *Served) Raw(ctx context.Context, path string, query url.Values) ([]byte, error) {
	var body []byte
	err := s.retry(ctx, func(ctx context.Context) error {
		request := s.client.RESTClient().Get().AbsPath(path)
		for key, values := range query {
			for _, value := range values {
				request.Param(key, value)
			}
		}
		var err error
		body, err = request.DoRaw(ctx)
		return err
	})
	return body, err
}
