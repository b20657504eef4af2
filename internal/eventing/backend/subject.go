package backend

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

const (
	// Stream is the name of the one stream, that of Kyma's own operator.
	Stream = "sap"
	// OpenSubjects are those of the stream while it takes events.
	OpenSubjects = subjectPrefix + ">"
	// ClosedSubjects are those of the stream while it takes none: only the operator publishes to
	// them. NATS refuses a publish to any other subject, however many publishers have not yet heard
	// of it.
	// Consumers keep their filters and go on.
	ClosedSubjects = "kyma-closed.>"
	// Barrier is where the operator publishes to find out that all before it is stored.
	Barrier = "kyma-closed.barrier"

	// DeadLetters is the stream of events that were given up, DeadLetterSubjects what it stores.
	DeadLetters        = "dead-letters"
	DeadLetterSubjects = deadLetterPrefix + ">"

	// retryToken is that of no source, and no type ends with it: = begins the code of a byte.
	retryToken       = "=retry"
	deadLetterPrefix = "dead-letters."
	subjectPrefix    = "kyma."
	// MaxSource is the longest source, in bytes: a subject has to fit into one line of the
	// protocol.
	MaxSource = 512
)

// Subject is where an event of a source and a type is published: kyma.<source>.<type>. The source
// is one token, each part of the type between dots is another one. Two different events never have
// the same subject.
func Subject(source, eventType string) string {
	return subjectPrefix + token(source) + "." + tokens(eventType)
}

// Filter is the subject filter of a consumer. An empty source means any source.
func Filter(source, eventType string) string {
	if source == "" {
		return subjectPrefix + "*." + tokens(eventType)
	}
	return Subject(source, eventType)
}

// ParseSubject returns the source and the type of a subject. An error means that Subject has not
// made it.
func ParseSubject(subject string) (source, eventType string, err error) {
	rest, ok := strings.CutPrefix(subject, subjectPrefix)
	if !ok {
		return "", "", fmt.Errorf("subject %q does not begin with %s", subject, subjectPrefix)
	}
	parts := strings.Split(rest, ".")
	if len(parts) < 2 {
		return "", "", fmt.Errorf("subject %q has no type", subject)
	}
	for i := range parts {
		if parts[i], err = untoken(parts[i]); err != nil {
			return "", "", fmt.Errorf("subject %q: %w", subject, err)
		}
	}
	return parts[0], strings.Join(parts[1:], "."), nil
}

// RetrySubject is where events are stored again that one consumer has to get, and nobody else:
// kyma.=retry.<consumer>.=retry. Only controllers may publish to it.
func RetrySubject(consumer string) string {
	return subjectPrefix + retryToken + "." + consumer + "." + retryToken
}

// IsRetry tells whether a subject is that of RetrySubject.
func IsRetry(subject string) bool {
	return strings.HasPrefix(subject, subjectPrefix+retryToken+".")
}

// DeadLetterSubject is where the events are stored that a Subscription gave up:
// dead-letters.<namespace>.<name>. A namespace has no dots, and a name no other sign of subjects.
func DeadLetterSubject(namespace, name string) string {
	return deadLetterPrefix + namespace + "." + name
}

// DeadLetterFilter is the filter for the dead letters of a Subscription, of all in a namespace if
// it has no name, or of all.
func DeadLetterFilter(namespace, name string) string {
	switch {
	case namespace == "":
		return DeadLetterSubjects
	case name == "":
		return deadLetterPrefix + namespace + ".>"
	default:
		return DeadLetterSubject(namespace, name)
	}
}

// ParseDeadLetterSubject returns the Subscription whose dead letters have this subject.
func ParseDeadLetterSubject(subject string) (namespace, name string, ok bool) {
	rest, ours := strings.CutPrefix(subject, deadLetterPrefix)
	namespace, name, ok = strings.Cut(rest, ".")
	return namespace, name, ours && ok && namespace != "" && name != ""
}

// MessageID is the id by which NATS finds that an event was published before. Two sources may use
// the same id, and a source may use an id again, for an event of another type or with other data:
// that is another event. No source, id or type has a zero byte.
func MessageID(source, id, eventType string, data []byte) string {
	sum := sha256.New()
	_, _ = sum.Write([]byte(source + "\x00" + id + "\x00" + eventType + "\x00"))
	_, _ = sum.Write(data)
	return hex.EncodeToString(sum.Sum(nil))
}

func tokens(eventType string) string {
	var b strings.Builder
	b.Grow(len(eventType))
	for part := range strings.SplitSeq(eventType, ".") {
		if b.Len() > 0 { // no token is empty
			b.WriteByte('.')
		}
		b.WriteString(token(part))
	}
	return b.String()
}

const hexDigits = "0123456789ABCDEF"

// token writes each byte that is not a letter, a digit, - or _ as =XX. An empty token is =.
func token(s string) string {
	if s == "" {
		return "="
	}
	if !strings.ContainsFunc(s, func(r rune) bool { return r > 'z' || !plain(byte(r)) }) {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'=', hexDigits[c>>4], hexDigits[c&15]})
		}
	}
	return b.String()
}

var errToken = errors.New("a part of it is no encoded text")

func untoken(s string) (string, error) {
	switch s {
	case "=":
		return "", nil
	case "":
		return "", errToken
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case plain(c):
			b.WriteByte(c)
		case c == '=' && i+2 < len(s):
			high, low := strings.IndexByte(hexDigits, s[i+1]), strings.IndexByte(hexDigits, s[i+2])
			if high < 0 || low < 0 || plain(byte(high<<4|low)) {
				return "", errToken
			}
			b.WriteByte(byte(high<<4 | low))
			i += 2
		default:
			return "", errToken
		}
	}
	return b.String(), nil
}

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}
