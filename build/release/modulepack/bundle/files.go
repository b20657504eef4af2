package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Files are those of a bundle, by their path in it: "sbom/eventing-manager.spdx.json".
type Files map[string][]byte

// The names of files. That of the ModuleTemplate has the version.
const (
	configFile      = "module-config.yaml"
	releaseMetaFile = "module-release-meta.yaml"
	descriptorFile  = "component-descriptor.yaml"
	constructorFile = "component-constructor.yaml"
	imagesFile      = "images.json"
	scannersFile    = "sec-scanners-config.yaml"
	manifestTar     = "raw-manifest.tar"
	defaultCRTar    = "default-cr.tar"
	lockDir         = "crd-lock/"
	sbomDir         = "sbom/"
	// mostFile is how large a file may be: a manifest has about 100 KiB.
	mostFile = 16 << 20
)

func templateFile(module, version string) string {
	return "moduletemplate-" + module + "-" + version + ".yaml"
}

func sbomFile(program string) string { return sbomDir + program + ".spdx.json" }

// ReadFiles reads a bundle from a directory, with all that is in it.
func ReadFiles(dir string) (Files, error) {
	files := Files{}
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if info, err := d.Info(); err != nil || !info.Mode().IsRegular() || info.Size() > mostFile {
			return errors.Join(fmt.Errorf("cannot read %s: it is no file of at most %d bytes", name, mostFile), err)
		}
		files[name], err = fs.ReadFile(root, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the bundle %s: %w", dir, err)
	}
	return files, nil
}

// Write makes a directory exactly the files: it replaces and removes what was there.
func (f Files) Write(dir string) error {
	// Beside it first: a bundle is there as a whole, or as it was.
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	next, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+"-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(next) }()
	for _, name := range slices.Sorted(maps.Keys(f)) {
		at := filepath.Join(next, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, f[name], 0o644); err != nil {
			return err
		}
	}
	if err := os.Chmod(next, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(next, dir)
}
