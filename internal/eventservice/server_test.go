package eventservice

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestPanic: a bug of ours costs one request, which is answered.
func TestPanic(t *testing.T) {
	s := newServer(t, func(*http.Request) (*http.Response, error) { panic("a bug") })
	got := httptest.NewRecorder()
	s.ServeHTTP(got, httptest.NewRequest(http.MethodPost, "/shop/v1/events", strings.NewReader(
		`{"event-type":"a","event-type-version":"v1","event-time":"2018-11-02T22:08:41Z","data":1}`)))
	want := `{"status":500,"type":"internal_server_error","message":"Internal server error",` +
		`"moreInfo":"the event may have been taken: send it again with the same event-id"}` + "\n"
	if got.Code != 500 || got.Header().Get("Retry-After") != "2" || got.Body.String() != want {
		t.Errorf("%d %v %s", got.Code, got.Header(), got.Body)
	}
	if len(s.slots) != 0 || s.bodies.taken.Load() != 0 {
		t.Errorf("%d slots and %d bytes are still taken", len(s.slots), s.bodies.taken.Load())
	}
}

// TestNoCluster: events do not need one.
func TestNoCluster(t *testing.T) {
	s := newServer(t, func(*http.Request) (*http.Response, error) { return nil, errors.New("not asked") })
	got := httptest.NewRecorder()
	s.ServeHTTP(got, httptest.NewRequest(http.MethodGet, "/shop/v1/events/subscribed", nil))
	want := `{"code":500,"error":"cannot tell what is subscribed"}` + "\n"
	if got.Code != 500 || got.Body.String() != want {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

func TestSubscribedBy(t *testing.T) {
	type result struct {
		Source string
		Event  SubscribedEvent
		OK     bool
	}
	for _, tc := range []struct {
		reason, spec string
		want         result
	}{
		{"a Trigger as trigger-sync makes it", "{filter: {attributes: {source: shop, type: order.created, eventtypeversion: v1}}}", result{"shop", SubscribedEvent{"order.created", "v1"}, true}},
		{"more attributes do not matter", "{filter: {attributes: {source: shop, type: a, eventtypeversion: v1, subject: x}}}", result{"shop", SubscribedEvent{"a", "v1"}, true}},
		{"every version of a type", "{filter: {attributes: {source: shop, type: a}}}", result{"shop", SubscribedEvent{"a", ""}, true}},
		{"another source's is that one's", "{filter: {attributes: {source: other, type: a}}}", result{"other", SubscribedEvent{"a", ""}, true}},
		{"without a source it is no Application's", "{filter: {attributes: {type: a}}}", result{"", SubscribedEvent{"a", ""}, false}},
		{"no attributes", "{filter: {}}", result{}},
		{"no filter", "{}", result{}},
		{"a shape from elsewhere", "{filter: {attributes: [a]}}", result{}},
	} {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte("{spec: "+tc.spec+"}"), &obj.Object); err != nil {
			t.Fatal(err)
		}
		source, e, ok := subscribedBy(obj)
		if diff := cmp.Diff(tc.want, result{source, e, ok}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
