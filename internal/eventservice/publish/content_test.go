package publish

import (
	"bufio"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/internal/eventservice/legacy"
)

// told is what a client is told of an event that is refused.
type told struct {
	status int
	field  string
}

func toldOf(p *legacy.Problem) told {
	if p == nil {
		return told{}
	}
	t := told{status: p.Status}
	for _, d := range p.Details {
		t.field = d.Field
	}
	return t
}

// about are the facts of the table "Headers that are about the body" in
// docs/eventing/publisher-proxy.md: what is done with an event in binary mode that has such a
// header. On f3299ef the first four were dropped in silence, and the receiver got something else
// than the client had sent.
var about = []struct {
	header, value string
	trailer       bool
	does          string
}{
	{header: "Content-Encoding", value: "gzip", does: "415"},
	{header: "Content-Transfer-Encoding", value: "base64", does: "415"},
	{header: "Content-Range", value: "bytes 0-9/100", does: "400"},
	{header: "Ce-*", value: "x", trailer: true, does: "400"},
	{header: "Content-*", value: "x", trailer: true, does: "400"},
	{header: "Content-Type", value: "text/plain; charset=iso-8859-1", does: "goes on"},
	{header: "Content-Language", value: "de", does: "not passed on"},
	{header: "Content-Location", value: "/a", does: "not passed on"},
	{header: "Content-Disposition", value: "attachment", does: "not passed on"},
	{header: "Content-MD5", value: "x", does: "not passed on"},
	{header: "Content-Digest", value: "sha-256=:x:", does: "not passed on"},
	{header: "Repr-Digest", value: "sha-256=:x:", does: "not passed on"},
	{header: "Digest", value: "x", does: "not passed on"},
}

func binaryEvent(more ...string) http.Header {
	h := http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"shop"}, "Ce-Type": {"a.b"}, "Content-Type": {"application/json"}}
	for i := 0; i < len(more); i += 2 {
		h.Set(more[i], more[i+1])
	}
	return h
}

// TestHeadersAboutTheBody: no header that changes the meaning of a body is dropped in silence, and
// the page says what becomes of each.
func TestHeadersAboutTheBody(t *testing.T) {
	var facts []string
	for _, fact := range about {
		name, where := fact.header, "header"
		if fact.trailer {
			where = "trailer"
		}
		facts = append(facts, where+" "+name+" "+fact.does)
		var problem *legacy.Problem
		if fact.trailer {
			name = strings.Replace(name, "*", "Id", 1)
			problem = CheckTrailer(http.Header{name: nil})
		} else {
			_, problem = Decode(binaryEvent(name, fact.value), []byte("{}"))
		}
		want := told{}
		switch fact.does {
		case "415":
			want = told{415, strings.ToLower(name)}
		case "400":
			want = told{400, strings.ToLower(name)}
		}
		if got := toldOf(problem); got != want {
			t.Errorf("%s: %+v, want %+v", fact.header, got, want)
		}
	}
	if diff := cmp.Diff(facts, documented(t)); diff != "" {
		t.Errorf("the table of docs/eventing/publisher-proxy.md (-facts +table):\n%s", diff)
	}
	for _, harmless := range [][]string{{"Content-Encoding", "identity"}, {"Content-Encoding", ""}, {"Content-Transfer-Encoding", "8bit"}, {"Content-Encoding", " Identity , identity"}} {
		if _, problem := Decode(binaryEvent(harmless...), []byte("{}")); problem != nil {
			t.Errorf("%q: %+v", harmless, problem)
		}
	}
	if _, problem := Decode(http.Header{"Content-Type": {formats + "+json"}, "Content-Encoding": {"br"}}, []byte("{}")); toldOf(problem) != (told{415, "content-encoding"}) {
		t.Errorf("a structured event: %+v", problem)
	}
	if problem := CheckTrailer(http.Header{"X-Checksum": {"x"}}); problem != nil {
		t.Errorf("another trailer: %+v", problem)
	}
}

// documented reads the table of the page.
func documented(t *testing.T) []string {
	t.Helper()
	f, err := os.Open("../../../docs/eventing/publisher-proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var rows []string
	inside := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "## ") {
			inside = line == "## Headers that are about the body"
		}
		cells := strings.Split(line, "|")
		if !inside || len(cells) < 4 || !strings.Contains(cells[1], "`") {
			continue
		}
		where, does := "header", strings.TrimSpace(cells[2])
		if strings.Contains(cells[1], "trailer") {
			where = "trailer"
		}
		for i, name := range strings.Split(cells[1], "`") {
			if i%2 == 1 {
				rows = append(rows, where+" "+name+" "+does)
			}
		}
	}
	return rows
}

// TestContentTypeTwice: a client may say the content type as an attribute, too, if it says the
// same. On f3299ef it could not.
func TestContentTypeTwice(t *testing.T) {
	for _, tc := range []struct {
		reason, contentType, attribute string
		want                           told
	}{
		{"the same", "application/json", "application/json", told{}},
		{"in another case", "application/json", "Application/JSON", told{}},
		{"with the same parameter", "text/plain; charset=utf-8", "text/plain;charset=utf-8", told{}},
		{"another type", "application/json", "text/plain", told{400, "ce-datacontenttype"}},
		{"another parameter", "text/plain; charset=utf-8", "text/plain", told{400, "ce-datacontenttype"}},
		{"no type", "application/json", "", told{400, "ce-datacontenttype"}},
		{"no Content-Type", "", "application/json", told{400, "ce-datacontenttype"}},
	} {
		header := binaryEvent("Content-Type", tc.contentType, "Ce-Datacontenttype", tc.attribute)
		if tc.contentType == "" {
			delete(header, "Content-Type")
		}
		e, problem := Decode(header, []byte("{}"))
		if got := toldOf(problem); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.reason, got, tc.want)
		}
		if e == nil {
			continue
		}
		e.Attributes(func(name, value string) {
			if name == "datacontenttype" {
				t.Errorf("%s: the attribute goes on as %q", tc.reason, value)
			}
		})
	}
}

// TestTimes: what RFC 3339 allows. On f3299ef letters in lower case and leap seconds were refused.
func TestTimes(t *testing.T) {
	for _, tc := range []struct{ reason, value, want string }{
		{"as it is written", "2018-04-05T17:31:00.50+01:00", "2018-04-05T17:31:00.50+01:00"},
		{"letters in lower case", "2018-04-05t17:31:00z", "2018-04-05T17:31:00Z"},
		{"one of them", "2018-04-05t17:31:00+01:00", "2018-04-05T17:31:00+01:00"},
		{"a leap second", "2016-12-31T23:59:60Z", "2016-12-31T23:59:59.999999999Z"},
		{"in the middle of it, in lower case", "2015-06-30t23:59:60.5z", "2015-06-30T23:59:59.999999999Z"},
		{"in another zone", "1990-12-31T15:59:60-08:00", "1990-12-31T15:59:59.999999999-08:00"},
		{"no leap second has been there", "2016-12-30T23:59:60Z", ""},
		{"nor there", "2016-12-31T22:59:60Z", ""},
		{"nor in this zone", "2016-12-31T23:59:60+01:00", ""},
		{"a second later", "2016-12-31T23:59:61Z", ""},
		{"no time", "yesterday", ""},
		{"no zone", "2016-12-31T23:59:60", ""},
		{"a blank", "2018-04-05 17:31:00Z", ""},
	} {
		e, problem := Decode(binaryEvent("Ce-Time", tc.value), []byte("{}"))
		got := ""
		if problem == nil {
			got = e.When
		} else if want := (told{400, "ce-time"}); toldOf(problem) != want {
			t.Errorf("%s: %+v", tc.reason, problem)
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
		}
	}
}
