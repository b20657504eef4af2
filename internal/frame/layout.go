package frame

import (
	"strings"
	"unicode/utf8"
)

// Fit cuts a text to the width, with "…" at its end.
func Fit(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(0, width-1)]) + "…"
}

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

// Columns lays rows out in columns. What is too wide is cut, the last column first and then the
// widest; the columns before it never get narrower than their head.
func Columns(rows [][]string, width int) []string {
	const gap = 3
	var columns []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(columns) {
				columns = append(columns, 0)
			}
			columns[i] = max(columns[i], utf8.RuneCountInString(OneLine(cell)))
		}
	}
	least := make([]int, len(columns))
	for i := range least {
		least[i] = min(columns[i], 8)
		if len(rows) > 0 && i < len(rows[0]) {
			least[i] = min(columns[i], max(least[i], utf8.RuneCountInString(rows[0][i])))
		}
	}
	for excess := sum(columns) + gap*(len(columns)-1) - width; excess > 0; {
		// The last column has the long text. After it, the widest gives way.
		at := len(columns) - 1
		if columns[at] <= max(least[at], 20) {
			for i := range columns {
				if columns[i]-least[i] > columns[at]-least[at] {
					at = i
				}
			}
		}
		if columns[at] <= least[at] {
			break
		}
		columns[at]--
		excess--
	}
	lines := make([]string, 0, len(rows))
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			cell = Fit(OneLine(cell), columns[i])
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", columns[i]-utf8.RuneCountInString(cell)+gap))
			}
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines
}

func sum(numbers []int) (total int) {
	for _, n := range numbers {
		total += n
	}
	return total
}

// OneLine is a text without its line breaks.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
