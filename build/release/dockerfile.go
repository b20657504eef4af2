package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kyma-project/eventmesh-migration/build/release/artifact"
)

// recipe is what a Dockerfile of this repository says. Docker and this program make the same image
// of it.
type recipe struct {
	Labels     map[string]string
	Copies     []copied
	User       string
	Entrypoint []string
}

// copied is a COPY: what comes from bin/image, and the path in the image.
type copied struct{ From, To string }

// recipeOf reads the Dockerfile of a program: Dockerfile.<program>, or else Dockerfile.
func recipeOf(root, program string, arguments map[string]string) (recipe, error) {
	name := "Dockerfile." + program
	if _, err := os.Stat(filepath.Join(root, name)); err != nil {
		name = "Dockerfile"
	}
	raw, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return recipe{}, err
	}
	r, err := parse(string(raw), arguments)
	if err != nil {
		return recipe{}, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

// parse knows the instructions that our Dockerfiles have, and refuses every other one. Arguments
// win over the values of ARG.
func parse(text string, arguments map[string]string) (recipe, error) {
	r := recipe{Labels: map[string]string{}}
	values := map[string]string{}
	var unknown string
	expand := func(s string) string {
		return os.Expand(s, func(name string) string {
			value, ok := values[name]
			if !ok {
				unknown = name
			}
			return value
		})
	}
	for _, line := range joined(text) {
		instruction, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		switch instruction {
		case "FROM":
			if rest != "scratch" {
				return r, fmt.Errorf("%q: only FROM scratch can be made without Docker", line)
			}
		case "ARG":
			name, value, _ := strings.Cut(rest, "=")
			if given, ok := arguments[name]; ok {
				value = given
			}
			values[name] = value
		case "LABEL":
			for _, pair := range quoted(expand(rest)) {
				key, value, _ := strings.Cut(pair, "=")
				r.Labels[key] = value
			}
		case "COPY":
			parts := strings.Fields(expand(rest))
			if len(parts) != 2 || !strings.HasPrefix(parts[0], "bin/image/") || !strings.HasPrefix(parts[1], "/") {
				return r, fmt.Errorf("%q: only COPY bin/image/FILE /PATH is known", line)
			}
			r.Copies = append(r.Copies, copied{strings.TrimPrefix(parts[0], "bin/image/"), strings.TrimPrefix(parts[1], "/")})
		case "USER":
			r.User = expand(rest)
		case "ENTRYPOINT":
			if err := json.Unmarshal([]byte(expand(rest)), &r.Entrypoint); err != nil {
				return r, fmt.Errorf("%q: %w", line, err)
			}
		default:
			return r, fmt.Errorf("%q: an unknown instruction: teach release/dockerfile.go", line)
		}
	}
	switch {
	case unknown != "":
		return r, fmt.Errorf("the argument %s has no value", unknown)
	case r.User == "" || len(r.Entrypoint) == 0 || len(r.Copies) == 0:
		return r, fmt.Errorf("USER, ENTRYPOINT and COPY must be there")
	}
	return r, nil
}

// joined returns the instructions, each in one line, without comments.
func joined(text string) (lines []string) {
	var open string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		open += line
		if rest, more := strings.CutSuffix(open, "\\"); more {
			open = rest
			continue
		}
		lines, open = append(lines, open), ""
	}
	return lines
}

// quoted divides key="value" pairs.
func quoted(text string) (pairs []string) {
	var pair strings.Builder
	in := false
	for _, r := range text + " " {
		switch {
		case r == '"':
			in = !in
		case r == ' ' && !in:
			if pair.Len() > 0 {
				pairs = append(pairs, pair.String())
			}
			pair.Reset()
		default:
			pair.WriteRune(r)
		}
	}
	return pairs
}

// files returns what a COPY puts into the image, from the staged files of a program.
func (c copied) files(staged, program string, roots []byte) (map[string]artifact.File, error) {
	if c.From == "ca-certificates.crt" {
		return map[string]artifact.File{c.To: {Content: roots}}, nil
	}
	from := filepath.Join(staged, filepath.FromSlash(c.From))
	info, err := os.Stat(from)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return tree(from, c.To)
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return nil, err
	}
	return map[string]artifact.File{c.To: {Content: content, Executable: c.From == program}}, nil
}
