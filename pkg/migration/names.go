package migration

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Names are what a program calls what it keeps, and marks, in a cluster. Processes with the same
// names share one lock, and see each other's runs; programs with different ones have nothing in
// common.
type Names struct {
	// Program is the name of the Lease and of the default state namespace, and begins the names of
	// journals, reports and Events: a DNS label of at most 40 characters.
	Program string
	// Domain begins labels and annotations, as in "registry-move.example.com/change": a DNS
	// subdomain, best one that is yours. Default Program.
	Domain string
}

// maxProgram leaves room for what follows in a name.
const maxProgram = 40

// Validate returns what is wrong with the names.
func (n Names) Validate() error {
	if n.Program == "" {
		return errors.New("the program has no name: set Names.Program")
	}
	if problems := validation.IsDNS1123Label(n.Program); len(problems) > 0 || len(n.Program) > maxProgram {
		return fmt.Errorf("the name %q of the program is no DNS label of at most %d characters: %s", n.Program, maxProgram, strings.Join(problems, "; "))
	}
	if problems := validation.IsDNS1123Subdomain(n.domain()); len(problems) > 0 {
		return fmt.Errorf("the domain %q of the program is no DNS subdomain: %s", n.Domain, strings.Join(problems, "; "))
	}
	return nil
}

func (n Names) domain() string { return cmp.Or(n.Domain, n.Program) }

// Key is a label or an annotation of the program.
func (n Names) Key(name string) string { return n.domain() + "/" + name }

// Mark is the annotation of every object that a run creates, in the create call itself:
// "<run>/<unit>/<change>". It tells the run's own objects from those of others when the outcome of
// the call is unknown.
func (n Names) Mark() string { return n.Key("change") }
