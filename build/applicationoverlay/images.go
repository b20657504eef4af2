package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/build/digests"
)

// named are the values of Kyma's chart application-connector, under global, that
// name the images of the switch. An image is
// <global.containerRegistry.path>/<dir><name>:<version>.
var named = []string{"application_operator", "event_service"}

// nameImages sets them. It edits lines and leaves all others as they are: the file
// has comments, anchors and an order. With a file of digests, a version is
// <tag>@<digest>, and the tag is only for people.
func nameImages(file, repository, tag, digestsFile string) error {
	if repository == "" || tag == "" {
		return fmt.Errorf("name the images: -repository and -tag")
	}
	versions := map[string]string{}
	for _, name := range named {
		versions[name] = tag
	}
	if digestsFile != "" {
		all, err := digests.Read(digestsFile, repository)
		if err != nil {
			return err
		}
		wanted := map[string]string{}
		for _, name := range named {
			program := strings.ReplaceAll(name, "_", "-")
			wanted[program] = all[program]
			versions[name] = tag + "@" + all[program]
		}
		if err := digests.Complete(digestsFile, wanted); err != nil {
			return err
		}
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("cannot read the values of application-connector: %w", err)
	}
	path := lookup(raw, "containerRegistry", "path")
	dir, ok := strings.CutPrefix(repository+"/", path+"/")
	if path == "" || !ok {
		return fmt.Errorf("%s takes all images from %q, its global.containerRegistry.path: %s is not below it", file, path, repository)
	}
	text := string(raw)
	for _, name := range named {
		if text, err = setImage(text, name, dir, versions[name]); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if lookup([]byte(text), name, "dir") != dir || lookup([]byte(text), name, "version") != versions[name] {
			return fmt.Errorf("%s: global.%s has a form that this program cannot edit", file, name)
		}
	}
	if text == string(raw) {
		return nil
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// lookup reads global.<name>.<key>, "" if it is not there.
func lookup(raw []byte, name, key string) string {
	var values struct {
		Global map[string]any `json:"global"`
	}
	if yaml.Unmarshal(raw, &values) != nil {
		return ""
	}
	inner, _ := values.Global[name].(map[string]any)
	value, _ := inner[key].(string)
	return value
}

func setImage(text, name, dir, tag string) (string, error) {
	block := regexp.MustCompile(`(?m)^  ` + name + `:[ \t]*\n((?:    .*\n)+)`).FindStringSubmatchIndex(text)
	if block == nil {
		return "", fmt.Errorf("there is no global.%s", name)
	}
	lines := text[block[2]:block[3]]
	for _, kv := range [][2]string{{"dir", dir}, {"version", tag}} {
		line := regexp.MustCompile(`(?m)^    ` + kv[0] + `:.*$`)
		set := fmt.Sprintf("    %s: %q", kv[0], kv[1])
		if line.MatchString(lines) {
			lines = line.ReplaceAllLiteralString(lines, set)
		} else {
			lines = set + "\n" + lines
		}
	}
	return text[:block[2]] + lines + text[block[3]:], nil
}
