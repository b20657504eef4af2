package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// safeguardPackages are those that safeguards.yaml changes.
var safeguardPackages = []string{"./internal/eventing/decide", "./internal/eventing/manager", "./internal/eventing/stream"}

// overlaySafeguards writes what builds programs with the edits of safeguards.yaml in them, and
// prints the names of the safeguards, one a line.
func overlaySafeguards(ctx context.Context, root, dir string, out io.Writer) error {
	const file = "test/mutation/safeguards.yaml"
	pkgs, err := load(ctx, root, safeguardPackages)
	if err != nil {
		return err
	}
	safeguards, err := readReverts(filepath.Join(root, file))
	if err != nil {
		return err
	}
	mutants, err := mutantsOf(safeguards, pkgs)
	if err != nil {
		return fmt.Errorf("the code that a safeguard consists of was edited. Correct %s: %w", file, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if _, err := overlayOf(dir, root, pkgs, mutants); err != nil {
		return err
	}
	for _, s := range safeguards {
		fmt.Fprintln(out, s.Name)
	}
	return nil
}
