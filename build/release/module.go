package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/kyma-project/eventmesh-migration/build/release/modulepack/bundle"
)

// moduleFolder has the eventing module: what make module writes into dist/<version>, with the
// images of the version.
const moduleFolder = "dist"

// moduleIs refuses a version that the module does not have: both are published together.
func moduleIs(root, version string) error {
	raw, err := os.ReadFile(filepath.Join(root, "module", "VERSION"))
	if err != nil {
		return fmt.Errorf("cannot read the version of the module: %w", err)
	}
	if is := strings.TrimSpace(string(raw)); is != version {
		return fmt.Errorf("module/VERSION is %q, not %s. Next: write %s into it and commit", is, version, version)
	}
	return nil
}

// addModule writes the module for the images of a layout, and adds its artifact. It returns the
// name of the component, and the digest.
func addModule(ctx context.Context, l *ociLayout, o options, into string) (component, digest string, err error) {
	s, err := bundle.ReadSource(os.DirFS(o.Root))
	if err != nil {
		return "", "", fmt.Errorf("cannot make the module: %w", err)
	}
	programs, err := s.Programs()
	if err != nil {
		return "", "", fmt.Errorf("cannot make the module: %w", err)
	}
	images, err := bundle.LayoutImages(string(l.path), o.Repository, o.Version, programs)
	if err != nil {
		return "", "", fmt.Errorf("cannot make the module: %w", err)
	}
	files, err := bundle.Render(s, images)
	if err != nil {
		return "", "", fmt.Errorf("cannot make the module: %w", err)
	}
	var wrong []error
	for _, f := range bundle.Verify(ctx, files, bundle.Against{Channels: s.Channels, Released: s.Released, Programs: linkedFrom(images)}) {
		wrong = append(wrong, fmt.Errorf("cannot make the module: %s", f))
	}
	if len(wrong) > 0 {
		return "", "", errors.Join(wrong...)
	}
	if err := files.Write(filepath.Join(into, moduleFolder)); err != nil {
		return "", "", err
	}
	for _, name := range applied(files) {
		if err := os.WriteFile(filepath.Join(into, name), files[name], 0o644); err != nil {
			return "", "", err
		}
	}
	made, err := files.Artifact(o.Repository)
	if err != nil {
		return "", "", err
	}
	digest, err = l.add(bundle.Repository(s.Config.Name), ":"+o.Version, made)
	return s.Config.Name, digest, err
}

func linkedFrom(images []bundle.Image) map[string]*debug.BuildInfo {
	all := map[string]*debug.BuildInfo{}
	for _, i := range images {
		all[i.Name] = i.Info
	}
	return all
}

// applied are the files of a module that people give to kubectl. They are beside the folder, too:
// the address of a file that is downloaded from a version has no folder.
func applied(files bundle.Files) []string {
	var names []string
	for name := range files {
		if strings.HasPrefix(name, "eventing-") && path.Ext(name) == ".yaml" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// bundle checks the files of the module: they are valid, they have the images of this version, and
// they are what its artifact has.
func (v *verifier) bundle(dir string, about published) {
	files, err := bundle.ReadFiles(filepath.Join(dir, moduleFolder))
	if err != nil {
		v.found(moduleFolder, err.Error())
		return
	}
	named, err := files.Images()
	if err != nil {
		v.found(moduleFolder, err.Error())
		return
	}
	images, err := bundle.LayoutImages(filepath.Join(dir, ociFolder), about.Repository, about.Version, sorted(named))
	if err != nil {
		v.found(path.Join(moduleFolder, "images.json"), err.Error())
		return
	}
	v.sameImages(path.Join(moduleFolder, "images.json"), about, named)
	for _, f := range bundle.Verify(v.ctx, files, bundle.Against{Programs: linkedFrom(images)}) {
		v.found(path.Join(moduleFolder, f.File), strings.TrimPrefix(f.String(), f.File+": "))
	}
	if len(applied(files)) == 0 {
		v.found(moduleFolder, "it has no file to apply")
	}
	for _, name := range applied(files) {
		if raw, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(raw) != string(files[name]) {
			v.found(name, "it is not "+path.Join(moduleFolder, name))
		}
	}
	artifact, err := files.Artifact(about.Repository)
	if err != nil {
		v.found(moduleFolder, err.Error())
		return
	}
	digest, err := artifact.Digest()
	if err != nil {
		v.found(moduleFolder, err.Error())
		return
	}
	if published := sorted(about.Modules); len(published) != 1 || about.Modules[published[0]] != digest.String() {
		v.found(moduleFolder, fmt.Sprintf("its artifact would be %s, and %s has %v", digest, aboutFile, about.Modules))
	}
}

// component checks the artifact of the module: each image that it names is one of the version.
func (v *verifier) component(e *entries, about published, component string) {
	entry, ok := v.entry(e, bundle.Repository(component), about.Version, about.Modules[component])
	if !ok {
		return
	}
	file := bundle.Repository(component) + ":" + about.Version
	image, err := e.index.Image(entry.Digest)
	if err != nil {
		v.found(file, err.Error())
		return
	}
	references, err := bundle.ArtifactImages(image)
	if err != nil {
		v.found(file, err.Error())
		return
	}
	if len(references) == 0 {
		v.found(file, "it names no image")
	}
	for _, reference := range references {
		program, _, _ := strings.Cut(path.Base(reference), ":")
		v.sameImages(file, about, map[string]string{program: reference})
	}
}

// sameImages compares references, by program, with the images of the version.
func (v *verifier) sameImages(file string, about published, references map[string]string) {
	for _, program := range sorted(references) {
		if want := about.Repository + "/" + program + ":" + about.Version + "@" + about.Images[program]; references[program] != want {
			v.found(file, fmt.Sprintf("image %s is %q, not %q", program, references[program], want))
		}
	}
}
