// Command ocm reads a component with the library of the Open Component Model, and prints what it
// took as JSON. DESCRIPTOR is the component's file; its repository context is what
// lifecycle-manager goes by. What is in the component is read from a registry:
//
//	ocm DESCRIPTOR http://localhost:5000/path
package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"

	"github.com/open-component-model/ocm/pkg/contexts/ocm"
	"github.com/open-component-model/ocm/pkg/contexts/ocm/compdesc"
	"github.com/open-component-model/ocm/pkg/contexts/ocm/cpi"
	"github.com/open-component-model/ocm/pkg/contexts/ocm/repositories/genericocireg"
	"github.com/open-component-model/ocm/pkg/contexts/ocm/repositories/ocireg"
)

// component is what is printed.
type component struct {
	// Registry and Mapping are those of the effective repository context.
	Registry, Mapping string
	Provider          string
	Labels            []string
	// Resources are the digests of what is in the component itself, by name, and "" for images.
	Resources map[string]string
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: ocm DESCRIPTOR REGISTRY")
		os.Exit(2)
	}
	c, err := read(os.Args[1], os.Args[2])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(file, registry string) (*component, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	d, err := compdesc.Decode(raw)
	if err != nil {
		return nil, err
	}
	c := &component{Provider: string(d.Provider.Name), Resources: map[string]string{}}
	for _, l := range d.Labels {
		c.Labels = append(c.Labels, l.Name)
	}
	context := d.GetEffectiveRepositoryContext()
	if context == nil {
		return nil, fmt.Errorf("%s has no effective repository context", file)
	}
	at, err := cpi.DefaultContext().RepositoryTypes().Convert(context)
	if err != nil {
		return nil, err
	}
	generic, ok := at.(*genericocireg.RepositorySpec)
	if !ok {
		return nil, fmt.Errorf("the repository context is a %T", at)
	}
	c.Registry, c.Mapping = generic.Name(), string(generic.ComponentNameMapping)
	if generic.SubPath != "" {
		c.Registry += "/" + generic.SubPath
	}

	repository, err := ocm.DefaultContext().RepositoryForSpec(ocireg.NewRepositorySpec(registry))
	if err != nil {
		return nil, err
	}
	v, err := repository.LookupComponentVersion(d.Name, d.Version)
	if err != nil {
		return nil, err
	}
	for _, r := range v.GetResources() {
		c.Resources[r.Meta().Name] = ""
		access, err := r.Access()
		if err != nil {
			return nil, err
		}
		if access.GetKind() != "localBlob" {
			continue
		}
		method, err := r.AccessMethod()
		if err != nil {
			return nil, err
		}
		content, err := method.Get()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Meta().Name, err)
		}
		c.Resources[r.Meta().Name] = fmt.Sprintf("sha256:%x", sha256.Sum256(content))
	}
	return c, nil
}
