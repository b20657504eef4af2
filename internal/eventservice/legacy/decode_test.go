package legacy

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestValidText: what receivers get of a text that is none is what both of Kyma's sent. On f3299ef
// half of a surrogate pair went on as it was.
func TestValidText(t *testing.T) {
	for _, tc := range []struct{ reason, data, want string }{
		{"plain", `{"a":"b"}`, `{"a":"b"}`},
		{"the first half", `"\ud800"`, "\"\ufffd\""},
		{"the second half, in capitals", `"x\uDFFFy"`, "\"x\ufffdy\""},
		{"a pair stays as it was written", `"\ud83d\ude00"`, `"\ud83d\ude00"`},
		{"the halves in the wrong order", `"\ude00\ud83d"`, "\"\ufffd\ufffd\""},
		{"a half before a pair", `"\ud83d\ud83d\ude00"`, "\"\ufffd\\ud83d\\ude00\""},
		{"a half before another escape", `"\ud83d\n\u0041"`, "\"\ufffd\\n\\u0041\""},
		{"a backslash that is escaped begins nothing", `"\\ud800"`, `"\\ud800"`},
		{"a backslash, then a half", `"\\\ud800"`, "\"\\\\\ufffd\""},
		{"in a name", `{"\ud800":1}`, "{\"\ufffd\":1}"},
		{"no UTF-8, and a half", "\"\xff\\ud800\"", "\"\ufffd\ufffd\""},
		{"what is U+FFFD already", `"\ufffd"`, `"\ufffd"`},
	} {
		got := validText([]byte(tc.data))
		if diff := cmp.Diff(tc.want, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
		var before, after any
		if err := json.Unmarshal([]byte(tc.data), &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(got, &after); err != nil {
			t.Errorf("%s: it is no JSON any more: %v", tc.reason, err)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s: encoding/json reads something else (-before +after):\n%s", tc.reason, diff)
		}
	}
}
