package legacy

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// member is one of an object; both are pieces of the body.
type member struct{ name, value []byte }

// maxMembers is how many scanObject reads.
const maxMembers = 64

// scanObject reads the first JSON value of body, if it is an object such as nearly every client
// writes. It takes a fraction of the time of encoding/json, and no memory for a second copy of the
// content. false means that encoding/json has to read the body: it is no JSON, or two readers might
// understand it in two ways (members twice, escaped names). FuzzScan holds the two together.
func scanObject(body []byte, into []member) ([]member, bool) {
	d := jsontext.NewDecoder(bytes.NewBuffer(body))
	if token, err := d.ReadToken(); err != nil || token.Kind() != jsontext.KindBeginObject {
		return nil, false
	}
	for d.PeekKind() != jsontext.KindEndObject {
		name, ok := piece(d, body)
		if !ok || len(into) == maxMembers {
			return nil, false
		}
		value, ok := piece(d, body)
		if !ok {
			return nil, false
		}
		if name, ok = plainBytes(name); !ok {
			return nil, false
		}
		for _, other := range into {
			if bytes.EqualFold(other.name, name) {
				return nil, false
			}
		}
		into = append(into, member{name, value})
	}
	_, err := d.ReadToken()
	return into, err == nil
}

// piece is where the next value is in the body.
func piece(d *jsontext.Decoder, body []byte) ([]byte, bool) {
	value, err := d.ReadValue()
	if err != nil {
		return nil, false
	}
	end := d.InputOffset()
	return body[end-int64(len(value)) : end : end], true
}

// plainText returns the content of a value that is text without escapes, in ASCII.
func plainText(value []byte) (string, bool) {
	text, ok := plainBytes(value)
	return string(text), ok
}

func plainBytes(value []byte) ([]byte, bool) {
	if len(value) < 2 || value[0] != '"' {
		return nil, false
	}
	text := value[1 : len(value)-1]
	for _, c := range text {
		if c == '\\' || c < ' ' || c >= 0x80 {
			return nil, false
		}
	}
	return text, true
}
