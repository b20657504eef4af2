package crd_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/build/release/modulepack/crd"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/plan"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stored"
)

// TestWhatIsAcceptedIsPlanned: what the API server accepts, the controller takes, and what it
// refuses, it refuses with the field. The values are put together at random. On f3299ef the API
// server accepted, and the controller refused, for example port 99999, an escape that is none, and
// a source of 512 characters that are more than 512 bytes.
func TestWhatIsAcceptedIsPlanned(t *testing.T) {
	raw, err := os.ReadFile("../../../../charts/eventing-manager/crds/eventing.kyma-project.io_subscriptions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	definition, err := crd.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	validator, err := crd.New(definition, "v1alpha2")
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same values each time
	pieces := []string{"http:", "//", "/", "?", "#", "%", "%zz", "%41", ":", "80", "99999", "a", "é", " ", "\n", "\x7f", ".", "@", "[::1]", "=", "*", ">"}
	text := func(most int) string {
		var b strings.Builder
		for range r.IntN(most + 1) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		return b.String()
	}
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	accepted, refused := 0, 0
	for range 4000 {
		spec := map[string]any{
			"sink":   "http://orders.shop.svc.cluster.local" + pick("", "", ":0", ":80", ":65535", ":65536", ":99999", ":") + pick("", "/", "/"+text(3), text(2)),
			"source": pick("commerce", "", text(5), text(3), strings.Repeat("é", 256), strings.Repeat("é", 257)),
			"types":  []any{pick("a.b", "a.b", "order.created.v1", ".", text(3), "sap.kyma.custom.a.b")},
		}
		if matching := pick("", "standard", "standard", "exact"); matching != "" {
			spec["typeMatching"] = matching
		}
		if r.IntN(3) == 0 {
			spec["config"] = map[string]any{"maxInFlightMessages": pick("1", "1000", "01", "+5", "0", "1001", "", " 7", "1e2", "10\n")}
		}
		if r.IntN(6) == 0 {
			spec["deadLetterSink"] = pick("http://letters.shop.svc.cluster.local", "letters", "") + pick("", ":0", ":80", ":99999") + pick("", text(2), "/"+text(3))
		}
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "eventing.kyma-project.io/v1alpha2", "kind": "Subscription", "metadata": map[string]any{"name": "orders", "namespace": "shop"}, "spec": spec,
		}}
		problems, err := validator.Validate(t.Context(), u)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			if !strings.HasPrefix(p.Field, "spec.") {
				t.Errorf("refused without a field: %v", p)
			}
		}
		if len(problems) > 0 {
			refused++
			continue
		}
		accepted++
		raw, err := json.Marshal(u.Object)
		if err != nil {
			t.Fatal(err)
		}
		var s stored.Subscription
		if err := json.Unmarshal(raw, &s); err != nil || s.Problem != nil {
			t.Errorf("accepted, and cannot be read: %s: %v, %v", raw, err, s.Problem)
			continue
		}
		if _, problems := plan.Of(&s.Subscription); len(problems) > 0 {
			t.Errorf("accepted: %s\nrefused by the controller: %q", raw, problems)
		}
	}
	if accepted < 300 || refused < 300 {
		t.Errorf("%d are accepted, %d refused", accepted, refused)
	}
}
