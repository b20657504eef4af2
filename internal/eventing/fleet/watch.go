package fleet

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters/wire"
)

// watchRequest asks the others to tell of the deliveries of an event, for watchFor.
type watchRequest struct {
	Watch  string `json:"watch"`
	Source string `json:"source"`
	ID     string `json:"id"`
}

// watchedDelivery is a delivery that another process has made.
type watchedDelivery struct {
	Watch    string        `json:"watch"`
	Delivery wire.Delivery `json:"delivery"`
}

// Watch returns the deliveries of an event by all processes from now on, until stop is called.
func (f *Fleet) Watch(source, id string) (seen <-chan wire.Delivery, stop func()) {
	own, stopOwn := f.watches.Watch(source, id)
	all := make(chan wire.Delivery, cap(own))
	request := watchRequest{Watch: uuid.NewString(), Source: source, ID: id}
	f.mu.Lock()
	f.watched[request.Watch] = all
	f.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	// Those that have not heard of it in time tell of what they deliver later.
	_, _ = f.peers.Ask(ctx, aboutWatch, request)
	go func() {
		again := time.NewTicker(watchFor / 3)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case d := <-own:
				offer(all, d)
			case <-again.C:
				f.tell(aboutWatch, request)
			}
		}
	}()
	return all, sync.OnceFunc(func() {
		cancel()
		stopOwn()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watched, request.Watch)
	})
}

// offer is for somebody who may not read any more.
func offer(to chan<- wire.Delivery, d wire.Delivery) {
	select {
	case to <- d:
	default:
	}
}

// watch begins, or goes on, to tell another process of an event.
func (f *Fleet) watch(_ string, content []byte) error {
	var request watchRequest
	if err := json.Unmarshal(content, &request); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if renew := f.watching[request.Watch]; renew != nil {
		renew()
		return nil
	}
	seen, stop := f.watches.Watch(request.Source, request.ID)
	end := time.NewTimer(watchFor)
	f.watching[request.Watch] = func() { end.Reset(watchFor) }
	go func() {
		for {
			select {
			case d := <-seen:
				f.tell(aboutDelivery, watchedDelivery{request.Watch, d})
			case <-end.C:
				stop()
				f.mu.Lock()
				delete(f.watching, request.Watch)
				f.mu.Unlock()
				return
			}
		}
	}()
	return nil
}

// delivered takes a delivery of another process that somebody watches here.
func (f *Fleet) delivered(_ string, content []byte) error {
	var is watchedDelivery
	if err := json.Unmarshal(content, &is); err != nil {
		return err
	}
	f.mu.Lock()
	to := f.watched[is.Watch]
	f.mu.Unlock()
	if to != nil {
		offer(to, is.Delivery)
	}
	return nil
}
