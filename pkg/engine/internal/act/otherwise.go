package act

import (
	"fmt"
	"strings"

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

// storedOtherwise says that the API server has not stored what was sent: a schema drops fields that
// it does not know, and a webhook may change what it likes. What they add is none of that.
func (a *Actor) storedOtherwise(ref migration.Ref, fields []string) {
	if len(fields) == 0 {
		return
	}
	a.Otherwise.Add(1)
	a.Findings.Tell(migration.Finding{
		ID: "stored-otherwise", Severity: migration.Warning, Object: ref.String(),
		Problem: "the API server stored it otherwise than it was sent: " + Fields(fields) + VerbIs(len(fields)) + " missing or different",
		Note:    "The schema of its definition or an admission webhook does that. Check the object:",
		Command: migration.Kubectl(ref.Namespace, "get", ref.GroupResource().String(), ref.Name, "-o", "yaml"),
	})
}
