// Package archive makes the archive for a support ticket, without secrets.
package archive

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/redact"
)

// Archive is a tar.gz that is being written.
type Archive struct {
	root string
	gz   *gzip.Writer
	tar  *tar.Writer
	at   time.Time
	// problems are what could not be collected: no reason not to hand over the rest.
	problems []string
}

// New begins an archive; root is the folder that everything is in.
func New(w io.Writer, root string, at time.Time) *Archive {
	gz := gzip.NewWriter(w)
	return &Archive{root: root, gz: gz, tar: tar.NewWriter(gz), at: at}
}

// Text adds a file, without what looks like a secret.
func (a *Archive) Text(name, text string) error { return a.add(name, []byte(redact.Text(text))) }

// JSON adds a value, without what looks like a secret.
func (a *Archive) JSON(name string, value any) error {
	raw, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot encode %s: %w", name, err)
	}
	return a.Text(name, string(raw)+"\n")
}

// Problem notes what could not be collected.
func (a *Archive) Problem(what string, err error) {
	a.problems = append(a.problems, redact.Text(fmt.Sprintf("%s: %v", what, err)))
}

// Missing is what could not be collected, and why.
func (a *Archive) Missing() []string { return slices.Clone(a.problems) }

func (a *Archive) add(name string, content []byte) error {
	header := &tar.Header{Name: path.Join(a.root, name), Mode: 0o600, Size: int64(len(content)), ModTime: a.at, Format: tar.FormatPAX}
	if err := a.tar.WriteHeader(header); err != nil {
		return fmt.Errorf("cannot write %s into the archive: %w", name, err)
	}
	if _, err := a.tar.Write(content); err != nil {
		return fmt.Errorf("cannot write %s into the archive: %w", name, err)
	}
	return nil
}

// Close ends the archive, with a list of what is missing.
func (a *Archive) Close() error {
	list := "Everything was collected.\n"
	if len(a.problems) > 0 {
		list = strings.Join(a.problems, "\n") + "\n"
	}
	return errors.Join(a.Text("missing.txt", list), a.tar.Close(), a.gz.Close())
}

// Objects adds objects as one file of YAML, in the order of their namespaces and names. What looks
// like a secret has to be left out of them before: see redact.Object.
func (a *Archive) Objects(name string, all []*unstructured.Unstructured) error {
	slices.SortFunc(all, func(x, y *unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
	})
	var b strings.Builder
	for _, u := range all {
		raw, err := yaml.Marshal(u.Object)
		if err != nil {
			return fmt.Errorf("cannot encode %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
		}
		b.WriteString("---\n")
		b.Write(raw)
	}
	return a.Text("objects/"+FileName(name)+".yaml", b.String())
}

// FileName makes a name for a file of the name of an object.
func FileName(parts ...string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r) {
			return r
		}
		return '_'
	}, strings.Join(parts, "_"))
}
