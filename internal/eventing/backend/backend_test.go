package backend_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

func TestSubject(t *testing.T) {
	for _, tc := range []struct {
		reason, source, eventType, want string
	}{
		{"plain text stays", "commerce", "order.created.v1", "kyma.commerce.order.created.v1"},
		{"a source is one token", "my.shop", "order.created.v1", "kyma.my=2Eshop.order.created.v1"},
		{"what NATS reads as a wildcard is encoded", "*", ">.*", "kyma.=2A.=3E.=2A"},
		{"what begins an encoding is encoded", "a=2E", "b.c", "kyma.a=3D2E.b.c"},
		{"empty parts stay apart", "", "a..b", "kyma.=.a.=.b"},
		{"a URI", "http://shop/é", "a.b", "kyma.http=3A=2F=2Fshop=2F=C3=A9.a.b"},
	} {
		if got := backend.Subject(tc.source, tc.eventType); got != tc.want {
			t.Errorf("%s: %q", tc.reason, got)
		}
	}
	if got := backend.Filter("", "order.created.v1"); got != "kyma.*.order.created.v1" {
		t.Errorf("the filter of any source: %q", got)
	}
	for _, bad := range []string{"", "kyma.", "kyma.a", "other.a.b", "kyma.a..b", "kyma.a.=2", "kyma.a.=2e", "kyma.a.=41", "kyma.a.*", "kyma.a.b c", "kyma.a.==x"} {
		if source, eventType, err := backend.ParseSubject(bad); err == nil {
			t.Errorf("%q is no subject of ours, but was read as %q and %q", bad, source, eventType)
		}
	}
}

// FuzzSubject: the encoding can be reversed, so two events never share a subject; and NATS accepts
// each subject.
func FuzzSubject(f *testing.F) {
	for _, s := range []string{"", "a", "a.b", ".", "..", "=", "=2E", "*", ">", " ", "é", "\x00", strings.Repeat("x", 512)} {
		f.Add(s, "order.created.v1")
		f.Add("commerce", s)
	}
	f.Fuzz(func(t *testing.T, source, eventType string) {
		subject := backend.Subject(source, eventType)
		gotSource, gotType, err := backend.ParseSubject(subject)
		if err != nil || gotSource != source || gotType != eventType {
			t.Errorf("%q and %q became %q, which is read as %q and %q (%v)", source, eventType, subject, gotSource, gotType, err)
		}
		for part := range strings.SplitSeq(subject, ".") {
			if part == "" || strings.ContainsAny(part, "*> \t\r\n\x00") {
				t.Errorf("%q has a part that NATS does not accept: %q", subject, part)
			}
		}
	})
}

func TestNamesOfOneEvent(t *testing.T) {
	// On f3299ef the type and the data did not count: the second event was dropped.
	same := backend.MessageID("a", "bc", "d.e", []byte("f"))
	for reason, other := range map[string]string{
		"another source": backend.MessageID("ab", "c", "d.e", []byte("f")), "another id": backend.MessageID("a", "b", "d.e", []byte("f")),
		"another type": backend.MessageID("a", "bc", "d.f", []byte("f")), "other data": backend.MessageID("a", "bc", "d.e", []byte("g")),
		"no data": backend.MessageID("a", "bc", "d.e", nil), "a type that ends elsewhere": backend.MessageID("a", "bc", "d.ef", nil),
	} {
		if other == same {
			t.Errorf("%s: two events have one message id", reason)
		}
	}
	if again := backend.MessageID("a", "bc", "d.e", []byte("f")); again != same || len(same) != 64 {
		t.Errorf("the same event has the message ids %q and %q", same, again)
	}
	if got := backend.ConsumerName("shop", "orders"); len(got) != 32 {
		t.Errorf("a consumer is called %q", got)
	}
}

func TestBackends(t *testing.T) {
	full := backend.Backends{
		Epoch: "e1", Serving: backend.Set{operatorv1alpha1.NATS, operatorv1alpha1.EventMesh}, Accept: backend.Set{"nats"},
		NATS: &backend.NATSAddress{URL: "tls://eventing-nats.kyma-system:4222", Stream: backend.Stream, CA: "eventing-nats-ca"},
		Mesh: &backend.MeshAddress{Broker: "eventing", URL: "http://broker"},
	}
	want := map[string]string{
		"epoch": "e1", "serving": "EventMesh,NATS", "accept": "NATS",
		"nats": `{"url":"tls://eventing-nats.kyma-system:4222","stream":"sap","ca":"eventing-nats-ca"}`, "mesh": `{"broker":"eventing","url":"http://broker"}`,
	}
	if diff := cmp.Diff(want, full.Data()); diff != "" {
		t.Errorf("ConfigMap (-want +got):\n%s", diff)
	}
	read, err := backend.ParseBackends(full.Data())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full.Data(), read.Data()); diff != "" {
		t.Errorf("written, read and written again (-want +got):\n%s", diff)
	}
	for reason, data := range map[string]map[string]string{
		"no epoch":           {"serving": "NATS"},
		"a backend of ours?": {"epoch": "e1", "serving": "NATS,Kafka"},
		"another spelling":   {"epoch": "e1", "accept": "nats"},
		"no JSON":            {"epoch": "e1", "nats": "tls://"},
	} {
		if b, err := backend.ParseBackends(data); err == nil {
			t.Errorf("%s: read as %+v", reason, b)
		}
	}
	if _, err := backend.ParseBackends(map[string]string{"serving": "x", "mesh": "y"}); err == nil || !strings.Contains(err.Error(), "epoch") || !strings.Contains(err.Error(), "mesh") {
		t.Errorf("one error hides the others: %v", err)
	}
}

func TestFollows(t *testing.T) {
	b := backend.Backends{Epoch: "e2", Serving: backend.Set{operatorv1alpha1.NATS, operatorv1alpha1.EventMesh}}
	at := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		reason string
		state  backend.ControllerState
		want   bool
	}{
		{"as it is", backend.ControllerState{Epoch: "e2", ObservedServing: backend.Set{operatorv1alpha1.EventMesh, operatorv1alpha1.NATS}, Leader: "pod", MeshRefuses: "a Trigger is gone", At: at}, true},
		{"the same set of an earlier time", backend.ControllerState{Epoch: "e1", ObservedServing: b.Serving, Leader: "pod", At: at}, false},
		{"another set", backend.ControllerState{Epoch: "e2", ObservedServing: backend.Set{operatorv1alpha1.NATS}, Leader: "pod", At: at}, false},
	} {
		read, err := backend.ParseControllerState(tc.state.Data())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.state.Data(), read.Data()); diff != "" {
			t.Errorf("%s (-written +read):\n%s", tc.reason, diff)
		}
		if got := read.Follows(b); got != tc.want {
			t.Errorf("%s: %v", tc.reason, got)
		}
	}
	if (backend.ControllerState{}).Follows(backend.Backends{}) {
		t.Error("a controller that has said nothing follows a ConfigMap that is not there")
	}
}
