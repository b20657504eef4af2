package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/model"
)

// shop is an API server with a ConfigMap, and the environment of a person who uses it: a program
// takes that of its process instead.
func shop() (env func(string) string, end func()) {
	cfg := model.New(1).Client("example").Config()
	client := dynamic.NewForConfigOrDie(cfg)
	create := func(r migration.Resource, namespace, name string) {
		obj := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}}}
		obj.SetGroupVersionKind(r.GVK())
		if _, err := r.In(client, namespace).Create(context.Background(), obj, metav1.CreateOptions{}); err != nil {
			panic(err)
		}
	}
	create(migration.CoreResource("", "namespaces", "Namespace"), "", "shop")
	create(configMaps, "shop", "orders")

	memory, err := url.Parse(cfg.Host)
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Transport: inJSON{cfg.Transport}, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(memory) },
	})
	dir, err := os.MkdirTemp("", "command")
	if err != nil {
		panic(err)
	}
	file := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(file, fmt.Appendf(nil, `{"clusters": [{"name": "c", "cluster": {"server": %q}}], "current-context": "here",
  "contexts": [{"name": "here", "context": {"cluster": "c"}}]}`, server.URL), 0o600); err != nil {
		panic(err)
	}
	variables := map[string]string{"KUBECONFIG": file}
	return func(name string) string { return variables[name] }, func() {
		server.CloseClientConnections()
		server.Close()
		_ = os.RemoveAll(dir) // what is left is of no use to anybody
	}
}

// inJSON translates requests for a server that reads JSON only.
type inJSON struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (j inJSON) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasPrefix(r.Header.Get("Content-Type"), runtime.ContentTypeProtobuf) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		object, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), body)
		if err != nil {
			return nil, err
		}
		if body, err = json.Marshal(object); err != nil {
			return nil, err
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Set("Content-Type", runtime.ContentTypeJSON)
	}
	return j.RoundTripper.RoundTrip(r)
}
