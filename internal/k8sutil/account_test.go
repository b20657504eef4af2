package k8sutil

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// TestAccount fails on the commit before: a 401 in the middle of a run ended the
// call at once, whether a token was just rotated or the account was deleted.
func TestAccount(t *testing.T) {
	no := apierrors.NewUnauthorized("no")
	forbidden := apierrors.NewForbidden(things.GroupResource(), "a", errors.New("x"))
	for name, tc := range map[string]struct {
		reason string
		// before is what an earlier request was answered, if there was one.
		earlier bool
		before  error
		// back is when the account is accepted again, 0 never.
		back time.Duration
		// answer is what is said instead of a success then.
		answer error
		ok     bool
		gone   bool
		after  time.Duration // at least, and within 5 s more
	}{
		"Wrong":     {reason: "the first answer is final: the credentials are wrong"},
		"WrongNow":  {reason: "a request without an answer says nothing of the account", earlier: true, before: io.EOF},
		"Overload":  {reason: "nor does an answer that is no decision", earlier: true, before: apierrors.NewTooManyRequests("x", 1)},
		"Gone":      {reason: "refused for 5 s", earlier: true, gone: true, after: goneAfter},
		"GoneToo":   {reason: "a refusal on the merits accepts the account as well", earlier: true, before: forbidden, gone: true, after: goneAfter},
		"Rotated":   {reason: "the new token is there after a second", earlier: true, back: time.Second, ok: true, after: time.Second},
		"Late":      {reason: "it is there just in time", earlier: true, back: goneAfter - time.Second, ok: true, after: goneAfter - time.Second},
		"Forbidden": {reason: "an answer on the merits is returned as it is", earlier: true, back: time.Second, answer: forbidden, after: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var account Account
				if tc.earlier {
					_ = account.Watch(func(context.Context) error { return tc.before })(t.Context()) // its answer is known
				}
				began := time.Now()
				err := Retry(t.Context(), time.Minute, nil, account.Watch(func(context.Context) error {
					if tc.back > 0 && time.Since(began) >= tc.back {
						return tc.answer
					}
					return no
				}))
				var gone *AccountGoneError
				if (err == nil) != tc.ok || errors.As(err, &gone) != tc.gone {
					t.Errorf("%s: got %v", tc.reason, err)
				}
				if !tc.ok && tc.back == 0 && !apierrors.IsUnauthorized(err) {
					t.Errorf("%s: what was answered is lost: %v", tc.reason, err)
				}
				if IsTransient(err) {
					t.Errorf("%s: it would be repeated: %v", tc.reason, err)
				}
				if took := time.Since(began); took < tc.after || took > tc.after+5*time.Second {
					t.Errorf("%s: after %s, want %s", tc.reason, took, tc.after)
				}
			})
		})
	}

	t.Run("OthersEndAtOnce", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var account Account
			ok := account.Watch(func(context.Context) error { return nil })
			refused := account.Watch(func(context.Context) error { return no })
			_ = ok(t.Context())
			_ = Retry(t.Context(), time.Minute, nil, refused) // ends as gone
			var gone *AccountGoneError
			if err := refused(t.Context()); !errors.As(err, &gone) {
				t.Errorf("the next call waits once more: %v", err)
			}
			if err := ok(t.Context()); err != nil {
				t.Error(err)
			}
			if err := refused(t.Context()); errors.As(err, &gone) {
				t.Error("it was accepted since, and this is its first refusal")
			}
		})
	})

	t.Run("AnEarlierRequestProvesNothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var account Account
			_ = account.Watch(func(context.Context) error { return nil })(t.Context())
			var slow sync.WaitGroup
			slow.Go(func() { // begun before the account went, answered after
				_ = account.Watch(func(context.Context) error { time.Sleep(5500 * time.Millisecond); return nil })(t.Context())
			})
			time.Sleep(time.Second)
			began := time.Now()
			err := Retry(t.Context(), time.Minute, nil, account.Watch(func(context.Context) error { return no }))
			var gone *AccountGoneError
			if took := time.Since(began); !errors.As(err, &gone) || took >= goneAfter+4*time.Second {
				t.Errorf("after %s: %v", took, err)
			}
			slow.Wait()
		})
	})
}

// TestReloadTokenFile fails on the commit before: a rotated token was read after up to
// 50 s.
func TestReloadTokenFile(t *testing.T) {
	valid := "old"
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Authorization") != "Bearer "+valid {
			answer(w, apierrors.NewUnauthorized("no"))
			return
		}
		_, _ = io.WriteString(w, `{"apiVersion":"example.com/v1","kind":"ThingList","items":[]}`)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	given := &rest.Config{Host: server.URL, BearerToken: "older", BearerTokenFile: file}
	client, err := dynamic.NewForConfig(ReloadTokenFile(given))
	if err != nil {
		t.Fatal(err)
	}
	list := func() error {
		_, err := client.Resource(things).List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := list(); err != nil {
		t.Fatal(err)
	}
	valid = "new"
	write(valid)
	if err := list(); !apierrors.IsUnauthorized(err) {
		t.Fatal(err)
	}
	if err := list(); err != nil || asked != 3 {
		t.Errorf("%d requests, %v", asked, err)
	}
	if given.BearerTokenFile != file {
		t.Error("the caller's configuration was changed")
	}
}

func TestTrimKeepsWhatRestores(t *testing.T) {
	const applied = "kubectl.kubernetes.io/last-applied-configuration"
	thing := func() map[string]any {
		return map[string]any{"metadata": map[string]any{
			"name": "a", "managedFields": []any{}, "annotations": map[string]any{applied: "{}", "a": "b"},
		}}
	}
	u := &unstructured.Unstructured{Object: thing()}
	Trim(u)
	if u.GetAnnotations()[applied] == "" || u.GetManagedFields() != nil { // fails on the commit before: an undo lost the annotation
		t.Errorf("Trim: %v", u.Object)
	}
}
