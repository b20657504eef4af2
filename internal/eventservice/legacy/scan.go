package legacy

import (
	"bytes"
	"encoding/binary"
)

// member is one of an object; both are pieces of the body.
type member struct{ name, value []byte }

// maxMembers and maxDepth are what scanObject reads.
const (
	maxMembers = 64
	maxDepth   = 500
)

// scanObject reads the first JSON value of body, if it is an object such as nearly
// every client writes. It takes a fifth of the time of encoding/json, and no memory
// for a second copy of the content. false means that encoding/json has to read the
// body: it is no JSON, or two readers might understand it in two ways (members twice,
// escaped names). FuzzScan holds the two together.
func scanObject(body []byte, into []member) ([]member, bool) {
	i := skipSpace(body, 0)
	if i >= len(body) || body[i] != '{' {
		return nil, false
	}
	if i = skipSpace(body, i+1); i < len(body) && body[i] == '}' {
		return into, true
	}
	for len(into) < maxMembers {
		name, next, ok := plainString(body, i)
		if !ok {
			return nil, false
		}
		if i = skipSpace(body, next); i >= len(body) || body[i] != ':' {
			return nil, false
		}
		begin := skipSpace(body, i+1)
		end, ok := skipValue(body, begin, 0)
		if !ok {
			return nil, false
		}
		for _, other := range into {
			if bytes.EqualFold(other.name, name) {
				return nil, false
			}
		}
		into = append(into, member{name, body[begin:end:end]})
		if i = skipSpace(body, end); i >= len(body) {
			return nil, false
		}
		switch body[i] {
		case '}':
			return into, true
		case ',':
			i = skipSpace(body, i+1)
		default:
			return nil, false
		}
	}
	return nil, false
}

// plainText returns the content of a value that is text without escapes, in ASCII.
func plainText(value []byte) (string, bool) {
	text, end, ok := plainString(value, 0)
	return string(text), ok && end == len(value)
}

// plainString reads a string without escapes, in ASCII, and returns where it ends.
func plainString(b []byte, i int) (content []byte, end int, ok bool) {
	if i >= len(b) || b[i] != '"' {
		return nil, 0, false
	}
	for end = i + 1; end < len(b); end++ {
		switch c := b[end]; {
		case c == '"':
			return b[i+1 : end], end + 1, true
		case c == '\\' || c < ' ' || c >= 0x80:
			return nil, 0, false
		}
	}
	return nil, 0, false
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns where the value at i ends.
func skipValue(b []byte, i, depth int) (int, bool) {
	if i >= len(b) || depth > maxDepth {
		return 0, false
	}
	switch b[i] {
	case '{':
		return skipList(b, i, depth, '}')
	case '[':
		return skipList(b, i, depth, ']')
	case '"':
		return skipString(b, i)
	case 't':
		return skipWord(b, i, "true")
	case 'f':
		return skipWord(b, i, "false")
	case 'n':
		return skipWord(b, i, "null")
	}
	return skipNumber(b, i)
}

// skipList skips an array or an object, of which last is the end.
func skipList(b []byte, i, depth int, last byte) (int, bool) {
	if i = skipSpace(b, i+1); i < len(b) && b[i] == last {
		return i + 1, true
	}
	for {
		var ok bool
		if last == '}' {
			if i >= len(b) || b[i] != '"' {
				return 0, false
			}
			if i, ok = skipString(b, i); !ok {
				return 0, false
			}
			if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
				return 0, false
			}
			i = skipSpace(b, i+1)
		}
		if i, ok = skipValue(b, i, depth+1); !ok {
			return 0, false
		}
		if i = skipSpace(b, i); i >= len(b) {
			return 0, false
		}
		switch b[i] {
		case last:
			return i + 1, true
		case ',':
			i = skipSpace(b, i+1)
		default:
			return 0, false
		}
	}
}

// skipString skips a string that begins at i.
func skipString(b []byte, i int) (int, bool) {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for i++; i < len(b); {
		// Eight bytes at once, unless one of them is a quote, a backslash or a control
		// character.
		for i+8 <= len(b) {
			x := binary.LittleEndian.Uint64(b[i:])
			quote, escape := x^(ones*'"'), x^(ones*'\\')
			if ((quote-ones)&^quote|(escape-ones)&^escape|(x-ones*' ')&^x)&highs != 0 {
				break
			}
			i += 8
		}
		if i >= len(b) {
			return 0, false
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1, true
		case c < ' ':
			return 0, false
		case c != '\\':
			i++
			continue
		}
		if i+1 >= len(b) {
			return 0, false
		}
		switch b[i+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			i += 2
		case 'u':
			if i+6 > len(b) {
				return 0, false
			}
			for _, c := range b[i+2 : i+6] {
				if !isHex(c) {
					return 0, false
				}
			}
			i += 6
		default:
			return 0, false
		}
	}
	return 0, false
}

func skipWord(b []byte, i int, word string) (int, bool) {
	if end := i + len(word); end <= len(b) && string(b[i:end]) == word {
		return end, true
	}
	return 0, false
}

// skipNumber skips a number; what follows it is for the caller.
func skipNumber(b []byte, i int) (int, bool) {
	digits := func() bool {
		begin := i
		for i < len(b) && isDigit(b[i]) {
			i++
		}
		return i > begin
	}
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if !digits() {
		return 0, false
	}
	if i < len(b) && b[i] == '.' {
		if i++; !digits() {
			return 0, false
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return 0, false
		}
	}
	return i, true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHex(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' }
