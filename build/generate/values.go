package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// setting is one value of values.yaml, or a group of them.
type setting struct {
	name, doc string
	node      *yaml.Node
	// enum are the allowed values; items the type of a list's; free that of a map
	// with keys of the user's; format one of formats.
	enum                []string
	items, free, format string
	// object: what is in it is Kubernetes' business.
	object bool
	group  []setting
}

// formats are patterns of strings. A name without a letter is legal, and never meant:
// YAML reads it as a number where the quotes are missing.
var formats = map[string]string{
	"namespace":  `([0-9][-0-9]*)?[a-z]([-a-z0-9]*[a-z0-9])?`,
	"name":       `([0-9][-.0-9]*)?[a-z]([-.a-z0-9]*[a-z0-9])?`,
	"repository": `[a-z0-9]([-._:/a-z0-9]*[a-z0-9])?`,
	"tag":        `[A-Za-z0-9_][-.A-Za-z0-9_]{0,127}`,
	"digest":     `sha256:[0-9a-f]{64}`,
}

// lengths are the longest names that Kubernetes takes.
var lengths = map[string]int{"namespace": 63, "name": 253}

// typeOf is the schema of a type, or of a format: of a string, then. "or empty" allows
// the empty string, too.
func typeOf(name string) (map[string]any, error) {
	format, optional := strings.CutSuffix(name, " or empty")
	pattern, ok := formats[format]
	switch {
	case !ok && (optional || !slices.Contains([]string{"string", "integer", "object"}, name)):
		return nil, fmt.Errorf("%q is no type, and no format", name)
	case !ok:
		return map[string]any{"type": name}, nil
	case optional:
		pattern = "(" + pattern + ")?"
	}
	schema := map[string]any{"type": "string", "pattern": "^" + pattern + "$"}
	if length, ok := lengths[format]; ok {
		schema["maxLength"] = length
	}
	return schema, nil
}

// parse reads values.yaml with its comments, which document the values. A line
// "@enum a, b" lists the allowed ones, "@items type" says what is in a list,
// "@free type" that a map's keys are the user's, "@format name" how a string is
// written, "@object" that a map is Kubernetes' business, and "@begin" and "@end" stand
// around what is generated.
func parse(raw []byte) ([]setting, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(raw, &document); err != nil {
		return nil, err
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("not a map")
	}
	return group(document.Content[0])
}

func group(node *yaml.Node) ([]setting, error) {
	var all []setting
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		s := setting{name: key.Value, node: value}
		// Comments that a blank line separates belong to nothing.
		blocks := strings.Split(key.HeadComment, "\n\n")
		for line := range strings.SplitSeq(blocks[len(blocks)-1], "\n") {
			line = strings.TrimSpace(strings.TrimPrefix(line, "#"))
			tag, rest, _ := strings.Cut(line, " ")
			switch tag {
			case "@enum":
				for word := range strings.SplitSeq(rest, ",") {
					s.enum = append(s.enum, strings.Trim(strings.TrimSpace(word), `"`))
				}
			case "@items":
				s.items = rest
			case "@free":
				s.free = rest
			case "@format":
				s.format = rest
			case "@object":
				s.object = true
			case "@begin", "@end":
				// around what is generated
			default:
				s.doc = strings.TrimSpace(s.doc + " " + line)
			}
		}
		if value.Kind == yaml.SequenceNode && s.items == "" {
			return nil, fmt.Errorf("%s: a list needs a comment \"# @items type\"", s.name)
		}
		for _, name := range []string{s.items, s.free, s.format} {
			if _, err := typeOf(cmp.Or(name, "string")); err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
		}
		if value.Kind == yaml.MappingNode && s.free == "" && !s.object {
			var err error
			if s.group, err = group(value); err != nil {
				return nil, fmt.Errorf("%s.%w", s.name, err)
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// schemaOf is the JSON schema of the values. Helm 2 ignores it.
func schemaOf(settings []setting) ([]byte, error) {
	schema := objectSchema(settings)
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"
	// Helm hands every chart the values that all share, and one that is a dependency its own
	// condition.
	properties := schema["properties"].(map[string]any)
	properties["global"] = map[string]any{"type": "object"}
	if properties["enabled"] == nil {
		properties["enabled"] = map[string]any{"type": "boolean", "description": "For charts that have this one as a dependency (condition). It is not read."}
	}
	raw, err := json.MarshalIndent(schema, "", "  ")
	return append(raw, '\n'), err
}

func objectSchema(settings []setting) map[string]any {
	properties := map[string]any{}
	for _, s := range settings {
		properties[s.name] = s.schema()
	}
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
}

func (s setting) schema() map[string]any {
	var schema map[string]any
	switch {
	case s.object:
		schema = map[string]any{"type": "object"}
	case s.free != "":
		schema = map[string]any{"type": "object", "additionalProperties": known(s.free)}
	case s.node.Kind == yaml.MappingNode:
		schema = objectSchema(s.group)
	case s.node.Kind == yaml.SequenceNode:
		schema = map[string]any{"type": "array", "items": known(s.items)}
	case s.format != "":
		schema = known(s.format)
	case s.node.Tag == "!!bool":
		schema = map[string]any{"type": "boolean"}
	case s.node.Tag == "!!int":
		schema = map[string]any{"type": "integer"}
		switch {
		case strings.HasSuffix(strings.ToLower(s.name), "seconds"):
			schema["minimum"] = 1
		case strings.Contains(s.name, "Seconds"):
			schema["minimum"] = 0
		}
	default:
		schema = map[string]any{"type": "string"}
	}
	if len(s.enum) > 0 {
		schema["enum"] = s.enum
	}
	if s.doc != "" {
		schema["description"] = s.doc
	}
	return schema
}

// known is the schema of a type that group has checked.
func known(name string) map[string]any {
	schema, err := typeOf(name)
	if err != nil {
		panic(err)
	}
	return schema
}

// Lines around the table of values in README.md.
const (
	beginValues = "<!-- values: generated by \"make charts\" from values.yaml -->"
	endValues   = "<!-- end of values -->"
)

// valuesTable is that of the chart's README.md.
func valuesTable(settings []setting) []byte {
	var b bytes.Buffer
	b.WriteString("| Value | Default | What |\n|---|---|---|\n")
	rows(&b, "", settings)
	return b.Bytes()
}

// flow is a map or a list in one line.
func flow(node *yaml.Node) string {
	words := make([]string, 0, len(node.Content))
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			words = append(words, node.Content[i].Value+": "+flow(node.Content[i+1]))
		}
		return "{" + strings.Join(words, ", ") + "}"
	case yaml.SequenceNode:
		for _, item := range node.Content {
			words = append(words, flow(item))
		}
		return "[" + strings.Join(words, ", ") + "]"
	default:
		return node.Value
	}
}

func rows(b *bytes.Buffer, prefix string, settings []setting) {
	for _, s := range settings {
		name := prefix + s.name
		if len(s.group) > 0 {
			if s.doc != "" {
				fmt.Fprintf(b, "| `%s` | | %s |\n", name, s.doc)
			}
			rows(b, name+".", s.group)
			continue
		}
		var value string
		switch {
		case s.node.Kind == yaml.MappingNode, s.node.Kind == yaml.SequenceNode:
			value = flow(s.node)
		case s.node.Value == "":
			value = `""`
		default:
			value = s.node.Value
		}
		what := s.doc
		if len(s.enum) > 0 {
			words := make([]string, len(s.enum))
			for i, word := range s.enum {
				words[i] = "`" + word + "`"
				if word == "" {
					words[i] = "`\"\"`"
				}
			}
			what = strings.TrimSpace(what + " One of " + strings.Join(words, ", ") + ".")
		}
		fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", name, value, what)
	}
}
