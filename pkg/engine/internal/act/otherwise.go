package act

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/redact"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// fieldsNamed is how many fields a message names.
const fieldsNamed = 5

// Fields names fields by their paths, in a sentence.
func Fields(paths []string) string {
	more := ""
	if n := len(paths) - fieldsNamed; n > 0 {
		paths, more = paths[:fieldsNamed], fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(paths, ", ") + more
}

// values are those of fields as they are and as they were to be, as the end of a sentence.
func values(paths []string, is, want *unstructured.Unstructured) (told string) {
	got, sent := redact.Fields(is, paths...), redact.Fields(want, paths...)
	for _, path := range paths[:min(fieldsNamed, len(paths))] {
		if got[path] == sent[path] {
			continue
		}
		told += fmt.Sprintf("; %s is %s", path, cmp.Or(got[path], "no value"))
		if sent[path] != "" {
			told += ", and not " + sent[path]
		}
	}
	return told
}

// storedOtherwise says that the API server has not stored what was sent: a schema drops fields that
// it does not know, and a webhook may change what it likes. What they add is none of that.
func (a *Actor) storedOtherwise(ref migration.Ref, fields []string, is, sent *unstructured.Unstructured) {
	if len(fields) == 0 {
		return
	}
	a.Otherwise.Add(1)
	a.Findings.Tell(migration.Finding{
		ID: "stored-otherwise", Severity: migration.Warning, Object: ref.String(),
		Problem: "the API server stored it otherwise than it was sent: " + Fields(fields) + VerbIs(len(fields)) + " missing or different" + values(fields, is, sent),
		Note:    "The schema of its definition, an admission webhook or a policy does that. Check the object:",
		Command: migration.Kubectl(ref.Namespace, "get", ref.GroupResource().String(), ref.Name, "-o", "yaml"),
	})
}
