package manager

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// answers is a reader that gives one answer after the other, and the last one again and again.
type answers struct {
	client.Reader
	all   []error
	reads int
}

func (a *answers) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	a.reads++
	return a.all[min(a.reads, len(a.all))-1]
}

// TestPatient: what fails for a moment is read again; an answer is not asked for twice.
func TestPatient(t *testing.T) {
	internal, pods := apierrors.NewInternalError(errors.New("for a moment")), schema.GroupResource{Resource: "pods"}
	for name, tc := range map[string]struct {
		all   []error
		reads int
	}{
		"an answer":           {[]error{nil}, 1},
		"two failures":        {[]error{internal, errors.New("connection reset by peer"), nil}, 3},
		"it does not exist":   {[]error{apierrors.NewNotFound(pods, "x")}, 1},
		"it is not served":    {[]error{&meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "Trigger"}}}, 1},
		"it is refused":       {[]error{internal, apierrors.NewForbidden(pods, "x", errors.New("no"))}, 2},
		"it asks for a delay": {[]error{apierrors.NewTooManyRequests("later", 1), nil}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &answers{all: tc.all}
			if err := (patient{a}).Get(t.Context(), client.ObjectKey{}, &corev1.Pod{}); !errors.Is(err, tc.all[len(tc.all)-1]) || a.reads != tc.reads {
				t.Errorf("%d reads, want %d; %v", a.reads, tc.reads, err)
			}
		})
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := (patient{&answers{all: []error{nil}}}).Get(ended, client.ObjectKey{}, &corev1.Pod{}); err == nil {
		t.Error("it reads after the end")
	}
}
