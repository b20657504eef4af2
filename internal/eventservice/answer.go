package eventservice

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// Types of errors, for programs (docs/domain.md §3.4). The first five are those of the
// event-service of 1.10 and 1.11.
const (
	typeBadPayload          = "bad_payload_syntax"
	typeTooLarge            = "request_body_too_large"
	typeValidationViolation = "validation_violation"
	typeMissingField        = "missing_field"
	typeInvalidField        = "invalid_field"
	typeInternal            = "internal_server_error"
	typeUnavailable         = "service_unavailable"
	typeOverloaded          = "overloaded"
	typeTimeout             = "timeout"
	typeRefused             = "refused_by_mesh"
)

// retryAfter is when a client should try again if there is no better value: an
// adapter that restarts takes seconds, a burst passes in less.
const retryAfter = 2 * time.Second

// accepted is the answer to an event that was taken. Status and reason are empty
// since 1.11, and were always there.
type accepted struct{ EventID string }

// write sends the answer. Nothing in an id needs an escape.
func (a accepted) write(w http.ResponseWriter) {
	writeRaw(w, http.StatusOK, []byte(`{"event-id":"`+a.EventID+`","status":"","reason":""}`+"\n"))
}

// apiError is the answer to an event that was not taken.
type apiError struct {
	Status   int           `json:"status,omitempty"`
	Type     string        `json:"type,omitempty"`
	Message  string        `json:"message,omitempty"`
	MoreInfo string        `json:"moreInfo,omitempty"`
	Details  []errorDetail `json:"details,omitempty"`

	// retryAfter goes into the header of that name; every 5xx has one.
	retryAfter time.Duration
	// cause is for the log and the metrics only.
	cause string
}

type errorDetail struct {
	Field    string `json:"field,omitempty"`
	Type     string `json:"type,omitempty"`
	Message  string `json:"message,omitempty"`
	MoreInfo string `json:"moreInfo,omitempty"`
}

// routeError is the answer of everything that is not about one event.
type routeError struct {
	Code  int    `json:"code"`
	Error string `json:"error"`
}

func badPayload(moreInfo string) *apiError {
	return &apiError{Status: http.StatusBadRequest, Type: typeBadPayload, Message: "Bad payload syntax", MoreInfo: moreInfo, cause: "bad_payload"}
}

func tooLarge() *apiError {
	return &apiError{
		Status: http.StatusRequestEntityTooLarge, Type: typeTooLarge, Message: "Request body too large",
		MoreInfo: "http: request body too large", cause: "too_large",
	}
}

func missingField(name string) *apiError {
	return violation(name, typeMissingField, "Missing field", "")
}

func invalidField(name, why string) *apiError {
	return violation(name, typeInvalidField, "Invalid field", why)
}

func violation(field, kind, message, moreInfo string) *apiError {
	return &apiError{
		Status: http.StatusBadRequest, Type: typeValidationViolation, Message: message, cause: "invalid",
		Details: []errorDetail{{Field: field, Type: kind, Message: message, MoreInfo: moreInfo}},
	}
}

func overloaded() *apiError {
	return &apiError{
		Status: http.StatusServiceUnavailable, Type: typeOverloaded, Message: "Too many requests at once",
		MoreInfo: notTaken, retryAfter: retryAfter, cause: "overloaded",
	}
}

// bodyTimeout is the answer to a client that does not send what it announced.
func bodyTimeout() *apiError {
	return &apiError{
		Status: http.StatusRequestTimeout, Type: typeTimeout, Message: "The request body did not arrive in time", cause: "slow_client",
	}
}

func internalError() *apiError {
	return &apiError{
		Status: http.StatusInternalServerError, Type: typeInternal, Message: "Internal server error",
		MoreInfo: mayBeTaken, retryAfter: retryAfter, cause: "internal",
	}
}

// write sends an error that is about one event.
func (e *apiError) write(w http.ResponseWriter) {
	if e.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((e.retryAfter+time.Second-1)/time.Second)))
	}
	writeJSON(w, e.Status, e)
}

// writeJSON sends an answer in one piece. What cannot be written has no reader left
// to read it.
func writeJSON(w http.ResponseWriter, status int, body any) {
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
