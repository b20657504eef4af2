package frame

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Fit cuts a text to the width, with "…" at its end. It cuts behind a word, but for one that is
// longer than the width.
func Fit(text string, width int) string {
	all := []rune(text)
	if len(all) <= width {
		return text
	}
	part := string(all[:max(0, width-1)])
	if at := strings.LastIndex(part, " "); at > 0 && all[max(0, width-1)] != ' ' {
		part = part[:at]
	}
	return unfinished.ReplaceAllString(part, "") + "…"
}

// unfinished is the end of a text that was cut: punctuation, and the number of what is not there.
var unfinished = regexp.MustCompile(`( [0-9,]+|[ ,;:([{]+)+$`)

// Wrap divides a text into lines of at most that width. A longer word stays whole.
func Wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// Indented is a text in at most so many lines, each behind the indent.
func Indented(text, indent string, width, most int) []string {
	lines := Wrap(text, width-len(indent))
	if len(lines) > most {
		lines = append(lines[:most-1], Fit(strings.Join(lines[most-1:], " "), width-len(indent)))
	}
	for i := range lines {
		lines[i] = indent + lines[i]
	}
	return lines
}

// gap is between two columns. The last column has a text, of which so much is shown at least.
const gap, leastText = 3, 20

// Columns lays rows out in columns. What is too wide loses first what the text in the last column
// has beyond 20 characters, then whole columns: the last but one first, in the end also the last.
// Values of the columns that are left are not cut.
func Columns(rows [][]string, width int) []string {
	wide := widths(rows)
	shown := make([]int, len(wide)) // columns, by their index
	for i := range shown {
		shown[i] = i
	}
	total := func() (n int) {
		for _, i := range shown {
			n += wide[i] + gap
		}
		return n - gap
	}
	for len(shown) > 1 && total() > width {
		last := shown[len(shown)-1]
		switch room := wide[last] - (total() - width); {
		case last == len(wide)-1 && room >= min(wide[last], leastText):
			wide[last] = room
		case len(shown) > 2:
			shown = slices.Delete(shown, len(shown)-2, len(shown)-1)
		default:
			shown = shown[:1]
		}
	}
	lines := make([]string, 0, len(rows))
	for _, row := range rows {
		var b strings.Builder
		for _, i := range shown {
			if i >= len(row) {
				break
			}
			cell := OneLine(row[i])
			if i == len(wide)-1 && i > 0 {
				cell = Fit(cell, wide[i])
			}
			b.WriteString(cell + strings.Repeat(" ", wide[i]-utf8.RuneCountInString(cell)+gap))
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines
}

// widths are those of the columns.
func widths(rows [][]string) (columns []int) {
	for _, row := range rows {
		for i, cell := range row {
			if i == len(columns) {
				columns = append(columns, 0)
			}
			columns[i] = max(columns[i], utf8.RuneCountInString(OneLine(cell)))
		}
	}
	return columns
}

// painted is what a terminal does not show of a text.
var painted = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// AtWords puts spaces into the lines of a text, so that a terminal of a width begins a new line
// before a word that does not fit. Each stays one line, and is copied as one: a command in it can
// be pasted.
func AtWords(text string, width int) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = padded(lines[i], max(1, width))
	}
	return strings.Join(lines, "\n")
}

// padded is a line with these spaces.
func padded(line string, width int) string {
	var b strings.Builder
	at := 0
	for {
		word, rest, more := strings.Cut(line, " ")
		line = rest
		n := utf8.RuneCountInString(painted.ReplaceAllString(word, ""))
		if left := width - at%width; at%width > 0 && left < n && n <= width {
			b.WriteString(strings.Repeat(" ", left))
			at += left
		}
		b.WriteString(word)
		if at += n; !more {
			return b.String()
		}
		b.WriteByte(' ')
		at++
	}
}

// OneLine is a text without its line breaks.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
