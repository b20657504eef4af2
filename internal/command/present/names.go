package present

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Changed are the objects of the changes of a report.
func Changed(r *migration.Report) []string {
	var names []string
	for i := range r.Changes {
		if ch := &r.Changes[i]; ch.Verb != migration.Await {
			group := schema.FromAPIVersionAndKind(ch.APIVersion, ch.Kind).Group
			names = append(names, frame.KubectlName(group, ch.Kind, ch.Namespace, ch.Name))
		}
	}
	return names
}
