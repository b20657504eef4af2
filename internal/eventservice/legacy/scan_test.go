package legacy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kyma-project/eventmesh-migration/test/eventservice/seeds"
)

// FuzzScan: what scan reads, encoding/json reads the same way. What it leaves to
// encoding/json is of no interest here.
func FuzzScan(f *testing.F) {
	v1, v2 := seeds.Bodies()
	for _, body := range append(v1, v2...) {
		f.Add([]byte(body))
	}
	for _, data := range []string{
		`-0`, `01`, `-`, `1.`, `1.5e`, `1e+5`, `tru`, `nul`, `"\u12g4"`, `"\u12`, `"12345678\"12345678"`, "\"1234567\n\"", `"éééééééé"`, `[1,]`, `[,]`, `{"a"}`, `{"a":1,}`, `{1:2}`, `[[[]]]`,
		`{"a":{"b":[true,false,null,{}]}}`, ` 1 `, `"\`, `"`,
	} {
		f.Add([]byte(`{"data":` + data + `}`))
		f.Add([]byte(`{"data":` + data))
		f.Add([]byte(`{"x":` + data + `,"data":` + data + `,"id":"1"} x`))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var scanned1, want1 publishRequestV1
		if scanned1.scan(body) {
			if err := decodeFirst(body, &want1); err != nil {
				t.Fatalf("it was read, but encoding/json says: %v", err)
			}
			if diff := cmp.Diff(want1, scanned1, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("v1 (-encoding/json +scan):\n%s", diff)
			}
		}
		var scanned2, want2 publishRequestV2
		if scanned2.scan(body) {
			if err := decodeFirst(body, &want2); err != nil {
				t.Fatalf("v2: it was read, but encoding/json says: %v", err)
			}
			want2.extensions = extensionsV2(body)
			if diff := cmp.Diff(want2, scanned2, cmpopts.EquateEmpty(), cmp.AllowUnexported(publishRequestV2{})); diff != "" {
				t.Errorf("v2 (-encoding/json +scan):\n%s", diff)
			}
		}
	})
}

// TestScan: the bodies that clients send are not left to encoding/json.
func TestScan(t *testing.T) {
	for _, body := range []string{
		`{"event-type":"order.created","event-type-version":"v1","event-id":"31109198-4d69-4ae0-972d-76117f3748c8","event-time":"2018-11-02T22:08:41+00:00","data":{"a":[1,-2.5e3,true,null,"é\n\u00e9"]}}`,
		"{\n  \"event-type\": \"a\",\n  \"data\": \"text\"\n}\n", `{}`, ` { "unknown" : [ ] } `,
	} {
		if !new(publishRequestV1).scan([]byte(body)) {
			t.Errorf("it was left: %s", body)
		}
	}
	if body := `{"type":"a","id":"1","partitionkey":"7","count":3,"data":{},"datacontenttype":"text/plain","subject":"é"}`; !new(publishRequestV2).scan([]byte(body)) {
		t.Errorf("it was left: %s", body)
	}
}
