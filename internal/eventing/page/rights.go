package page

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/access"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/inspect"
)

const (
	// knownFor is how long an answer of the API server counts: a page that asks every two seconds
	// must not ask the API server as often, for each namespace.
	knownFor = 30 * time.Second
	// mostKnown bounds the memory, and asksAtOnce the requests at a time of one person.
	mostKnown  = 20_000
	asksAtOnce = 10
)

// Rights finds out who asks, and what that person may see.
type Rights struct {
	Access *access.Access

	mu    sync.Mutex
	known map[key]answer
}

// key is a question: the hash of a token, or of a user with a right.
type key [sha256.Size]byte

type answer struct {
	at   time.Time
	user authenticationv1.UserInfo
	err  error
}

func keyOf(parts ...any) key {
	raw, err := json.Marshal(parts)
	if err != nil {
		panic(err) // plain values
	}
	return sha256.Sum256(raw)
}

// remembered asks, unless the answer is known.
func (r *Rights) remembered(k key, ask func() answer) answer {
	r.mu.Lock()
	a, ok := r.known[k]
	r.mu.Unlock()
	if ok && time.Since(a.at) < knownFor {
		return a
	}
	at := time.Now()
	a = ask()
	a.at = at
	if refused, ok := errors.AsType[*access.RefusedError](a.err); a.err != nil && (!ok || refused.Status == http.StatusServiceUnavailable) {
		return a // that is no answer
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || len(r.known) >= mostKnown {
		r.known = map[key]answer{}
	}
	r.known[k] = a
	return a
}

func (r *Rights) who(q *http.Request) (authenticationv1.UserInfo, error) {
	token := q.Header.Get("Authorization")
	if token == "" { // a certificate costs no request
		return r.Access.Who(q)
	}
	a := r.remembered(keyOf("token", token), func() answer {
		user, err := r.Access.Who(q)
		return answer{user: user, err: err}
	})
	return a.user, a.err
}

// may tells whether the user has a right. An error says that nobody knows.
func (r *Rights) may(ctx context.Context, user authenticationv1.UserInfo, right access.Right) (bool, error) {
	a := r.remembered(keyOf("right", user.Username, user.UID, user.Groups, user.Extra, right), func() answer {
		return answer{err: r.Access.May(ctx, user, right)}
	})
	if refused, ok := errors.AsType[*access.RefusedError](a.err); ok && refused.Status == http.StatusForbidden {
		return false, nil
	}
	return a.err == nil, a.err
}

// seen is what a user may see of a state.
func (r *Rights) seen(ctx context.Context, user authenticationv1.UserInfo, s *State) (*Seen, error) {
	seen := &Seen{User: user.Username, Namespaces: map[string]bool{}, Eventing: map[string]bool{}}
	subscriptions := access.Right{Verb: "list", Group: inspect.Subscriptions.Group, Resource: inspect.Subscriptions.Resource}
	var err error
	if seen.All, err = r.may(ctx, user, subscriptions); err != nil {
		return nil, err
	}
	if seen.Programs, err = r.may(ctx, user, access.Right{Verb: "get", Group: "apps", Resource: "deployments", Namespace: s.Home.Namespace}); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	group, limited := errgroup.WithContext(ctx)
	group.SetLimit(asksAtOnce)
	ask := func(into map[string]bool, right access.Right) {
		mu.Lock()
		_, asked := into[right.Namespace]
		if !asked {
			into[right.Namespace] = false
		}
		mu.Unlock()
		if asked {
			return
		}
		group.Go(func() error {
			may, err := r.may(limited, user, right)
			mu.Lock()
			defer mu.Unlock()
			into[right.Namespace] = may
			return err
		})
	}
	for i := range s.Eventings {
		ask(seen.Eventing, access.Right{Verb: "get", Group: inspect.Eventings.Group, Resource: inspect.Eventings.Resource, Namespace: s.Eventings[i].Namespace})
	}
	for i := 0; i < len(s.Subscriptions) && !seen.All; i++ {
		subscriptions.Namespace = s.Subscriptions[i].Namespace
		ask(seen.Namespaces, subscriptions)
	}
	return seen, group.Wait()
}
