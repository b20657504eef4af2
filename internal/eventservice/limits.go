package eventservice

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/eventservice/legacy"
)

// bodies reads request bodies into memory that is bounded over all of them. A
// body takes what has arrived of it, not what was announced: a hundred clients
// that send a byte a second take little.
type bodies struct {
	limit int64 // of one body
	room  int64 // of all
	taken atomic.Int64
	freed chan struct{} // a body is released
	steps []int64
}

func newBodies(limit int64) *bodies {
	return &bodies{limit: limit, room: max(bodyRoom, 2*(limit+1)), freed: make(chan struct{}, 1), steps: steps(limit)}
}

// steps are the sizes a buffer grows through; the last is the limit and one byte,
// by which a body that is too large is told from one that just fits.
func steps(limit int64) []int64 {
	var steps []int64
	for size := int64(4 << 10); size < limit+1; size *= 4 {
		steps = append(steps, size)
	}
	return append(steps, limit+1)
}

// body is one request's, released when it is answered.
type body struct {
	of    *bodies
	size  int64
	bytes []byte
}

func (b *body) release() {
	b.of.taken.Add(-b.size)
	b.size, b.bytes = 0, nil
	select {
	case b.of.freed <- struct{}{}:
	default:
	}
}

// grow gives the body room for size bytes.
func (b *body) grow(size int64) bool {
	if b.of.taken.Add(size-b.size) > b.of.room {
		b.of.taken.Add(b.size - size)
		return false
	}
	grown := make([]byte, len(b.bytes), size)
	copy(grown, b.bytes)
	b.bytes, b.size = grown, size
	return true
}

// growOrWait is grow at the cost of who takes long to send a body: it gives way to one
// that comes at once.
func (b *body) growOrWait(size int64, free func() bool) bool {
	const tries = 10
	for range tries {
		if b.grow(size) {
			return true
		}
		if !free() {
			return false
		}
		select {
		case <-b.of.freed:
		case <-time.After(leaveTime):
		}
	}
	return b.grow(size)
}

// read reads a whole body. free frees memory of another one, if it can. The error is
// one for the client.
func (b *bodies) read(r *http.Request, free func() bool) (*body, *legacy.Problem) {
	out := &body{of: b}
	for i, size := range b.steps {
		if i == 0 && r.ContentLength >= 0 {
			size = min(size, r.ContentLength+1) // a small body takes no more; the byte is for the end
		}
		if !out.growOrWait(size, free) {
			out.release()
			return nil, legacy.Overloaded()
		}
		for int64(len(out.bytes)) < size {
			n, err := r.Body.Read(out.bytes[len(out.bytes):size])
			out.bytes = out.bytes[:len(out.bytes)+n]
			switch {
			case int64(len(out.bytes)) > b.limit:
				out.release()
				return nil, legacy.TooLarge()
			case errors.Is(err, io.EOF):
				return out, nil
			case errors.Is(err, os.ErrDeadlineExceeded):
				out.release()
				return nil, legacy.BodyTimeout()
			case err != nil:
				out.release()
				return nil, legacy.BadPayload(err.Error())
			}
		}
	}
	out.release()
	return nil, legacy.TooLarge()
}
