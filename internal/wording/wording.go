// Package wording writes numbers for people, and commands that can be pasted into a shell.
package wording

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Number is a number for people, with separators: nobody counts digits at night.
func Number(n int) string {
	s := strconv.Itoa(n)
	first := 0
	if n < 0 {
		first = 1 // behind the sign
	}
	for i := len(s) - 3; i > first; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Count is a number of things for people: "1 error", "2 errors". The noun is in the singular.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Number(n) + " " + noun + "s"
}

// plainWord is what no shell changes.
var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// ShellQuote returns a word as a shell reads it back: unchanged if it is plain, or in single
// quotes.
func ShellQuote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// CommandLine returns a command as it can be pasted into a shell.
func CommandLine(words ...string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = ShellQuote(word)
	}
	return strings.Join(quoted, " ")
}

// Bytes is a number of bytes for people: "12 MiB".
func Bytes(bytes int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	n, unit := float64(bytes), 0
	for n >= 1024 && unit < len(units)-1 {
		n, unit = n/1024, unit+1
	}
	if n >= 10 || unit == 0 {
		return fmt.Sprintf("%.0f %s", n, units[unit])
	}
	return fmt.Sprintf("%.1f %s", n, units[unit])
}
