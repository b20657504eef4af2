package poll

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestFor(t *testing.T) {
	errDown := errors.New("the server is down")
	for name, tc := range map[string]struct {
		reason string
		// answers are given in turn, the last one from then on.
		answers []error
		cancel  time.Duration
		asked   int
		took    time.Duration
		want    []string
	}{
		"AtOnce":    {reason: "what holds already is not waited for", answers: []error{nil}, asked: 1},
		"Later":     {reason: "it is asked again", answers: []error{errDown, errDown, nil}, asked: 3, took: 2 * shortest},
		"Never":     {reason: "the failure names what was awaited, and the last state", answers: []error{errDown, errors.New("2 of 3 pods")}, took: time.Second, want: []string{"three pods", "not so after 1s", "last state: 2 of 3 pods"}},
		"Stopped":   {reason: "what cannot come true is not waited for", answers: []error{Stop(errDown)}, asked: 1, want: []string{"three pods", "cannot become so", "the server is down"}},
		"Cancelled": {reason: "whoever waits may give up before the limit", answers: []error{errDown}, cancel: 500 * time.Millisecond, took: 500 * time.Millisecond, want: []string{"three pods", "context canceled", "the server is down"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.cancel > 0 {
					time.AfterFunc(tc.cancel, cancel)
				}
				asked, began := 0, time.Now()
				err := For(ctx, time.Second, "there are three pods", func(context.Context) error {
					asked++
					return tc.answers[min(asked, len(tc.answers))-1]
				})
				if took := time.Since(began); took != tc.took || tc.asked > 0 && asked != tc.asked {
					t.Errorf("%s: asked %d times in %s, want %d in %s", tc.reason, asked, took, tc.asked, tc.took)
				}
				if (err != nil) != (tc.want != nil) {
					t.Fatalf("%s: %v", tc.reason, err)
				}
				for _, part := range tc.want {
					if !strings.Contains(fmt.Sprint(err), part) {
						t.Errorf("%s: %q is not in: %v", tc.reason, part, err)
					}
				}
				if last := tc.answers[len(tc.answers)-1]; last != nil && !errors.Is(err, errors.Unwrap(last)) && !errors.Is(err, last) {
					t.Errorf("%s: the last state is lost: %v", tc.reason, err)
				}
			})
		})
	}
}

func TestGone(t *testing.T) {
	if err := Gone(apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p")); err != nil {
		t.Errorf("what is not found is gone: %v", err)
	}
	if Gone(nil) == nil {
		t.Error("what can be read is not gone")
	}
	if Gone(apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", nil)) == nil {
		t.Error("what cannot be read may be there")
	}
}

// TestPauses: an answer that comes soon is seen at once, and one that takes a minute is not asked
// for three thousand times.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		asked, last := 0, time.Duration(0)
		err := For(t.Context(), time.Minute, "it holds", func(context.Context) error {
			asked++
			at := time.Since(began)
			if pause, most := at-last, max(shortest, at/50+time.Millisecond); asked > 1 && (pause < shortest || pause > min(most, longest)) {
				t.Errorf("a pause of %s after %s", pause, at)
			}
			last = at
			return errors.New("not yet")
		})
		if err == nil || asked < 300 || asked > 400 {
			t.Errorf("asked %d times in a minute: %v", asked, err)
		}
	})
}
