package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
)

// source is the commit that is published.
type source struct {
	Revision string
	Date     time.Time
}

// checkVersion refuses what is no semantic version. Tags of images cannot have build metadata.
func checkVersion(version string) error {
	parsed, err := semver.StrictNewVersion(version)
	if err != nil {
		return fmt.Errorf("version %q is no semantic version. Next: make release VERSION=0.1.0", version)
	}
	if parsed.Metadata() != "" {
		return fmt.Errorf("version %q has build metadata, which no tag of an image can have. Next: leave out +%s", version, parsed.Metadata())
	}
	return nil
}

// check returns the commit, or all reasons why it is not the one of a version: tag, changelog,
// version of the module, changed files.
func check(ctx context.Context, root, version string) (source, error) {
	if err := checkVersion(version); err != nil {
		return source{}, err
	}
	head, err := git(ctx, root, "rev-parse", "HEAD")
	if err != nil {
		return source{}, err
	}
	seconds, err := git(ctx, root, "show", "-s", "--format=%ct", "HEAD")
	if err != nil {
		return source{}, err
	}
	date, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return source{}, fmt.Errorf("cannot read the date of the commit: %w", err)
	}
	var wrong []error
	tag := "v" + version
	tagged, err := git(ctx, root, "rev-parse", "--verify", "--quiet", "refs/tags/"+tag+"^{commit}")
	switch {
	case err != nil:
		wrong = append(wrong, fmt.Errorf("tag %s does not exist. Next: git tag -a %s -m %s", tag, tag, tag))
	case tagged != head:
		wrong = append(wrong, fmt.Errorf("tag %s is commit %.10s, but %.10s is checked out. Next: git checkout %s", tag, tagged, head, tag))
	}
	changed, err := git(ctx, root, "status", "--porcelain")
	if err != nil {
		return source{}, err
	}
	if changed != "" {
		first, _, _ := strings.Cut(changed, "\n")
		wrong = append(wrong, fmt.Errorf("the work tree has %d changed files, the first is %s. Next: git status", strings.Count(changed, "\n")+1, first[min(3, len(first)):]))
	}
	if err := moduleIs(root, version); err != nil {
		wrong = append(wrong, err)
	}
	if _, err := section(root, version); err != nil {
		wrong = append(wrong, err)
	}
	return source{head, time.Unix(date, 0).UTC()}, errors.Join(wrong...)
}

var heading = regexp.MustCompile(`(?m)^## .*$`)

// section returns what CHANGELOG.md says about a version, without the heading.
func section(root, version string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return "", fmt.Errorf("cannot read the changelog: %w", err)
	}
	want := regexp.MustCompile(`^## \[` + regexp.QuoteMeta(version) + `\] - \d{4}-\d{2}-\d{2}$`)
	text := string(raw)
	all := heading.FindAllStringIndex(text, -1)
	for i, at := range all {
		if !want.MatchString(text[at[0]:at[1]]) {
			continue
		}
		end := len(text)
		if i+1 < len(all) {
			end = all[i+1][0]
		}
		if body := strings.TrimSpace(text[at[1]:end]); body != "" {
			return body, nil
		}
	}
	return "", fmt.Errorf("CHANGELOG.md has no text below \"## [%s] - YYYY-MM-DD\". Next: rename the section Unreleased and commit", version)
}

// git returns the output of a command of git, without spaces at its end.
func git(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", root, "-c", "core.quotePath=false"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimRight(string(out), " \n"), nil
}
