package k8sutil

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// failing is a Source whose first lists fail.
type failing struct{ left int }

func (f *failing) List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	if f.left > 0 {
		f.left--
		return nil, errors.New("tested")
	}
	return &unstructured.UnstructuredList{}, nil
}

func (*failing) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}

// TestListUntil: each failure is told, and an end of the context is no failure.
func TestListUntil(t *testing.T) {
	t.Parallel()
	once := func(ctx context.Context, op func(context.Context) error) error { return op(ctx) }
	told := 0
	c := NewCollection(&failing{left: 2}, Named("one"), nil, once)
	if err := c.ListUntil(t.Context(), time.Millisecond, func(error) { told++ }); err != nil || told != 2 {
		t.Errorf("it ended with %v after %d failures", err, told)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c = NewCollection(&failing{left: 100}, Named("one"), nil, once)
	told = 0
	err := c.ListUntil(ctx, time.Hour, func(error) { told++; cancel() })
	if !errors.Is(err, context.Canceled) || told != 1 {
		t.Errorf("it ended with %v after %d failures", err, told)
	}
}
