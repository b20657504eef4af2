package migration

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestLateRestartIsData holds that a restart survives the journal: what it decides
// by is decided by another process.
func TestLateRestartIsData(t *testing.T) {
	orders := refTo("ServiceInstance", "orders")
	want := Change{Verb: Restart, Ref: refTo("Deployment", "broker"), Late: &DeferredRestart{
		Unless: &orders, After: time.Date(2020, 3, 1, 10, 0, 0, 0, time.UTC), Leftovers: &Leftovers{Ref: refTo("Subscription", ""), LabelSelector: "a=b"},
	}}
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Change
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func refTo(kind, name string) Ref {
	return Ref{Resource: Resource{Kind: kind, GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: kind}}, Namespace: "shop", Name: name}
}

// TestReversible: only what was deleted comes back with another UID.
func TestReversible(t *testing.T) {
	for want, changes := range map[Reversible][]Change{
		ReversibleYes:    {{Verb: Create}, {Verb: Patch}, {Verb: Restart}},
		ReversibleNewUID: {{Verb: Delete}, {Verb: Recreate}},
		ReversibleNo:     {{Verb: Delete, Irreversible: true}, {Verb: Patch, Irreversible: true}},
	} {
		for i := range changes {
			if got := changes[i].Reversible(); got != want || !changes[i].Writes() {
				t.Errorf("%s: %s, want %s", changes[i].Verb, got, want)
			}
		}
	}
}

// TestSortFindings: what refuses the plan comes first, and findings of one object stay in the
// order in which they were found.
func TestSortFindings(t *testing.T) {
	p := &Plan{Findings: []Finding{
		{Severity: Info, Object: "a"}, {Severity: Warning, Object: "b", Problem: "2"}, {Severity: Warning, Object: "b", Problem: "1"},
		{Severity: Deferred, Object: "c"}, {Severity: Warning, Object: "a"}, {Severity: Error, Object: "d"},
	}}
	p.SortFindings()
	want := []Finding{
		{Severity: Error, Object: "d"}, {Severity: Deferred, Object: "c"}, {Severity: Warning, Object: "a"},
		{Severity: Warning, Object: "b", Problem: "2"}, {Severity: Warning, Object: "b", Problem: "1"}, {Severity: Info, Object: "a"},
	}
	if diff := cmp.Diff(want, p.Findings); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAdvice(t *testing.T) {
	for _, tc := range []struct {
		f    Finding
		want string
	}{
		{f: Finding{}, want: ""},
		{f: Finding{Command: "true"}, want: "true"},
		{f: Finding{Note: "Wait."}, want: "Wait."},
		{f: Finding{Note: "Check its pods.", Command: "kubectl get pods"}, want: "Check its pods: kubectl get pods"},
	} {
		if got := tc.f.Advice().String(); got != tc.want {
			t.Errorf("%+v: got %q, want %q", tc.f, got, tc.want)
		}
	}
}

// TestCommandLine: a shell reads back each word as it was given.
func TestCommandLine(t *testing.T) {
	words := []string{"", "a", "a b", "it's", "$HOME", "`true`", `{"spec":{"finalizers":[]}}`, "a=b/c:d", "*", "line\nbreak", "é"}
	out, err := exec.Command("bash", "-c", CommandLine(append([]string{"printf", `%s\0`}, words...)...)).Output()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Join(words, "\x00")+"\x00", string(out)); diff != "" {
		t.Error(diff)
	}
}

// TestBuilt: what a change has is not built, and what it has not is.
func TestBuilt(t *testing.T) {
	has, built := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	build := func() *unstructured.Unstructured { return built }
	if got := (&Change{Object: has, Build: build}).Built(); got != has {
		t.Error("it is built, and was there")
	}
	if got := (&Change{Build: build}).Built(); got != built {
		t.Error("it is not built")
	}
	if got := (&Change{}).Built(); got != nil {
		t.Errorf("out of nothing came %v", got)
	}
}
