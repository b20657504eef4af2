package directory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

// deleted is when a Subscription was.
var deleted = metav1.Now()

func empty() *Directory {
	return &Directory{wants: map[string][]want{}, types: map[types.NamespacedName][]string{}}
}

func (d *Directory) write(t *testing.T, name, spec string) {
	t.Helper()
	u := &unstructured.Unstructured{}
	text := fmt.Sprintf("{apiVersion: eventing.kyma-project.io/v1alpha2, kind: Subscription, metadata: {namespace: shop, name: %s, uid: %s}, spec: %s}", name, name, spec)
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	u.SetResourceVersion(fmt.Sprint(len(d.types) + 9))
	d.mu.Unlock()
	if strings.Contains(spec, "deleted") {
		u.SetDeletionTimestamp(&deleted)
	}
	d.set(types.NamespacedName{Namespace: "shop", Name: name}, u)
}

func (d *Directory) who(source, eventType string) string {
	var names []string
	for _, r := range d.Match(source, eventType) {
		names = append(names, r.Subscription.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// TestMatch follows who wants an event while Subscriptions come, change and go.
func TestMatch(t *testing.T) {
	const sink = `sink: "http://sink.shop.svc.cluster.local", `
	d := empty()
	for _, step := range []struct {
		reason, name, spec string
		want               map[string]string // by "source type"
	}{
		{"one of a source", "a", "{" + sink + "source: commerce, types: [x.v1, y.v1]}", map[string]string{"commerce x.v1": "a", "commerce y.v1": "a", "other x.v1": "", "commerce z.v1": ""}},
		{"another one of the same type", "b", "{" + sink + "source: commerce, types: [x.v1]}", map[string]string{"commerce x.v1": "a b", "commerce y.v1": "a"}},
		{"one of another source", "c", "{" + sink + "source: other, types: [x.v1]}", map[string]string{"commerce x.v1": "a b", "other x.v1": "c"}},
		{"exact: the source is in the type", "d", "{" + sink + "typeMatching: exact, source: ignored, types: [commerce.x.v1, other.x.v1]}", map[string]string{"commerce x.v1": "a b d", "other x.v1": "c d", "third x.v1": ""}},
		{"exact: any source", "e", "{" + sink + "typeMatching: exact, types: [sap.kyma.custom.commerce.x.v1]}", map[string]string{"kyma sap.kyma.custom.commerce.x.v1": "e", "third sap.kyma.custom.commerce.x.v1": "e"}},
		{"a type goes", "a", "{" + sink + "source: commerce, types: [y.v1]}", map[string]string{"commerce x.v1": "b d", "commerce y.v1": "a"}},
		{"a spec with errors", "a", "{sink: nowhere, source: commerce, types: [y.v1]}", map[string]string{"commerce y.v1": ""}},
		{"a spec that cannot be read", "b", "{types: 1}", map[string]string{"commerce x.v1": "d"}},
		{"one that is being deleted", "d", "{" + sink + "typeMatching: exact, types: [commerce.x.v1], deleted: true}", map[string]string{"commerce x.v1": "", "other x.v1": "c"}},
	} {
		d.write(t, step.name, step.spec)
		got := map[string]string{}
		for event := range step.want {
			source, eventType, _ := strings.Cut(event, " ")
			got[event] = d.who(source, eventType)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.reason, diff)
		}
	}
	if d.Newest() != "14" {
		t.Errorf("the newest version is %q", d.Newest())
	}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		d.set(types.NamespacedName{Namespace: "shop", Name: name}, nil)
	}
	if len(d.wants) > 0 || len(d.types) > 0 {
		t.Errorf("when all are gone, %v and %v are kept", d.wants, d.types)
	}
}

// TestMatchIsThatOfNATS: an event is brought to the Subscriptions whose subjects of NATS it has,
// and to each once.
func TestMatchIsThatOfNATS(t *testing.T) {
	sources, eventTypes := []string{"a", "b", "a.b", "kyma"}, []string{"b.x.v1", "a.x.v1", "kyma.b.x.v1", "sap.kyma.custom.a.x.v1"}
	random, valid := rand.New(rand.NewPCG(1, 2)), 0
	for round := range 2_000 {
		d, filters := empty(), map[string][]string{}
		for i := range 1 + random.IntN(4) {
			name, exact := fmt.Sprintf("s%d", i), random.IntN(2) == 0
			source := sources[random.IntN(len(sources))]
			var wanted []string
			for range 1 + random.IntN(3) {
				if of := eventTypes[random.IntN(len(eventTypes))]; !slices.Contains(wanted, of) {
					wanted = append(wanted, of)
					filters[name] = append(filters[name], backend.Filter(backend.Matched(exact, source, of)))
				}
			}
			matching := map[bool]string{true: "exact", false: "standard"}[exact]
			d.write(t, name, fmt.Sprintf(`{sink: "http://sink.shop.svc.cluster.local", typeMatching: %s, source: %s, types: [%s]}`, matching, source, strings.Join(wanted, ", ")))
			if d.types[types.NamespacedName{Namespace: "shop", Name: name}] == nil { // its spec has errors
				delete(filters, name)
			} else {
				valid++
			}
		}
		for _, source := range sources {
			for _, eventType := range append(eventTypes, "x.v1") {
				var want []string
				for name, of := range filters {
					if slices.ContainsFunc(of, func(f string) bool {
						return f == backend.Subject(source, eventType) || f == backend.Filter("", eventType)
					}) {
						want = append(want, name)
					}
				}
				slices.Sort(want)
				if got := d.who(source, eventType); got != strings.Join(want, " ") {
					t.Fatalf("round %d: %s of %s goes to %q, and by the subjects %v to %q", round, eventType, source, got, filters, want)
				}
			}
		}
	}
	if valid < 2_000 {
		t.Errorf("only %d Subscriptions were valid", valid)
	}
}
