package k8sutil

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Source is what a collection is read from; a dynamic client's resource is one.
type Source interface {
	List(ctx context.Context, opts metav1.ListOptions) (*unstructured.UnstructuredList, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// Lister lists as the dynamic client does, in half the time and half the memory:
// that one decodes each object twice, once to see what it is, which a list of one
// resource need not. Lists are most of what a job costs on a migrated cluster.
type Lister struct {
	client  rest.Interface
	dynamic dynamic.Interface
}

// NewLister makes a Lister that watches through client.
func NewLister(cfg *rest.Config, client dynamic.Interface) (*Lister, error) {
	cfg = dynamic.ConfigFor(cfg)
	cfg.GroupVersion = &schema.GroupVersion{}
	restClient, err := rest.UnversionedRESTClientFor(cfg)
	if err != nil {
		return nil, err
	}
	return &Lister{client: restClient, dynamic: client}, nil
}

// Source returns the source of a resource in a namespace, "" for all of them or
// for cluster-scoped ones.
func (l *Lister) Source(r schema.GroupVersionResource, namespace string) Source {
	path := []string{"", "apis", r.Group, r.Version}
	if r.Group == "" {
		path = []string{"", "api", r.Version}
	}
	resource := dynamic.ResourceInterface(l.dynamic.Resource(r))
	if namespace != "" {
		resource = l.dynamic.Resource(r).Namespace(namespace)
		path = append(path, "namespaces", namespace)
	}
	return &source{ResourceInterface: resource, client: l.client, path: strings.Join(append(path, r.Resource), "/")}
}

type source struct {
	dynamic.ResourceInterface
	client rest.Interface
	path   string
	// fits is how many objects a page may hold since one was cut off, 0 for no limit of ours.
	fits atomic.Int64
}

const (
	// PageBytes is the size at which a page is cut off, to be asked for again with fewer objects:
	// what a reader has no room for is bytes, and an object may have 1.5 MiB of them. It is 16 KiB
	// for each object of a full page.
	PageBytes = PageSize * 16 << 10
	// pageShrink is how many times fewer objects are asked for then: twice, and a page of 500 has
	// one.
	pageShrink = 25
	// pagesAtOnce is how many pages this process receives and decodes at a time. Jobs that are
	// asked for their plans side by side read dozens of lists at once.
	pagesAtOnce = 4
)

// pages has the buffers that pages are received in: a slot each, so that they are pagesAtOnce.
var pages = func() chan *bytes.Buffer {
	all := make(chan *bytes.Buffer, pagesAtOnce)
	for range pagesAtOnce {
		all <- &bytes.Buffer{}
	}
	return all
}()

// List implements Source. A page may have fewer objects than the limit of opts, as one of an API
// server may.
func (s *source) List(ctx context.Context, opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	for {
		if fits := s.fits.Load(); fits > 0 && opts.Limit > fits {
			opts.Limit = fits
		}
		page, whole, err := s.get(ctx, opts)
		if err != nil || whole {
			return page, err
		}
		s.fits.Store(max(1, opts.Limit/pageShrink))
	}
}

// get returns the answer to one request. It is whole unless it is larger than PageBytes, and fewer
// objects can be asked for.
func (s *source) get(ctx context.Context, opts metav1.ListOptions) (page *unstructured.UnstructuredList, whole bool, err error) {
	body, err := s.client.Get().AbsPath(s.path).
		SpecificallyVersionedParams(&opts, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"}).Stream(ctx)
	if err != nil {
		return nil, false, err
	}
	defer body.Close()
	var buffer *bytes.Buffer
	select {
	case buffer = <-pages:
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	defer func() {
		if buffer.Cap() > 2*PageBytes {
			buffer = &bytes.Buffer{}
		}
		pages <- buffer
	}()
	buffer.Reset()
	limited := io.LimitReader(body, PageBytes+1)
	if opts.Limit <= 1 {
		limited = body
	}
	if _, err := buffer.ReadFrom(limited); err != nil {
		return nil, false, err
	}
	if opts.Limit > 1 && buffer.Len() > PageBytes {
		return nil, false, nil
	}
	page, err = s.decode(buffer.Bytes())
	return page, true, err
}

func (s *source) decode(raw []byte) (*unstructured.UnstructuredList, error) {
	list, err := decodeList(raw)
	if err != nil {
		return nil, fmt.Errorf("cannot read the list %s: %w%s", s.path, err, unreadable(raw))
	}
	for i := range list.Items {
		// Lists of built-in kinds leave these to the list.
		if item := list.Items[i].Object; item["kind"] == nil {
			item["kind"], item["apiVersion"] = strings.TrimSuffix(list.GetKind(), "List"), list.GetAPIVersion()
		}
	}
	return list, nil
}

// unreadable names the objects of a list that cannot be decoded. Without them nobody can tell what
// is left to do, so the list fails, and says which objects to correct.
func unreadable(raw []byte) string {
	var page struct {
		Items []stdjson.RawMessage `json:"items"`
	}
	if stdjson.Unmarshal(raw, &page) != nil {
		return ""
	}
	var names []string
	for i, item := range page.Items {
		var whole map[string]any
		if json.Unmarshal(item, &whole) == nil {
			continue
		}
		var named struct {
			Metadata struct{ Namespace, Name string } `json:"metadata"`
		}
		if stdjson.Unmarshal(item, &named) != nil || named.Metadata.Name == "" {
			names = append(names, fmt.Sprintf("number %d", i+1))
			continue
		}
		names = append(names, named.Metadata.Namespace+"/"+named.Metadata.Name)
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}
