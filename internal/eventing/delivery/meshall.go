package delivery

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/health"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/refusal"
)

const (
	// meshTries is how often a sink is asked for one request of the mesh, and firstPause the pause
	// after the first try. The next pause is twice as long.
	meshTries  = 3
	firstPause = 200 * time.Millisecond
)

// serveAll brings an event to each Subscription that wants it, and answers when all have it. A sink
// that does not take it is asked again here, and not by the mesh: that could ask another process,
// which would bring the event to the other sinks once more.
func (r *Receiver) serveAll(ctx context.Context, w http.ResponseWriter, q *http.Request, _ types.NamespacedName, header http.Header, data []byte) {
	if isProbe(q) {
		r.find.Probed(ctx, q.URL.Query().Get(backend.TriggerParameter))
		w.WriteHeader(http.StatusNoContent)
		return
	}
	recipients, err := r.find.Match(header.Get("Ce-Source"), header.Get("Ce-Type"))
	if err != nil {
		r.refusals.Say(r.options.Log, "cannot deliver an event, which the mesh sends to another controller", refusal.Refusal{
			ID: health.ShortID(header.Get("Ce-Id")), Type: header.Get("Ce-Type"), Problem: err.Error(),
		})
		unavailable(w, time.Second)
		return
	}
	e := newMeshEvent(header, data)
	codes := make([]string, len(recipients)) // "" of those that have it
	var all sync.WaitGroup
	for i, to := range recipients {
		all.Go(func() { codes[i] = r.bring(ctx, to, e) })
	}
	all.Wait()
	codes = slices.DeleteFunc(codes, func(code string) bool { return code == "" })
	if len(codes) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.WriteHeader(http.StatusBadRequest)
	_, _ = io.WriteString(w, fmt.Sprintf("%d of %d sinks did not take the event: %s", len(codes), len(recipients), codes[0]))
}

// bring brings an event to the sink of a Subscription, or else to its dead letter sink. It returns
// "" if one of them has it, and otherwise what the event is counted as.
func (r *Receiver) bring(ctx context.Context, to Recipient, e meshEvent) string {
	e.header = maps.Clone(e.header) // a post changes it
	bytes := r.hold(to.Subscription)
	defer r.release(to.Subscription, bytes)
	room := false // in the memory, which an event for many Subscriptions may not have for all at once
	defer func() {
		if room {
			bytes.GivePost(0)
		}
	}()
	last, answered := codeBusy, ""
	pause := firstPause
	for try := range meshTries {
		if try > 0 {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			pause *= 2
		}
		if ctx.Err() != nil {
			break
		}
		if room = room || bytes.TakePost(0); !room {
			continue
		}
		status, code, _ := r.deliver(ctx, to, e)
		switch status {
		case http.StatusNoContent:
			return ""
		case http.StatusBadGateway:
			answered = code
		}
		if code != "" {
			last = code
		}
		if code == codeOpen { // it is left alone for longer than this request
			break
		}
	}
	if !room {
		r.count(to.Subscription, codeBusy)
	}
	if r.giveUp(ctx, to, e, last, answered) {
		return ""
	}
	return last
}

// giveUp brings an event that its sink did not take to the dead letter sink, if there is one and
// the sink was asked, and tells whether that has it.
func (r *Receiver) giveUp(ctx context.Context, to Recipient, e meshEvent, last, answered string) bool {
	letterSink := r.options.letterSinkOf(to.Subscription.Namespace, to.Settings)
	if last == codeOpen && answered == "" { // it was asked, a moment ago
		answered = strconv.Itoa(http.StatusServiceUnavailable)
	}
	if letterSink == nil || answered == "" {
		return false
	}
	return r.postLetter(ctx, to, letterSink, e, answered)
}
