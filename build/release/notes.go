package main

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// notes returns the text for people: the section of the changelog, and the commits since the
// version before, by folder.
func notes(ctx context.Context, root, version string) (string, error) {
	if err := checkVersion(version); err != nil {
		return "", err
	}
	body, err := section(root, version)
	if err != nil {
		return "", err
	}
	commits := []string{"log", "--reverse", "--no-merges", "--format=%H %s"}
	since := "the first commit"
	if former, err := git(ctx, root, "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^"); err == nil {
		commits, since = append(commits, former+"..HEAD"), former
	}
	log, err := git(ctx, root, commits...)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("# %s\n\n%s\n\n## Commits since %s\n\n%s", version, body, since, grouped(log)), nil
}

var subject = regexp.MustCompile(`^([0-9a-f]+) (?:([^\s:,]+)[^:]*: )?(.*)$`)

// grouped returns commits by the first folder that their subject names: "cmd/job: verb what",
// "docs, charts: verb what". Each line of the log is a hash and a subject.
func grouped(log string) string {
	groups := map[string][]string{}
	for line := range strings.Lines(log) {
		parts := subject.FindStringSubmatch(strings.TrimSpace(line))
		if parts == nil {
			continue
		}
		folder, text := parts[2], parts[3]
		if folder == "" {
			folder = "other"
		}
		// Git abbreviates hashes by how many a clone has.
		groups[folder] = append(groups[folder], fmt.Sprintf("- %s (%.10s)\n", text, parts[1]))
	}
	var out strings.Builder
	for _, folder := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(&out, "### %s\n\n%s\n", folder, strings.Join(groups[folder], ""))
	}
	return out.String()
}
