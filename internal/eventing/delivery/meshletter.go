package delivery

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/repeats"
)

// errorData has, in base64, the body of the answer that made Knative give an event up. Its source,
// as that of deadLetterDest, is knative.dev/eventing/pkg/kncloudevents/attributes.
const errorData = "Ce-Knativeerrordata"

// serveFunc answers a request of the mesh with an event for a Subscription.
type serveFunc func(ctx context.Context, w http.ResponseWriter, q *http.Request, key types.NamespacedName, header http.Header, data []byte)

// letterOf is the Subscription that a dead letter of the Broker was for, and how it is answered. No
// Subscription if its Trigger leads elsewhere, or Knative does not say where.
func (r *Receiver) letterOf(header http.Header) (types.NamespacedName, serveFunc) {
	u, err := url.Parse(header.Get(deadLetterDest))
	if err != nil {
		return types.NamespacedName{}, r.serveForeignLetter
	}
	if u.Path == backend.EventsPath {
		return types.NamespacedName{}, serveNoLetter
	}
	if key, ok := cutPath(u.Path); ok {
		return key, r.serveLetter
	}
	return types.NamespacedName{}, r.serveForeignLetter
}

// serveNoLetter answers what serveAll has refused, or was not asked for. What could be given up
// was.
func serveNoLetter(_ context.Context, w http.ResponseWriter, _ *http.Request, _ types.NamespacedName, _ http.Header, _ []byte) {
	w.WriteHeader(http.StatusBadRequest)
}

// serveLetter brings an event that its sink did not take to the dead letter sink. Nothing is
// stored: with another answer than 204 the publish fails, and the client has the event. So it is
// where the sink was not asked.
func (r *Receiver) serveLetter(ctx context.Context, w http.ResponseWriter, q *http.Request, key types.NamespacedName, header http.Header, data []byte) {
	settings, err := r.find.Find(ctx, key)
	if err != nil {
		r.notFound(w, key, err)
		return
	}
	letterSink := r.options.letterSinkOf(key.Namespace, settings)
	code, asked := answerIn(q.Header)
	if letterSink == nil || !asked || isProbe(q) || !r.postLetter(ctx, Recipient{key, settings}, letterSink, newMeshEvent(header, data), code) {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// postLetter posts an event that its sink answered with code to the dead letter sink of a
// Subscription, and tells whether that has the event now.
func (r *Receiver) postLetter(ctx context.Context, of Recipient, to *url.URL, e meshEvent, code string) bool {
	sink, err := ParseSink(of.Subscription.Namespace, of.Settings.Sink)
	if err != nil || !r.letter(ctx, of.Subscription, to, letterHeader(e.header, of.Settings.Sink, code), e.data) {
		return false
	}
	r.taken.Note(repeats.EventOf(of.Settings.UID, of.Settings.Sink, e.id)) // its client may repeat it because of another sink
	r.count(of.Subscription, "dead-letter")
	if after := r.target(of.Subscription, of.Settings, sink).health.NotePosted(time.Now()); after > 0 {
		r.options.Changed(of.Subscription, after)
	}
	return true
}

// answerIn is what the sink of a dead letter answered, as in deadLetterCode on NATS. False if the
// sink was not asked.
func answerIn(header http.Header) (code string, ok bool) {
	data, err := base64.StdEncoding.DecodeString(header.Get(errorData))
	switch code := string(data); {
	case err != nil:
		return "", false
	case code == codeOpen: // it was, a moment ago
		return header.Get(deadLetterCode), true
	default:
		return code, code != "" && code != codeBusy && code != codeRefused
	}
}

// serveForeignLetter brings an event that was for a Trigger of somebody else to the dead letter
// sink of the installation, as Knative would.
func (r *Receiver) serveForeignLetter(ctx context.Context, w http.ResponseWriter, q *http.Request, key types.NamespacedName, header http.Header, data []byte) {
	for name, values := range q.Header {
		if strings.HasPrefix(name, knativePrefix+"error") {
			header[name] = values
		}
	}
	if r.options.DeadLetterSink == nil || isProbe(q) || !r.letter(ctx, key, r.options.DeadLetterSink, header, data) {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// letter posts to a dead letter sink, also when the mesh is gone, and tells whether that took the
// event.
func (r *Receiver) letter(ctx context.Context, key types.NamespacedName, to *url.URL, header http.Header, data []byte) bool {
	return r.options.postLetter(context.WithoutCancel(ctx), backend.MeshLetterTimeout, key, to, header, data)
}
