package prober_test

import (
	"net/http"
	"sync"
)

// swap is a subscriber that may change.
type swap struct {
	mu sync.Mutex
	to http.Handler
}

func (s *swap) set(to http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = to
}

// ServeHTTP implements http.Handler.
func (s *swap) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	to := s.to
	s.mu.Unlock()
	if to == nil {
		http.Error(w, "nobody is here yet", http.StatusServiceUnavailable)
		return
	}
	to.ServeHTTP(w, r)
}
