package manual

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/kyma-project/eventmesh-migration/internal/frame"
)

var (
	link = regexp.MustCompile(`\[([^\]]*)\]\(([^)]*)\)`)
	item = regexp.MustCompile(`^( *)([0-9]+\. |- )(.*)$`)
)

// Plain is a text without the signs of Markdown, except those of code. dir is the directory of its
// file in the repository.
func Plain(text, dir string) string {
	text = link.ReplaceAllStringFunc(text, func(found string) string {
		match := link.FindStringSubmatch(found)
		if file, _, _ := strings.Cut(match[2], "#"); strings.HasSuffix(file, ".md") {
			return match[1] + " (" + path.Join(dir, file) + ")"
		}
		return match[1]
	})
	return strings.ReplaceAll(text, "**", "")
}

// Render returns the entry as lines of at most the width. Commands stay whole. explain is the
// command that explains another entry, without its ID.
func (e Entry) Render(width int, explain string) string {
	lines := []string{e.ID}
	if e.Section != ExitCodes && e.Section != Topics {
		lines = frame.Wrap(e.ID+" ("+e.Section+")", width)
	}
	lines = append(lines, "")
	lines = append(lines, body(strings.Split(e.Text, "\n"), width, path.Dir(e.Page))...)
	var also []string
	for _, match := range link.FindAllStringSubmatch(e.Text, -1) {
		anchor, inside := strings.CutPrefix(match[2], "#")
		if inside && !slices.Contains(also, anchor) {
			also = append(also, anchor)
		}
	}
	if len(also) > 0 {
		lines = append(lines, "", "See also:")
		for _, anchor := range also {
			lines = append(lines, "  "+explain+" "+anchor)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

func body(source []string, width int, dir string) []string {
	var out []string
	blank := func() {
		if len(out) > 0 && out[len(out)-1] != "" {
			out = append(out, "")
		}
	}
	for i := 0; i < len(source); i++ {
		line := source[i]
		trimmed := strings.TrimSpace(line)
		match := item.FindStringSubmatch(line)
		switch _, title := Heading(line); {
		case trimmed == "":
			blank()
		case title != "":
			blank()
			out = append(out, title+":")
		case strings.HasPrefix(trimmed, "```"):
			for i++; i < len(source) && !strings.HasPrefix(strings.TrimSpace(source[i]), "```"); i++ {
				out = append(out, "  "+source[i])
			}
		case strings.HasPrefix(trimmed, "|"):
			head := Row(line)
			for i += 2; i < len(source) && strings.HasPrefix(source[i], "|"); i++ {
				out = append(out, cells(head, Row(source[i]), width, dir)...)
			}
			i--
		default:
			first, rest := "", ""
			if match != nil {
				first = match[1] + match[2]
				rest, trimmed = strings.Repeat(" ", len(first)), match[3]
			}
			// A paragraph goes on until a line that begins something else.
			for i+1 < len(source) && continues(source[i+1]) {
				i++
				trimmed += " " + strings.TrimSpace(source[i])
			}
			for n, text := range frame.Wrap(Plain(trimmed, dir), width-len(first)) {
				if n == 0 {
					out = append(out, first+text)
					continue
				}
				out = append(out, rest+text)
			}
		}
	}
	return out
}

func continues(line string) bool {
	trimmed := strings.TrimSpace(line)
	return trimmed != "" && !strings.HasPrefix(trimmed, "|") && !strings.HasPrefix(trimmed, "```") && !strings.HasPrefix(trimmed, "#") && !item.MatchString(line)
}

// cells of a row: the first one, and the others below it.
func cells(head, row []string, width int, dir string) []string {
	var out []string
	for i, cell := range row {
		cell, indent := Plain(Anchored.ReplaceAllString(cell, ""), dir), ""
		if i > 0 {
			indent = "    "
		}
		if i > 0 && i < len(head) && len(head) > 2 {
			cell = head[i] + ": " + cell
		}
		for _, text := range frame.Wrap(cell, width-len(indent)) {
			out = append(out, indent+text)
		}
	}
	return append(out, "")
}
