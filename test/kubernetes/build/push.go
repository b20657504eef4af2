package main

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

type pushOptions struct {
	registry string
	image    string
	binary   string
}

// nobody is who the program in an image runs as: a number, so that Kubernetes can tell that it is
// not root.
const nobody = "65532:65532"

// push puts a static program into an image of nothing else, as its entrypoint, and returns the name
// under which the node pulls it.
func push(ctx context.Context, bin binaries, o pushOptions) (string, error) {
	content, err := os.ReadFile(o.binary)
	if err != nil {
		return "", fmt.Errorf("cannot push image %s: %w", o.image, err)
	}
	if !strings.Contains(o.image, ":") {
		o.image += fmt.Sprintf(":%.6x", sha256.Sum256(content))
	}
	layer, err := os.CreateTemp("", "layer-*.tar")
	if err != nil {
		return "", fmt.Errorf("cannot push image %s: %w", o.image, err)
	}
	defer func() { _ = os.Remove(layer.Name()) }()
	defer layer.Close()
	entrypoint := filepath.Base(o.binary)
	if err := writeLayer(layer, entrypoint, content); err != nil {
		return "", fmt.Errorf("cannot push image %s: %w", o.image, err)
	}
	target := o.registry + "/" + o.image
	for _, args := range [][]string{
		{"append", "--oci-empty-base", "--new_layer", layer.Name(), "--new_tag", target},
		{"mutate", target, "--tag", target, "--entrypoint", "/" + entrypoint, "--user", nobody, "--set-platform", "linux/" + runtime.GOARCH},
	} {
		if _, err := output(ctx, "", bin["crane"], args...); err != nil {
			return "", fmt.Errorf("cannot push image %s: %w", o.image, err)
		}
	}
	return localRegistry + "/" + o.image, nil
}

// writeLayer writes a file system with one program. The same program makes the same layer.
func writeLayer(f *os.File, name string, content []byte) error {
	w := tar.NewWriter(f)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
		return err
	}
	if _, err := w.Write(content); err != nil {
		return err
	}
	return w.Close()
}
