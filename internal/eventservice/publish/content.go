package publish

import (
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/eventservice/legacy"
)

// codings are headers that say how a body is encoded, and the values with which it is not. No
// backend carries the header to the receiver, who would get the encoded bytes for the data.
var codings = []struct {
	name  string
	plain []string
}{
	{"Content-Encoding", []string{"identity"}},
	{"Content-Transfer-Encoding", []string{"7bit", "8bit", "binary", "identity"}}, // of mail; HTTP has none, and some clients send it
}

// checkContent refuses a request with a header that changes what its body means.
// docs/eventing/publisher-proxy.md has all of them.
func checkContent(header http.Header) *legacy.Problem {
	for _, coding := range codings {
		for value := range strings.SplitSeq(strings.Join(header[coding.name], ","), ",") {
			if value = strings.ToLower(strings.TrimSpace(value)); value == "" || slices.Contains(coding.plain, value) {
				continue
			}
			problem := legacy.InvalidField(strings.ToLower(coding.name), "encoded or compressed data is not supported: send it as it is")
			problem.Status, problem.Type, problem.Message = http.StatusUnsupportedMediaType, "unsupported_media_type", "Unsupported content encoding"
			return problem
		}
	}
	if header["Content-Range"] != nil {
		return legacy.InvalidField("content-range", "the body must be the whole event")
	}
	return nil
}

// CheckTrailer refuses what says something of the event after its body: nobody reads it there.
func CheckTrailer(trailer http.Header) *legacy.Problem {
	if len(trailer) == 0 {
		return nil // of nearly all requests
	}
	for _, name := range slices.Sorted(maps.Keys(trailer)) {
		if strings.HasPrefix(name, prefix) || strings.HasPrefix(name, "Content-") {
			return legacy.InvalidField(strings.ToLower(name), "it is in the trailer: send it in the header")
		}
	}
	return nil
}

// sameType says whether two content types are one.
func sameType(a, b string) bool {
	if a == b {
		return true
	}
	aType, aParameters, errA := mime.ParseMediaType(a)
	bType, bParameters, errB := mime.ParseMediaType(b)
	return errA == nil && errB == nil && aType == bType && maps.Equal(aParameters, bParameters)
}

// timestamp checks a time of RFC 3339, and returns it as it was written, but for two forms that are
// valid and that receivers rarely read: the letters in lower case become upper case, and a leap
// second becomes the moment before its end that a clock without leap seconds has.
func timestamp(value string) (string, bool) {
	const letter, second = len("2006-01-02"), len("2006-01-02T15:04:")
	when := value
	if len(when) > letter && when[letter] == 't' {
		when = when[:letter] + "T" + when[letter+1:]
	}
	if zone, ok := strings.CutSuffix(when, "z"); ok {
		when = zone + "Z"
	}
	if _, err := time.Parse(time.RFC3339, when); err == nil {
		return when, true
	}
	if len(when) < second+3 || when[second:second+2] != "60" {
		return "", false
	}
	before, err := time.Parse(time.RFC3339, when[:second]+"59"+when[second+2:])
	if before = before.UTC(); err != nil || before.Hour() != 23 || before.Minute() != 59 {
		return "", false
	}
	if month, day := before.Month(), before.Day(); (month != time.June || day != 30) && (month != time.December || day != 31) {
		return "", false // no leap second is anywhere else
	}
	zone := when[second+strings.IndexAny(when[second:], "Z+-"):]
	return when[:second] + "59.999999999" + zone, true
}
