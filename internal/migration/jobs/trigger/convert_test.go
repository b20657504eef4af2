package trigger

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/json"
	dns "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var update = flag.Bool("update", false, "write the golden files anew")

// conversion is one case of the corpus.
type conversion struct {
	Name         string           `json:"name"`
	Reason       string           `json:"reason"`
	Subscription map[string]any   `json:"subscription"`
	Triggers     []map[string]any `json:"triggers"`
}

// became is what a Subscription became.
type became struct {
	Name     string              `json:"name"`
	Creates  map[string]any      `json:"creates,omitempty"`
	Uses     string              `json:"uses,omitempty"`
	Findings []migration.Finding `json:"findings,omitempty"`
}

func corpus(t testing.TB) []conversion {
	t.Helper()
	raw, err := os.ReadFile("testdata/conversions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	object, err := yaml.YAMLToJSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	var all []conversion
	if err := json.Unmarshal(object, &all); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		all[i].Subscription["apiVersion"], all[i].Subscription["kind"] = "eventing.kyma-project.io/v1alpha1", "Subscription"
		for _, trigger := range all[i].Triggers {
			trigger["apiVersion"], trigger["kind"] = "eventing.knative.dev/v1", "Trigger"
		}
	}
	return all
}

// corpusSnapshot is the cluster in which the corpus is decided.
func corpusSnapshot(sub map[string]any, triggers []map[string]any) *snapshot {
	s := &snapshot{
		kinds: assumedKinds(),
		namespaces: map[string]namespace{
			"shop": {}, "crm": {}, "fn": {}, "leaving": {terminating: true}, "left-out": {optedOut: true},
		},
		applications:  map[string]application{"commerce": {}, "my-app.eu": {}, "legacy-1": {}},
		sources:       map[string]*unstructured.Unstructured{"by-hand": {}},
		subscriptions: []*unstructured.Unstructured{{Object: sub}},
		triggers:      map[string][]*existing{},
		brokers:       map[string]*unstructured.Unstructured{},
		links:         map[pair][]*unstructured.Unstructured{},
	}
	for name := range s.namespaces {
		s.brokers[name] = &unstructured.Unstructured{Object: map[string]any{"status": k8sobject.ReadyStatus}}
	}
	for _, trigger := range triggers {
		obj := &unstructured.Unstructured{Object: trigger}
		s.triggers[obj.GetNamespace()] = append(s.triggers[obj.GetNamespace()], existingOf(s.kinds.trigger, obj, nil))
	}
	return s
}

func become(s *snapshot) became {
	d := newDecision(s, New().options)
	d.expand()
	b := became{}
	for _, g := range d.groups {
		if g.trigger == nil {
			b.Creates = g.newTrigger(&s.kinds.trigger).Object
		} else {
			b.Uses = g.trigger.name
		}
	}
	b.Findings = d.plan.Findings
	return b
}

// TestConversions compares what each Subscription of the corpus becomes with
// what somebody has read and found right.
func TestConversions(t *testing.T) {
	cases := corpus(t)
	if len(cases) < 40 {
		t.Errorf("the corpus has %d cases, want 40 at least", len(cases))
	}
	const golden = "testdata/conversions.golden.yaml"
	var got []became
	for _, c := range cases {
		b := become(corpusSnapshot(c.Subscription, c.Triggers))
		b.Name = c.Name
		got = append(got, b)
		if b.Creates != nil {
			for _, problem := range problems(&unstructured.Unstructured{Object: b.Creates}) {
				t.Errorf("%s: the Trigger would be refused: %s", c.Name, problem)
			}
		}
		if b.Creates == nil && b.Uses == "" && len(b.Findings) == 0 {
			t.Errorf("%s: neither a Trigger nor a finding", c.Name)
		}
	}
	raw, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, raw) {
		t.Errorf("conversions (-want +got; -update writes them anew):\n%s", cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(raw), "\n")))
	}
}

// problems are what the API server would refuse. What Knative's webhook would refuse, test/knative
// asks the types of Knative.
func problems(trigger *unstructured.Unstructured) []string {
	all := dns.IsDNS1123Label(trigger.GetName())
	for _, err := range slices.Concat(
		metav1validation.ValidateLabels(trigger.GetLabels(), field.NewPath("labels")),
		validation.ValidateAnnotations(trigger.GetAnnotations(), field.NewPath("annotations")),
	) {
		all = append(all, err.Error())
	}
	return all
}

// FuzzConversion: whatever is stored as a Subscription becomes a Trigger that is
// valid, or is reported; and nothing panics.
func FuzzConversion(f *testing.F) {
	for _, c := range corpus(f) {
		raw, err := json.Marshal(c.Subscription)
		if err != nil {
			f.Fatal(err)
		}
		trigger := []byte("{}")
		if len(c.Triggers) > 0 {
			if trigger, err = json.Marshal(c.Triggers[0]); err != nil {
				f.Fatal(err)
			}
		}
		f.Add(raw, trigger)
	}
	f.Fuzz(func(t *testing.T, raw, there []byte) {
		var sub, other map[string]any
		if json.Unmarshal(raw, &sub) != nil || json.Unmarshal(there, &other) != nil || sub == nil || other == nil {
			t.Skip("no objects")
		}
		obj := &unstructured.Unstructured{Object: sub}
		// The metadata was checked when the object was stored.
		obj.SetNamespace("shop")
		if len(dns.IsDNS1123Subdomain(obj.GetName())) > 0 || len(metav1validation.ValidateLabels(obj.GetLabels(), nil)) > 0 {
			t.Skip("the API server stores no such object")
		}
		trigger := &unstructured.Unstructured{Object: other}
		trigger.SetNamespace("shop")
		if len(dns.IsDNS1123Subdomain(trigger.GetName())) > 0 {
			trigger.SetName("existing") // each object has a name once it is stored
		}
		s := corpusSnapshot(sub, []map[string]any{other})
		b := become(s)
		if b.Creates == nil && b.Uses == "" && len(b.Findings) == 0 {
			t.Fatalf("neither a Trigger nor a finding for %s", raw)
		}
		if b.Creates == nil {
			return
		}
		trigger = &unstructured.Unstructured{Object: b.Creates}
		for _, problem := range problems(trigger) {
			t.Errorf("%s\nbecomes a Trigger that is refused: %s", raw, problem)
		}
		// An existing Trigger is found again, and not created twice.
		s.triggers["shop"] = []*existing{existingOf(s.kinds.trigger, trigger, nil)}
		if again := become(s); again.Uses != trigger.GetName() {
			t.Errorf("%s\nbecomes a Trigger that is not known again: %+v", raw, again)
		}
	})
}

// TestBroker compares Brokers with those of a file, which test/knative compares with those of the
// type of knative.dev/eventing.
func TestBroker(t *testing.T) {
	raw, err := os.ReadFile("testdata/brokers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want []map[string]any
	if err := yaml.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	for _, version := range []string{"v1", "v1beta1"} {
		kind := served(knative.Broker, version, "brokers")
		got = append(got, newBroker(kind, kind.Ref("shop", "default")).Object)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Brokers (-in the file +ours):\n%s", diff)
	}
}
