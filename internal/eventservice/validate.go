package eventservice

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
	"github.com/google/uuid"
)

const (
	// specVersionV2 is the only version of CloudEvents that /v2/events takes.
	specVersionV2 = "0.3"
	jsonType      = "application/json"
	// versionExtension and sourceExtension are the extensions by which Triggers
	// select, and which subscribers of 1.11 see.
	versionExtension = "eventtypeversion"
	sourceExtension  = "sourceid"
	// maxAttribute is the limit of 1.10 for event types. What is longer has no
	// Trigger, and a header has to carry it.
	maxAttribute = 253
)

var (
	validID = regexp.MustCompile(`^[a-fA-F0-9]{8}-[a-fA-F0-9]{4}-[a-fA-F0-9]{4}-[a-fA-F0-9]{4}-[a-fA-F0-9]{12}$`).MatchString
	// validVersion is anchored, unlike that of 1.11 (decision 0801).
	validVersion = regexp.MustCompile(`^[a-zA-Z0-9]+$`).MatchString
	// validType is what a header carries unchanged: printable ASCII without spaces.
	validType = regexp.MustCompile(`^[!-~]+$`).MatchString
	// validExtension is a name of CloudEvents 1.0.
	validExtension = regexp.MustCompile(`^[a-z0-9]+$`).MatchString
)

// publishRequestV1 is the body of POST /{application}/v1/events.
type publishRequestV1 struct {
	EventType        string          `json:"event-type"`
	EventTypeVersion string          `json:"event-type-version"`
	EventID          string          `json:"event-id"`
	EventTime        string          `json:"event-time"`
	Data             json.RawMessage `json:"data"`
}

// decodeV1 checks a body in the order of domain.md §3, so that a client with two
// mistakes is told of the same one as before.
func decodeV1(body []byte) (*event.EventContextV1, []byte, *apiError) {
	var req publishRequestV1
	if err := decodeFirst(body, &req); err != nil {
		return nil, nil, badPayload(err.Error())
	}
	at, noTime := checkTime("event-time", req.EventTime)
	problem := cmp.Or(
		checkType("event-type", req.EventType),
		checkVersion("event-type-version", req.EventTypeVersion),
		noTime,
		checkID("event-id", req.EventID),
		checkData(req.Data),
	)
	if problem != nil {
		return nil, nil, problem
	}
	if req.EventID == "" {
		req.EventID = uuid.NewString()
	}
	ce := newContext(req.EventID, req.EventType, req.EventTypeVersion, at)
	return ce, validUTF8(req.Data), nil
}

// publishRequestV2 is the body of POST /{application}/v2/events: an event in the
// JSON of CloudEvents 0.3.
type publishRequestV2 struct {
	ID                  string          `json:"id"`
	Type                string          `json:"type"`
	EventTypeVersion    string          `json:"eventtypeversion"`
	Time                string          `json:"time"`
	SpecVersion         string          `json:"specversion"`
	DataContentEncoding string          `json:"datacontentencoding"`
	DataContentType     string          `json:"datacontenttype"`
	Subject             string          `json:"subject"`
	SchemaURL           string          `json:"schemaurl"`
	Data                json.RawMessage `json:"data"`
}

// decodeV2 checks a body as 1.10 did, in its order, and makes a CloudEvent 1.0 of
// it (decision 0802).
func decodeV2(body []byte) (*event.EventContextV1, []byte, *apiError) {
	var req publishRequestV2
	if err := decodeFirst(body, &req); err != nil {
		return nil, nil, badPayload(err.Error())
	}
	at, noTime := checkTime("time", req.Time)
	problem := cmp.Or(
		checkPresent("id", req.ID),
		checkType("type", req.Type),
		checkVersion(versionExtension, req.EventTypeVersion),
		noTime,
		checkID("id", req.ID),
		checkSpecVersion(req.SpecVersion),
		checkData(req.Data),
	)
	if problem != nil {
		return nil, nil, problem
	}
	data, problem := contentV2(&req)
	if problem != nil {
		return nil, nil, problem
	}
	ce := newContext(req.ID, req.Type, req.EventTypeVersion, at)
	if req.DataContentType != "" && headerValue(req.DataContentType) {
		ce.DataContentType = &req.DataContentType
	}
	if req.Subject != "" && headerValue(req.Subject) {
		ce.Subject = &req.Subject
	}
	setSchema(ce, req.SchemaURL)
	extensionsV2(ce, body)
	return ce, data, nil
}

// contentV2 returns the content that 0.3 has in "data": JSON, text if the content
// type is no JSON, or base64 if it says so. 1.0 has no datacontentencoding.
func contentV2(req *publishRequestV2) ([]byte, *apiError) {
	raw := validUTF8(req.Data)
	encoded := strings.EqualFold(req.DataContentEncoding, "base64")
	isJSON := req.DataContentType == "" || strings.Contains(req.DataContentType, "json")
	if isJSON && !encoded || len(raw) == 0 || raw[0] != '"' {
		return raw, nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, invalidField("data", err.Error())
	}
	if !encoded {
		return []byte(text), nil
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, invalidField("data", "datacontentencoding is base64: "+err.Error())
	}
	return data, nil
}

// extensionsV2 takes over the members that 0.3 calls extensions, as far as 1.0
// can have them.
func extensionsV2(ce *event.EventContextV1, body []byte) {
	var members map[string]json.RawMessage
	if decodeFirst(body, &members) != nil {
		return // it was an object a moment ago
	}
	for name, raw := range members {
		if !mayPass(name) || name == "subject" || name == "dataschema" {
			continue
		}
		var value any
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		if decoder.Decode(&value) != nil {
			continue
		}
		switch v := value.(type) {
		case string:
			setExtension(ce, name, v)
		case bool:
			setExtension(ce, name, strconv.FormatBool(v))
		case json.Number:
			setExtension(ce, name, v.String())
		}
	}
}

func checkPresent(field, value string) *apiError {
	if value == "" {
		return missingField(field)
	}
	return nil
}

func checkID(field, value string) *apiError {
	if value != "" && !validID(value) {
		return invalidField(field, "")
	}
	return nil
}

func checkSpecVersion(value string) *apiError {
	if value != specVersionV2 {
		return invalidField("specversion", "this API takes CloudEvents "+specVersionV2)
	}
	return nil
}

func checkType(field, value string) *apiError {
	switch {
	case value == "":
		return missingField(field)
	case len(value) > maxAttribute:
		return invalidField(field, "longer than "+strconv.Itoa(maxAttribute)+" characters")
	case !validType(value):
		return invalidField(field, "only printable ASCII characters without spaces can be carried")
	}
	return nil
}

func checkVersion(field, value string) *apiError {
	switch {
	case value == "":
		return missingField(field)
	case !validVersion(value):
		return invalidField(field, "only letters and digits")
	case len(value) > maxAttribute:
		return invalidField(field, "longer than "+strconv.Itoa(maxAttribute)+" characters")
	}
	return nil
}

func checkTime(field, value string) (time.Time, *apiError) {
	if value == "" {
		return time.Time{}, missingField(field)
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return time.Time{}, invalidField(field, "")
	}
	// An offset can carry the year out of the four digits a time is written with.
	if year := at.UTC().Year(); year < 0 || year > 9999 {
		return time.Time{}, invalidField(field, "")
	}
	return at, nil
}

func checkData(data json.RawMessage) *apiError {
	if len(data) == 0 || string(data) == "null" || string(data) == `""` {
		return missingField("data")
	}
	return nil
}

func newContext(id, eventType, version string, at time.Time) *event.EventContextV1 {
	contentType := jsonType
	return &event.EventContextV1{
		ID: id, Type: eventType, Time: &types.Timestamp{Time: at}, DataContentType: &contentType,
		Extensions: map[string]any{versionExtension: version},
	}
}

func setExtension(ce *event.EventContextV1, name, value string) {
	if value != "" && headerValue(value) {
		ce.Extensions[name] = value
	}
}

// setSchema takes over what is an absolute URI; 1.0 allows nothing else.
func setSchema(ce *event.EventContextV1, schema string) {
	if u, err := url.Parse(schema); err == nil && u.IsAbs() && headerValue(schema) {
		ce.DataSchema = &types.URI{URL: *u}
	}
}

// headerValue says whether a header carries the value unchanged.
func headerValue(value string) bool {
	for i := range len(value) {
		if value[i] < ' ' || value[i] == 0x7f {
			return false
		}
	}
	return len(value) <= maxExtension && strings.TrimSpace(value) == value
}

// decodeFirst decodes the first JSON value of body, and ignores what follows it,
// as the decoder of 1.10 and 1.11 did.
func decodeFirst(body []byte, into any) error {
	err := json.Unmarshal(body, into)
	var syntax *json.SyntaxError
	if err == nil || !errors.As(err, &syntax) {
		return err
	}
	err = json.NewDecoder(bytes.NewReader(body)).Decode(into)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("unexpected EOF")
	}
	return err
}

// validUTF8 replaces what is no UTF-8, as decoding and encoding again did, for
// JSON is. Apart from that data stays as it was sent: numbers, too, which 1.11
// rounded to what a float64 holds.
func validUTF8(data []byte) []byte {
	if utf8.Valid(data) {
		return data
	}
	return bytes.ToValidUTF8(data, []byte("\uFFFD"))
}
