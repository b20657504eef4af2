package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// TestComingFromKyma compares the list of what Kyma's own eventing has with what is here: a field,
// a condition or a request that is said to be here is, one that is said to be missing is not, and
// metrics that are named instead exist.
func TestComingFromKyma(t *testing.T) {
	t.Chdir("../..")
	all, err := readFacts()
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	here := map[string]func(name string) bool{
		"Fields of Subscription":     fieldsOf(t, read("charts/eventing-manager/crds/eventing.kyma-project.io_subscriptions.yaml")),
		"Fields of Eventing":         fieldsOf(t, read("charts/eventing-manager/crds/operator.kyma-project.io_eventings.yaml")),
		"Conditions of Subscription": in(read("docs/eventing/subscriptions.md"), "| `", "` |"),
		"Conditions of Eventing":     in(read("docs/eventing/README.md"), "| `", "` |"),
		"Requests to the publisher":  in(read("docs/eventing/publisher-proxy.md"), "`", "`"),
	}
	documents := read("docs/eventing/metrics.md")
	here["Metrics"] = func(name string) bool {
		return strings.Contains(documents, "`"+name+"`") || strings.Contains(documents, "`"+name+"{")
	}
	metric := regexp.MustCompile("`(eventing_[a-z_]+)`")
	rows := 0
	for _, of := range all {
		for _, row := range of.Rows {
			rows++
			if is := here[of.Of]; is != nil && is(row.Name) == (row.Verdict == "none") {
				// What is had in another way may be there by name, and may be not.
				if row.Verdict != "other" {
					t.Errorf("%s: %s is said to be %q", of.Of, row.Name, row.Verdict)
				}
			}
			for _, named := range metric.FindAllStringSubmatch(row.Ours, -1) {
				if !strings.Contains(documents, "`"+named[1]+"{") && !strings.Contains(documents, "`"+named[1]+"`") {
					t.Errorf("%s: %s: there is no metric %s", of.Of, row.Name, named[1])
				}
			}
		}
	}
	if rows < 80 {
		t.Errorf("the list has %d rows", rows)
	}
}

func in(text, before, behind string) func(string) bool {
	return func(name string) bool { return strings.Contains(text, before+name+behind) }
}

// fieldsOf tells whether a definition has a field, "status.conditions[].type".
func fieldsOf(t *testing.T, raw string) func(string) bool {
	t.Helper()
	var d apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal([]byte(raw), &d); err != nil {
		t.Fatal(err)
	}
	return func(path string) bool {
		at := *d.Spec.Versions[0].Schema.OpenAPIV3Schema
		for name := range strings.SplitSeq(path, ".") {
			name, list := strings.CutSuffix(name, "[]")
			next, ok := at.Properties[name]
			if !ok {
				return false
			}
			if at = next; list {
				at = *next.Items.Schema
			}
		}
		return true
	}
}
