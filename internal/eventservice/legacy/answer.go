// Package legacy implements the legacy event API without its server: it decodes and checks
// requests, converts them to CloudEvents, and writes the answers (docs/migration/domain.md §3).
package legacy

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// Types of errors, for programs (docs/migration/domain.md §3.4). The first five are those of the
// event-service of 1.10 and 1.11.
const (
	typeBadPayload          = "bad_payload_syntax"
	typeTooLarge            = "request_body_too_large"
	typeValidationViolation = "validation_violation"
	typeMissingField        = "missing_field"
	typeInvalidField        = "invalid_field"
	typeInternal            = "internal_server_error"
	TypeUnavailable         = "service_unavailable"
	TypeOverloaded          = "overloaded"
	TypeTimeout             = "timeout"
	TypeRefused             = "refused_by_mesh"
)

// RetryAfter is when a client is asked to try again where nobody knows better: an
// adapter that restarts takes seconds, a burst passes in less.
const RetryAfter = 2 * time.Second

// WriteAccepted is the answer to an event that was taken. Status and reason are empty
// since 1.11, and were always there. Nothing in an id needs an escape.
func WriteAccepted(w http.ResponseWriter, eventID string) {
	writeRaw(w, http.StatusOK, []byte(`{"event-id":"`+eventID+`","status":"","reason":""}`+"\n"))
}

// Problem is the answer to an event that was not taken.
type Problem struct {
	Status   int           `json:"status,omitempty"`
	Type     string        `json:"type,omitempty"`
	Message  string        `json:"message,omitempty"`
	MoreInfo string        `json:"moreInfo,omitempty"`
	Details  []errorDetail `json:"details,omitempty"`

	// RetryAfter goes into the header of that name; every 5xx has one.
	RetryAfter time.Duration `json:"-"`
	// Cause is for the log and the metrics only.
	Cause string `json:"-"`
}

// Why is the Cause; "" of nil, which is an event that was taken.
func (e *Problem) Why() string {
	if e == nil {
		return ""
	}
	return e.Cause
}

type errorDetail struct {
	Field    string `json:"field,omitempty"`
	Type     string `json:"type,omitempty"`
	Message  string `json:"message,omitempty"`
	MoreInfo string `json:"moreInfo,omitempty"`
}

// RouteError is the answer of everything that is not about one event.
type RouteError struct {
	Code  int    `json:"code"`
	Error string `json:"error"`
}

// BadPayload is the answer to a body that is no JSON of an event.
func BadPayload(moreInfo string) *Problem {
	return &Problem{Status: http.StatusBadRequest, Type: typeBadPayload, Message: "Bad payload syntax", MoreInfo: moreInfo, Cause: "bad_payload"}
}

// TooLarge is the answer to a body beyond the limit.
func TooLarge() *Problem {
	return &Problem{
		Status: http.StatusRequestEntityTooLarge, Type: typeTooLarge, Message: "Request body too large",
		MoreInfo: "http: request body too large", Cause: "too_large",
	}
}

// MissingField is the answer to an event without something that it needs.
func MissingField(name string) *Problem {
	return violation(name, typeMissingField, "Missing field", "")
}

// InvalidField is the answer to an event with something that cannot be. why may be empty.
func InvalidField(name, why string) *Problem {
	return violation(name, typeInvalidField, "Invalid field", why)
}

func violation(field, kind, message, moreInfo string) *Problem {
	return &Problem{
		Status: http.StatusBadRequest, Type: typeValidationViolation, Message: message, Cause: "invalid",
		Details: []errorDetail{{Field: field, Type: kind, Message: message, MoreInfo: moreInfo}},
	}
}

// Overloaded is the answer beyond the limits of memory and concurrency.
func Overloaded() *Problem {
	return &Problem{
		Status: http.StatusServiceUnavailable, Type: TypeOverloaded, Message: "Too many requests at once",
		MoreInfo: NotTaken, RetryAfter: RetryAfter, Cause: "overloaded",
	}
}

// BodyTimeout is the answer to a client that does not send what it announced.
func BodyTimeout() *Problem {
	return &Problem{
		Status: http.StatusRequestTimeout, Type: TypeTimeout, Message: "The request body did not arrive in time", Cause: "slow_client",
	}
}

// InternalError is the answer to a request at which the server failed.
func InternalError() *Problem {
	return &Problem{
		Status: http.StatusInternalServerError, Type: typeInternal, Message: "Internal server error",
		MoreInfo: MayBeTaken, RetryAfter: RetryAfter, Cause: "internal",
	}
}

// Write sends an error that is about one event.
func (e *Problem) Write(w http.ResponseWriter) {
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	}
	WriteJSON(w, e.Status, e)
}

// WriteJSON sends an answer in one piece. What cannot be written has nobody left
// to read it.
func WriteJSON(w http.ResponseWriter, status int, body any) {
	raw, err := json.Marshal(body)
	if err != nil {
		// Structs of strings and numbers: it cannot be. If it ever is, the answer
		// still is JSON.
		status, raw = http.StatusInternalServerError, []byte(`{"code":500,"error":"Internal server error"}`)
	}
	writeRaw(w, status, append(raw, '\n'))
}

// The values of headers that are always the same. net/http does not change them.
var jsonHeader = []string{"application/json"}

func writeRaw(w http.ResponseWriter, status int, raw []byte) {
	header := w.Header()
	header["Content-Type"] = jsonHeader
	header["Content-Length"] = []string{strconv.Itoa(len(raw))}
	w.WriteHeader(status)
	_, _ = w.Write(raw)
}

// What a client is told of its event. With its event-id, a second sending can be
// told from a second event.
const (
	NotTaken   = "the event was not taken: send it again"
	MayBeTaken = "the event may have been taken: send it again with the same event-id"
)
