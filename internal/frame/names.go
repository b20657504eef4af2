package frame

import (
	"fmt"
	"io"
	"strings"

	"github.com/kyma-project/eventmesh-migration/internal/wording"
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
	return wording.CommandLine(words...)
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
