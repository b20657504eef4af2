package legacy

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/kyma-project/eventmesh-migration/internal/eventservice/cloudevent"
)

// specVersionV2 is the only version of CloudEvents that /v2/events takes.
const specVersionV2 = "0.3"

// maxAttribute is the limit of 1.10 for event types. What is longer has no
// Trigger, and a header has to carry it.
const maxAttribute = 253

// validVersion is anchored, unlike that of 1.11 (decision 0801).
var validVersion = cloudevent.OnlyOf(func(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' })

// ValidID says whether an id is a UUID as Kyma has them.
func ValidID(id string) bool {
	const form = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
	if len(id) != len(form) {
		return false
	}
	for i := range len(form) {
		if form[i] == '-' && id[i] != '-' || form[i] != '-' && !isHex(id[i]) {
			return false
		}
	}
	return true
}

// publishRequestV1 is the body of POST /{application}/v1/events.
type publishRequestV1 struct {
	EventType        string          `json:"event-type"`
	EventTypeVersion string          `json:"event-type-version"`
	EventID          string          `json:"event-id"`
	EventTime        string          `json:"event-time"`
	Data             json.RawMessage `json:"data"`
}

// scan reads a body as decodeFirst does, false if it cannot.
func (p *publishRequestV1) scan(body []byte) bool {
	return scanInto(body, []field{
		{"event-type", &p.EventType, nil}, {"event-type-version", &p.EventTypeVersion, nil}, {"event-id", &p.EventID, nil},
		{"event-time", &p.EventTime, nil}, {"data", nil, &p.Data},
	}, func(string, []byte) {})
}

// field is a member of a request that is read: as text, or as it was written.
type field struct {
	name string
	text *string
	raw  *json.RawMessage
}

// scanInto reads the fields of a body, and hands all other members to other.
func scanInto(body []byte, fields []field, other func(name string, value []byte)) bool {
	var room [16]member
	members, ok := scanObject(body, room[:0])
	if !ok {
		return false
	}
	for _, m := range members {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == string(m.name) }) // no copy of the name
		switch {
		case i < 0 && slices.ContainsFunc(fields, func(f field) bool { return strings.EqualFold(f.name, string(m.name)) }):
			return false // encoding/json finds members whatever their case
		case i < 0:
			other(string(m.name), m.value)
		case fields[i].raw != nil:
			*fields[i].raw = m.value
		default:
			if *fields[i].text, ok = plainText(m.value); !ok {
				return false
			}
		}
	}
	return true
}

// DecodeV1 checks a body in the order of docs/migration/domain.md §3.4, so that a client with
// two mistakes is told of the same one as before.
func DecodeV1(body []byte) (*cloudevent.Event, *Problem) {
	var req publishRequestV1
	if !req.scan(body) {
		req = publishRequestV1{}
		if err := decodeFirst(body, &req); err != nil {
			return nil, BadPayload(err.Error())
		}
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
		return nil, problem
	}
	if req.EventID == "" {
		req.EventID = uuid.NewString()
	}
	return &cloudevent.Event{
		ID: req.EventID, Type: req.EventType, Version: req.EventTypeVersion, Time: at, Data: validText(req.Data),
	}, nil
}

// publishRequestV2 is the body of POST /{application}/v2/events: an event in the
// JSON of CloudEvents 0.3. 1.10 knew the members that are text here, and refused
// other types; the rest it ignored, whatever it was.
type publishRequestV2 struct {
	ID                  string          `json:"id"`
	Type                string          `json:"type"`
	EventTypeVersion    string          `json:"eventtypeversion"`
	Time                string          `json:"time"`
	SpecVersion         string          `json:"specversion"`
	DataContentEncoding json.RawMessage `json:"datacontentencoding"`
	DataContentType     json.RawMessage `json:"datacontenttype"`
	Subject             json.RawMessage `json:"subject"`
	SchemaURL           json.RawMessage `json:"schemaurl"`
	Data                json.RawMessage `json:"data"`

	// extensions are all members that may be some.
	extensions map[string]json.RawMessage
}

// scan reads a body as decodeFirst does, false if it cannot.
func (p *publishRequestV2) scan(body []byte) bool {
	return scanInto(body, []field{
		{"id", &p.ID, nil}, {"type", &p.Type, nil}, {"eventtypeversion", &p.EventTypeVersion, nil}, {"time", &p.Time, nil}, {"specversion", &p.SpecVersion, nil},
		{"datacontentencoding", nil, &p.DataContentEncoding}, {"datacontenttype", nil, &p.DataContentType},
		{"subject", nil, &p.Subject}, {"schemaurl", nil, &p.SchemaURL}, {"data", nil, &p.Data},
	}, func(name string, value []byte) {
		if !isExtension(name) {
			return
		}
		if p.extensions == nil {
			p.extensions = map[string]json.RawMessage{}
		}
		p.extensions[name] = value
	})
}

// DecodeV2 checks a body as 1.10 did, in its order, and makes a CloudEvent 1.0 of
// it (decision 0801).
func DecodeV2(body []byte) (*cloudevent.Event, *Problem) {
	var req publishRequestV2
	if !req.scan(body) {
		req = publishRequestV2{}
		if err := decodeFirst(body, &req); err != nil {
			return nil, BadPayload(err.Error())
		}
		req.extensions = extensionsV2(body)
	}
	at, noTime := checkTime("time", req.Time)
	problem := cmp.Or(
		checkPresent("id", req.ID),
		checkType("type", req.Type),
		checkVersion(cloudevent.VersionExtension, req.EventTypeVersion),
		noTime,
		checkID("id", req.ID),
		checkSpecVersion(req.SpecVersion),
		checkData(req.Data),
	)
	if problem != nil {
		return nil, problem
	}
	ce := &cloudevent.Event{ID: req.ID, Type: req.Type, Version: req.EventTypeVersion, Time: at}
	if problem := setContentV2(ce, &req); problem != nil {
		return nil, problem
	}
	ce.SetSubject(text(req.Subject))
	ce.SetSchema(text(req.SchemaURL))
	// In an order of their own, so that the same event always loses the same ones if
	// there are too many.
	for _, name := range slices.Sorted(maps.Keys(req.extensions)) {
		if value, ok := scalar(req.extensions[name]); ok {
			ce.SetExtension(name, value)
		}
	}
	return ce, nil
}

// text is the text that a member is, "" if it is something else.
func text(raw json.RawMessage) string {
	var value string
	if len(raw) == 0 || json.Unmarshal(raw, &value) != nil {
		return ""
	}
	return value
}

// MediaType returns the Content-Type that a datacontenttype becomes, "" if it is
// none that may be sent, and whether content of that type is JSON.
//
// A datacontenttype of CloudEvents' own formats must not: to the receiver it says
// that the body is a whole event, or several, and that their attributes count
// instead of those in the header (decision 0801). 1.10 ignored all of them.
func MediaType(said string) (contentType string, isJSON bool) {
	if said == "" || !cloudevent.HeaderValue(said) || strings.Contains(strings.ToLower(said), "application/cloudevents") {
		return "", true
	}
	name, _, err := mime.ParseMediaType(said)
	_, subtype, ok := strings.Cut(name, "/")
	if err != nil || !ok || !ascii(said) {
		return "", true
	}
	return said, subtype == "json" || strings.HasSuffix(subtype, "+json")
}

func ascii(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// setContentV2 sets the content that 0.3 has in "data": JSON, text if the content
// type is no JSON, or base64 if it says so. 1.0 has no datacontentencoding.
func setContentV2(ce *cloudevent.Event, req *publishRequestV2) *Problem {
	ce.Data = validText(req.Data)
	var isJSON bool
	ce.ContentType, isJSON = MediaType(text(req.DataContentType))
	encoded := strings.EqualFold(text(req.DataContentEncoding), "base64")
	if !encoded && (isJSON || ce.Data[0] != '"') {
		return nil
	}
	var content string
	if err := json.Unmarshal(ce.Data, &content); err != nil {
		return InvalidField("data", "datacontentencoding is base64: data must be text")
	}
	if !encoded {
		ce.Data = []byte(content)
		return nil
	}
	var err error
	if ce.Data, err = base64.StdEncoding.DecodeString(content); err != nil {
		return InvalidField("data", "datacontentencoding is base64: "+err.Error())
	}
	if len(ce.Data) == 0 {
		return InvalidField("data", "datacontentencoding is base64: data is empty")
	}
	if isJSON && !json.Valid(ce.Data) {
		// A receiver would fail to decode what is labelled as JSON.
		ce.ContentType = cloudevent.BinaryType
	}
	return nil
}

// isExtension says whether a member is one that 0.3 calls an extension, and that 1.0
// can have.
func isExtension(name string) bool {
	return cloudevent.MayPass(name) && name != "subject" && name != "dataschema"
}

func extensionsV2(body []byte) map[string]json.RawMessage {
	var members map[string]json.RawMessage
	if decodeFirst(body, &members) != nil {
		return nil // it was an object a moment ago
	}
	maps.DeleteFunc(members, func(name string, _ json.RawMessage) bool { return !isExtension(name) })
	return members
}

// scalar is a text, number or truth value as a header has it.
func scalar(raw json.RawMessage) (string, bool) {
	switch raw[0] {
	case '"':
		return text(raw), true
	case '{', '[', 'n':
		return "", false
	}
	return string(raw), true // as it was written
}

func checkPresent(field, value string) *Problem {
	if value == "" {
		return MissingField(field)
	}
	return nil
}

func checkID(field, value string) *Problem {
	if value != "" && !ValidID(value) {
		return InvalidField(field, "")
	}
	return nil
}

func checkSpecVersion(value string) *Problem {
	if value != specVersionV2 {
		return InvalidField("specversion", "this API takes CloudEvents "+specVersionV2)
	}
	return nil
}

func checkType(field, value string) *Problem {
	switch {
	case value == "":
		return MissingField(field)
	case len(value) > maxAttribute:
		return InvalidField(field, "longer than "+strconv.Itoa(maxAttribute)+" characters")
	case !cloudevent.Printable(value):
		return InvalidField(field, "only printable ASCII characters without spaces can be carried")
	}
	return nil
}

func checkVersion(field, value string) *Problem {
	switch {
	case value == "":
		return MissingField(field)
	case !validVersion(value):
		return InvalidField(field, "only letters and digits")
	case len(value) > maxAttribute:
		return InvalidField(field, "longer than "+strconv.Itoa(maxAttribute)+" characters")
	}
	return nil
}

func checkTime(field, value string) (time.Time, *Problem) {
	if value == "" {
		return time.Time{}, MissingField(field)
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return time.Time{}, InvalidField(field, "")
	}
	// An offset can carry the year out of the four digits a time is written with.
	if year := at.UTC().Year(); year < 0 || year > 9999 {
		return time.Time{}, InvalidField(field, "")
	}
	return at, nil
}

func checkData(data json.RawMessage) *Problem {
	if len(data) == 0 || string(data) == "null" || string(data) == `""` {
		return MissingField("data")
	}
	return nil
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

// validText replaces each byte that is no UTF-8, and each half of a surrogate pair, as
// decoding and encoding again did: JSON is UTF-8, and strict receivers refuse the rest. Apart
// from that data stays as it was sent: numbers, too, which 1.11 rounded to what a float64
// holds. data is JSON.
func validText(data []byte) []byte {
	return wholePairs(validUTF8(data))
}

// wholePairs replaces each escape that is half of a surrogate pair.
func wholePairs(data []byte) []byte {
	if !bytes.Contains(data, []byte(`\ud`)) && !bytes.Contains(data, []byte(`\uD`)) {
		return data
	}
	valid := make([]byte, 0, len(data))
	for len(data) > 0 {
		i := bytes.IndexByte(data, '\\')
		if i < 0 || i+1 >= len(data) {
			break
		}
		valid, data = append(valid, data[:i]...), data[i:]
		size := 2 // of this escape
		if unit := escaped(data); unit >= 0 {
			size = 6
			if utf16.IsSurrogate(unit) {
				if utf16.DecodeRune(unit, escaped(data[size:])) == utf8.RuneError {
					valid, data = utf8.AppendRune(valid, utf8.RuneError), data[size:]
					continue
				}
				size = 12
			}
		}
		valid, data = append(valid, data[:size]...), data[size:]
	}
	return append(valid, data...)
}

// escaped is what the escape \uXXXX at the beginning of data stands for, -1 if there is none.
func escaped(data []byte) rune {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return -1
	}
	unit, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(unit)
}

// validUTF8 replaces each byte that is no UTF-8.
func validUTF8(data []byte) []byte {
	if utf8.Valid(data) {
		return data
	}
	valid := make([]byte, 0, len(data)+len(data)/2)
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		valid = utf8.AppendRune(valid, r)
		data = data[size:]
	}
	return valid
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHex(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' }
