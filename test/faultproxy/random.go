package faultproxy

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// Kind of a random fault.
type Kind string

const (
	// Conflict refuses a write with 409, reason Conflict.
	Conflict Kind = "conflict"
	// AlreadyExists refuses a create with 409 although there is no such object.
	AlreadyExists Kind = "already-exists"
	// TooManyRequests is 429 with Retry-After.
	TooManyRequests Kind = "too-many-requests"
	// InternalError is 500.
	InternalError Kind = "internal-error"
	// Unavailable is 503 without Retry-After.
	Unavailable Kind = "unavailable"
	// UnavailableRetryAfter is 503 with Retry-After.
	UnavailableRetryAfter Kind = "unavailable-retry-after"
	// Timeout is 504; the request took place nevertheless.
	Timeout Kind = "timeout"
	// ResetBefore resets the connection; the request did not take place.
	ResetBefore Kind = "reset-before"
	// ResetAfter resets the connection; the request did take place.
	ResetAfter Kind = "reset-after"
	// WatchRefused answers 410 to the opening of a watch.
	WatchRefused Kind = "watch-refused"
	// WatchExpired ends a watch with a 410 event, after a few events or a moment.
	WatchExpired Kind = "watch-expired"
	// WatchCut ends a watch in mid-stream without a word.
	WatchCut Kind = "watch-cut"
	// ContinueExpired answers 410 to a list that goes on from a continue token.
	ContinueExpired Kind = "continue-expired"
)

// applies says which requests a fault can befall.
var applies = map[Kind]func(Request) bool{
	Conflict:              Request.Writes,
	AlreadyExists:         func(r Request) bool { return r.Writes() && r.Verb == "create" },
	TooManyRequests:       always,
	InternalError:         always,
	Unavailable:           always,
	UnavailableRetryAfter: always,
	Timeout:               func(r Request) bool { return r.Verb != "watch" },
	ResetBefore:           always,
	ResetAfter:            func(r Request) bool { return r.Verb != "watch" },
	WatchRefused:          isWatch,
	WatchExpired:          isWatch,
	WatchCut:              isWatch,
	ContinueExpired:       func(r Request) bool { return r.Continues },
}

func always(Request) bool    { return true }
func isWatch(r Request) bool { return r.Verb == "watch" }

// Kinds returns all kinds of random faults, in order.
func Kinds() []Kind { return slices.Sorted(maps.Keys(applies)) }

// retryAfter is what kube-apiserver says; the header has no smaller wait.
const retryAfter = 1

// Faults are random faults in a proxy.
type Faults struct {
	kinds []Kind
	rate  float64

	mu       sync.Mutex
	rng      *rand.Rand
	requests int
	counts   map[Kind]int
}

// RandomFaults makes requests fail at the given rate (0.2 is one in five), each
// with one of the kinds that can befall it, or only with those given. The seed
// makes the choice; log it. Requests that run side by side arrive in no fixed
// order, so that a seed gives much the same run again, not exactly the same.
func (p *Proxy) RandomFaults(seed uint64, rate float64, only ...Kind) *Faults {
	f := &Faults{kinds: Kinds(), rate: rate, rng: rand.New(rand.NewPCG(seed, 0)), counts: map[Kind]int{}}
	if len(only) > 0 {
		f.kinds = only
	}
	p.Use(f.hook)
	return f
}

// Total returns how many requests came by and how many of them were failed.
func (f *Faults) Total() (requests, faults int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.counts {
		faults += n
	}
	return f.requests, faults
}

// Counts returns how often each kind of fault was dealt.
func (f *Faults) Counts() map[Kind]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.counts)
}

// String reports the counts: "7 of 40 requests: conflict 3, timeout 4".
func (f *Faults) String() string {
	requests, faults := f.Total()
	counts := f.Counts()
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, counts[k]))
	}
	return fmt.Sprintf("%d of %d requests: %s", faults, requests, strings.Join(parts, ", "))
}

// draw is what chance has decided about one request.
type draw struct {
	kind   Kind
	coin   bool          // a second way to deal the same fault
	events int           // a watch fault comes after so many events,
	after  time.Duration // or so much time
}

func (f *Faults) draw(r Request) (draw, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	if f.rng.Float64() >= f.rate {
		return draw{}, false
	}
	var possible []Kind
	for _, k := range f.kinds {
		if applies[k](r) {
			possible = append(possible, k)
		}
	}
	if len(possible) == 0 {
		return draw{}, false
	}
	d := draw{
		kind:   possible[f.rng.IntN(len(possible))],
		coin:   f.rng.IntN(2) == 0,
		events: f.rng.IntN(5),
		after:  time.Duration(50+f.rng.IntN(450)) * time.Millisecond,
	}
	f.counts[d.kind]++
	return d, true
}

func (f *Faults) hook(_ context.Context, r Request, next Next) (*http.Response, error) {
	d, ok := f.draw(r)
	if !ok {
		return next()
	}
	discard := func() {
		if response, err := next(); err == nil {
			response.Body.Close()
		}
	}
	resource := schema.GroupResource{Group: r.Group, Resource: r.Resource}
	switch d.kind {
	case Conflict:
		return Answer(apierrors.NewConflict(resource, r.Name, fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again")).ErrStatus, -1), nil
	case AlreadyExists:
		return Answer(apierrors.NewAlreadyExists(resource, r.Name).ErrStatus, -1), nil
	case TooManyRequests:
		return Answer(apierrors.NewTooManyRequests("too many requests, please try again later", retryAfter).ErrStatus, retryAfter), nil
	case InternalError:
		return Answer(apierrors.NewInternalError(fmt.Errorf("etcdserver: leader changed")).ErrStatus, -1), nil
	case Unavailable:
		return Answer(apierrors.NewServiceUnavailable("the server is currently unable to handle the request").ErrStatus, -1), nil
	case UnavailableRetryAfter:
		return Answer(apierrors.NewServiceUnavailable("apiserver is shutting down").ErrStatus, retryAfter), nil
	case Timeout:
		discard()
		return Answer(apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0).ErrStatus, -1), nil
	case ResetBefore:
		return nil, ErrReset
	case ResetAfter:
		discard()
		return nil, ErrReset
	case WatchRefused:
		return Answer(expired(d.coin), -1), nil
	case ContinueExpired:
		status := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result.").ErrStatus
		if d.coin {
			// kube-apiserver offers to go on with the rest, inconsistently.
			status.Continue = inconsistent(r.continueToken)
		}
		return Answer(status, -1), nil
	default: // the faults in the stream of a watch
		response, err := next()
		if err != nil || response.StatusCode != http.StatusOK {
			return response, err
		}
		response.Body = breakWatch(response.Body, isProtobuf(response), d)
		return response, nil
	}
}

// expired is either of the two ways in which API servers say 410.
func expired(gone bool) metav1.Status {
	status := apierrors.NewResourceExpired("too old resource version: 1 (2)").ErrStatus
	if gone {
		status.Reason = metav1.StatusReasonGone
	}
	return status
}

// inconsistent turns the continue token of a consistent list into the one
// kube-apiserver hands out when the former has expired; "" if it is not one of
// kube-apiserver's.
func inconsistent(token string) string {
	var t struct {
		APIVersion      string `json:"v"`
		ResourceVersion int64  `json:"rv"`
		StartKey        string `json:"start"`
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || json.Unmarshal(raw, &t) != nil || t.StartKey == "" {
		return ""
	}
	t.ResourceVersion = -1
	raw, err = json.Marshal(t)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// isProtobuf says whether a watch speaks protobuf rather than JSON.
func isProtobuf(response *http.Response) bool {
	t, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	return err == nil && t == runtime.ContentTypeProtobuf
}

// framerOf returns what cuts a watch into its events, and joins them again.
func framerOf(protobuf bool) runtime.Framer {
	mediaType := runtime.ContentTypeJSON
	if protobuf {
		mediaType = runtime.ContentTypeProtobuf
	}
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		panic("client-go has no serializer for " + mediaType)
	}
	return info.StreamSerializer.Framer
}

// errorEvent is the event of a watch that says status.
func errorEvent(status metav1.Status, protobuf bool) ([]byte, error) {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if !protobuf {
		return json.Marshal(map[string]any{"type": watch.Error, "object": status})
	}
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	object, err := runtime.Encode(info.Serializer, &status)
	if err != nil {
		return nil, err
	}
	event := metav1.WatchEvent{Type: string(watch.Error), Object: runtime.RawExtension{Raw: object}}
	return runtime.Encode(info.StreamSerializer.Serializer, &event)
}

// breakWatch passes the events of a watch on until the fault is due.
func breakWatch(stream io.ReadCloser, protobuf bool, d draw) io.ReadCloser {
	framer := framerOf(protobuf)
	events := make(chan []byte)
	stop := make(chan struct{})
	go func() {
		defer close(events)
		frames := framer.NewFrameReader(stream)
		for {
			event, err := readFrame(frames)
			if err != nil {
				return
			}
			select {
			case events <- event:
			case <-stop:
				return
			}
		}
	}()

	r, w := io.Pipe()
	out := framer.NewFrameWriter(w)
	go func() {
		defer stream.Close()
		defer close(stop)
		due := time.NewTimer(d.after)
		defer due.Stop()
	pass:
		for range d.events {
			select {
			case event, ok := <-events:
				if !ok {
					_ = w.Close() // the watch ended by itself
					return
				}
				if _, err := out.Write(event); err != nil {
					return
				}
			case <-due.C:
				break pass
			}
		}
		if d.kind == WatchCut {
			w.CloseWithError(ErrReset)
			return
		}
		last, err := errorEvent(expired(d.coin), protobuf)
		if err == nil {
			_, err = out.Write(last)
		}
		w.CloseWithError(err)
	}()
	return r
}

// readFrame reads one event, of whatever size.
func readFrame(frames io.Reader) ([]byte, error) {
	var event []byte
	buffer := make([]byte, 64<<10)
	for {
		n, err := frames.Read(buffer)
		event = append(event, buffer[:n]...)
		if !errors.Is(err, io.ErrShortBuffer) {
			return event, err
		}
	}
}
