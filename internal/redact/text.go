package redact

import (
	"regexp"
	"strings"
)

// Mark replaces a value that was left out.
const Mark = "REDACTED"

// secretName is a part of the name of a flag, a variable or a field that holds a
// secret.
const secretName = `passw\w*|passphrase|pwd|token|secret|api-?_?key|access-?_?key|private-?_?key|signature`

// patterns find secrets in texts, wherever they are.
var patterns = []struct {
	find    *regexp.Regexp
	replace string
}{
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]+-----.*?(-----END [A-Z ]+-----|$)`), Mark},
	{regexp.MustCompile(`eyJ[\w-]{8,}\.[\w-]+\.[\w-]*`), Mark}, // a JSON web token
	{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}`), "${1} " + Mark},
	{regexp.MustCompile(`(?i)([?&;\s"'-]|^)([\w.-]*(?:` + secretName + `|sig)[\w.-]*)(=|":\s*"|:\s+)([^&\s"']+)`), "${1}${2}${3}" + Mark},
}

// twoWords is a flag with its value behind a space, or as the next entry of a list.
var twoWords = regexp.MustCompile(`(?i)((?:^|[\s"'\[({,;])--?[\w.-]*(?:` + secretName + `|credentials?)[\w.-]*)(\s+|"\s*,\s*")("[^"]*"|'[^']*'|[^\s"',]+)`)

// secretFlag is such a flag alone.
var secretFlag = regexp.MustCompile(`(?i)^--?[\w.-]*(?:` + secretName + `|credentials?)[\w.-]*$`)

// Text returns a text without what looks like a secret.
func Text(s string) string {
	s = URLs(s)
	for _, p := range patterns {
		s = p.find.ReplaceAllString(s, p.replace)
	}
	return twoWords.ReplaceAllStringFunc(s, func(found string) string {
		parts := twoWords.FindStringSubmatch(found)
		if strings.HasPrefix(parts[3], "--") || parts[3] == Mark {
			return found // the next flag
		}
		return parts[1] + parts[2] + Mark
	})
}
