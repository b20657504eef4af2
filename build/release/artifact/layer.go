// Package artifact makes what is published: layers, images, indexes and other artifacts for OCI
// registries, lists of the modules in a program, and signatures. It needs neither Docker nor root.
// The same input gives the same bytes, on any machine with the same Go: nothing here reads the
// clock, the environment or a random source. No program of cmd/ is linked with it.
package artifact

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// File is one file of a layer or an archive.
type File struct {
	Content []byte
	// Executable gives the mode 0755, otherwise it is 0644.
	Executable bool
}

func (f File) mode() int64 {
	if f.Executable {
		return 0o755
	}
	return 0o644
}

// epoch is the time of each file: the zero of Unix, which every reader of tar and zip files knows.
var epoch = time.Unix(0, 0).UTC()

// Tar returns an archive of files by their path, such as "licenses/LICENSE". Paths are sorted,
// times are the zero of Unix, and the owner is root. The folders of a file come before it, once
// each. It fails on a path that is absolute, empty or leaves the archive.
func Tar(files map[string]File) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	folders := map[string]bool{".": true}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !fs.ValidPath(name) || name == "." {
			return nil, fmt.Errorf("cannot archive %q: not a relative path", name)
		}
		for _, folder := range parents(name) {
			if folders[folder] {
				continue
			}
			folders[folder] = true
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755, ModTime: epoch, Format: tar.FormatPAX}); err != nil {
				return nil, fmt.Errorf("cannot archive %s: %w", folder, err)
			}
		}
		file := files[name]
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: file.mode(), Size: int64(len(file.Content)), ModTime: epoch, Format: tar.FormatPAX}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("cannot archive %s: %w", name, err)
		}
		if _, err := w.Write(file.Content); err != nil {
			return nil, fmt.Errorf("cannot archive %s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// parents returns the folders of a path, the outermost first.
func parents(name string) []string {
	var all []string
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		all = append(all, dir)
	}
	slices.Reverse(all)
	return all
}

// Gzip compresses content. The header has neither a name nor a time.
func Gzip(content []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// zipEpoch is the first time that a zip file can name.
var zipEpoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// Zip returns a zip file of files by their path, sorted, with the first time that the format knows.
func Zip(files map[string]File) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !fs.ValidPath(name) || name == "." {
			return nil, fmt.Errorf("cannot archive %q: not a relative path", name)
		}
		header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: zipEpoch}
		header.SetMode(fs.FileMode(files[name].mode()))
		entry, err := w.CreateHeader(header)
		if err != nil {
			return nil, fmt.Errorf("cannot archive %s: %w", name, err)
		}
		if _, err := entry.Write(files[name].Content); err != nil {
			return nil, fmt.Errorf("cannot archive %s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Layer returns a compressed layer of an OCI image with files by their path, as Tar writes them.
func Layer(files map[string]File) (v1.Layer, error) {
	raw, err := Tar(files)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("cannot make a layer of %s: %w", strings.Join(slices.Sorted(maps.Keys(files)), ", "), err)
	}
	return layer, nil
}
