// Package digests reads the image digest of each program, in the format of "docker inspect" or of a
// registry.
package digests

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

var reference = regexp.MustCompile(`^(?:(.+)/)?([^/:@]+)(?::[^/@]+)?@(sha256:[0-9a-f]{64})$`)

// Read returns the digests by the names of programs. Each line of the file is
// <registry/path>/<program>@sha256:<64 hexadecimal digits>, with or without a tag; empty
// lines, and those that begin with #, do not count. An image of another repository, if
// one is given, is an error, and so are two digests of one program.
func Read(file, repository string) (map[string]string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the digests: %w", err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := reference.FindStringSubmatch(line)
		if parts == nil {
			return nil, fmt.Errorf("%s: %q is no registry/path/program@sha256:... of 64 hexadecimal digits", file, line)
		}
		path, program, digest := parts[1], parts[2], parts[3]
		if path != "" && repository != "" && path != repository {
			return nil, fmt.Errorf("%s: %s is not in the repository %s: give -repository %s", file, line, repository, path)
		}
		if former, ok := all[program]; ok && former != digest {
			return nil, fmt.Errorf("%s names two digests for %s: remove one", file, program)
		}
		all[program] = digest
	}
	return all, nil
}

// Complete refuses digests of which one is empty. A program without one would run
// whatever its tag names, next to those that are pinned.
func Complete(file string, digests map[string]string) error {
	for _, program := range slices.Sorted(maps.Keys(digests)) {
		if digests[program] == "" {
			return fmt.Errorf("%s names no digest for %s: add a line such as registry.example/path/%s@sha256:DIGEST", file, program, program)
		}
	}
	return nil
}
