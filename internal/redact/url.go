// Package redact leaves out of texts and objects what no other person should read. It is
// the one place that decides what that is: for findings, reports, logs, plans, the map
// and the archive of a ticket.
package redact

import (
	"net/url"
	"regexp"
	"strings"
)

const (
	// Hidden replaces a part of a URL that is left out.
	Hidden = "…"
	// NotAURL replaces what was given as a URL but is none: it is not known where in
	// it a password is.
	NotAURL = "(not an absolute URL)"
)

// URL is an absolute URL without user, password, fragment and the values of its query;
// NotAURL for anything else, "" for "".
func URL(s string) string {
	if s == "" {
		return ""
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return NotAURL
	}
	rest := u.EscapedPath() + u.RawQuery + u.EscapedFragment()
	if strings.Contains(u.Host, ":") && !strings.HasPrefix(u.Host, "[") && (strings.Contains(rest, "@") || strings.Contains(strings.ToLower(rest), "%40")) {
		// A password with a slash reads as a port and a path.
		return u.Scheme + "://" + Hidden
	}
	shown := u.Scheme + "://" + u.Host + u.EscapedPath()
	if u.RawQuery != "" || u.ForceQuery {
		shown += "?" + query(u.RawQuery)
	}
	if u.Fragment != "" {
		shown += "#" + Hidden
	}
	return shown
}

// query is a query without its values. A part without one may be a secret itself.
func query(raw string) string {
	var b strings.Builder
	for raw != "" {
		part, separator := raw, ""
		if i := strings.IndexAny(raw, "&;"); i >= 0 {
			part, separator = raw[:i], raw[i:i+1]
		}
		raw = raw[len(part)+len(separator):]
		if name, value, ok := strings.Cut(part, "="); ok && strings.Trim(value, "=") != "" {
			b.WriteString(name + "=")
		}
		if part != "" {
			b.WriteString(Hidden)
		}
		b.WriteString(separator)
	}
	return b.String()
}

// inText finds what may be a URL. What it ends with may belong to the sentence.
var inText = regexp.MustCompile("[A-Za-z][A-Za-z0-9+.-]*://[^\\s\"'`<>\\\\]+")

// URLs is a text in which each URL is as URL shows it.
func URLs(text string) string {
	if !strings.Contains(text, "://") {
		return text
	}
	return inText.ReplaceAllStringFunc(text, func(found string) string {
		bare := strings.TrimRight(found, ".,:;!)]}")
		if !strings.ContainsAny(bare, "@?#") {
			return found
		}
		return URL(bare) + found[len(bare):]
	})
}
