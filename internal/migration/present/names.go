package present

import (
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// KubectlName is an object as arguments of kubectl: kind.group/name --namespace=namespace.
func KubectlName(group, kind, namespace, name string) string {
	words := []string{strings.ToLower(kind) + "/" + name}
	if group != "" {
		words[0] = strings.ToLower(kind) + "." + group + "/" + name
	}
	if namespace != "" {
		words = append(words, "--namespace="+namespace)
	}
	return migration.CommandLine(words...)
}

// Changed are the objects of the changes of a report.
func Changed(r *migration.Report) []string {
	var names []string
	for i := range r.Changes {
		if ch := &r.Changes[i]; ch.Verb != migration.Await {
			group := schema.FromAPIVersionAndKind(ch.APIVersion, ch.Kind).Group
			names = append(names, KubectlName(group, ch.Kind, ch.Namespace, ch.Name))
		}
	}
	return names
}

// WriteNames writes names, each once, as -o name has them.
func WriteNames(w io.Writer, names []string) error {
	told := map[string]bool{}
	for _, name := range names {
		if told[name] {
			continue
		}
		told[name] = true
		if _, err := fmt.Fprintln(w, name); err != nil {
			return err
		}
	}
	return nil
}
