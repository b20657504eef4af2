package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"

	template "github.com/DataDog/datadog-agent/pkg/template/html" // without calls of methods, for which the linker keeps each method of each type

	"github.com/kyma-project/eventmesh-migration/internal/flowpage"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	styleText string
	//go:embed page.js
	script string

	style        = flowpage.Palette + styleText
	pageTemplate = template.Must(template.New("").Parse(pageText))
)

// policy is what the page may do: its one style and its one script, and ask for its numbers where
// it came from. Nothing else runs, nothing is asked for elsewhere, and no other page may show it.
var policy = fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; script-src 'sha256-%s'; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	flowpage.Hash(style), flowpage.Hash(script))

// partNames are the parts of the page that are sent again when they change, in their order.
var partNames = []string{"summary", "eventing", "subscriptions", "flows", "sources", "sinks"}

// part is one of them.
type part struct {
	Name string `json:"name"`
	// Version is another one when the content is.
	Version string `json:"version"`
	Content string `json:"html"`
}

// parts renders them.
func parts(v *view) ([]part, error) {
	all := make([]part, 0, len(partNames))
	for _, name := range partNames {
		var text bytes.Buffer
		if err := pageTemplate.ExecuteTemplate(&text, name, v); err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text.Bytes())
		all = append(all, part{name, hex.EncodeToString(sum[:8]), text.String()})
	}
	return all, nil
}

// info says how many the search has found.
func info(v *view) (string, error) {
	var text strings.Builder
	err := pageTemplate.ExecuteTemplate(&text, "info", v)
	return text.String(), err
}

// write writes the whole page.
func write(w io.Writer, v *view) error {
	all, err := parts(v)
	if err != nil {
		return err
	}
	type shown struct {
		Name, Version string
		HTML          template.HTML
	}
	content := struct {
		View   *view
		Parts  []shown
		Style  template.CSS
		Script template.JS
	}{View: v, Style: template.CSS(style), Script: template.JS(script)} //nolint:gosec // they are ours
	for _, p := range all {
		content.Parts = append(content.Parts, shown{p.Name, p.Version, template.HTML(p.Content)}) //nolint:gosec // the template has escaped it
	}
	return pageTemplate.ExecuteTemplate(w, "page", content)
}

// update is what a page that has some versions of its parts is told.
type update struct {
	Info  string `json:"info"`
	Parts []part `json:"parts"`
}

// updateOf leaves out the parts that the page has. The tag is that of all of them.
func updateOf(v *view, have []string) (u update, tag string, err error) {
	all, err := parts(v)
	if err != nil {
		return update{}, "", err
	}
	u = update{Parts: []part{}}
	if u.Info, err = info(v); err != nil {
		return update{}, "", err
	}
	var versions []string
	for _, p := range all {
		versions = append(versions, p.Version)
		if !slices.Contains(have, p.Version) {
			u.Parts = append(u.Parts, p)
		}
	}
	return u, fmt.Sprintf("%q", strings.Join(append(versions, flowpage.Hash(u.Info)[:8]), ".")), nil
}
