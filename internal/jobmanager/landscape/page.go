package landscape

import (
	"cmp"
	_ "embed"
	"fmt"
	"html"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"
)

//go:embed page.html
var pageText string

// WriteHTML writes one page that needs nothing else: the picture is part of it,
// and its policy forbids every request.
func (m *Map) WriteHTML(w io.Writer, cluster string, at time.Time) error {
	page, err := template.New("page").Parse(pageText)
	if err != nil {
		return err
	}
	counts := map[Path]int{}
	for _, a := range m.Applications {
		counts[a.Path]++
	}
	before, after, both := 0, 0, 0
	for _, f := range m.Flows {
		switch {
		case f.Before.Object != "" && f.After.Object != "":
			both++
		case f.Before.Object != "":
			before++
		default:
			after++
		}
	}
	return page.Execute(w, map[string]any{
		"Cluster": cluster, "At": at.UTC().Format("2006-01-02 15:04 UTC"), "Map": m, "Paths": counts,
		"OnlyBefore": before, "OnlyAfter": after, "Both": both,
		"Picture": template.HTML(m.picture()), // every text in it is escaped by picture
	})
}

// Measures of the picture, in pixels.
const (
	rowHeight    = 22
	columnApp    = 240 // right edge of the Applications' names
	columnBroker = 520
	columnEnd    = 800 // left edge of the subscribers' names
	width        = 1320
	top          = 56
)

// picture draws Applications on the left, the namespaces' Brokers in the middle,
// and subscribers on the right. What stands together is near each other: the
// subscribers by namespace, the Applications by where most of their events go.
func (m *Map) picture() string {
	namespaces, of := m.subscribers()
	nsIndex := map[string]int{}
	subY, nsY := map[string]int{}, map[string]int{}
	y := top
	for i, ns := range namespaces {
		nsIndex[ns] = i
		first := y
		for _, s := range of[ns] {
			subY[ns+" "+s] = y
			y += rowHeight
		}
		nsY[ns] = (first + y - rowHeight) / 2
		y += rowHeight / 2
	}
	rightEnd := y

	// An Application stands at the mean height of what it reaches.
	sum, n := map[string]int{}, map[string]int{}
	for _, f := range m.Flows {
		app := cmp.Or(f.Application, "any")
		sum[app] += subY[f.Namespace+" "+f.Subscriber]
		n[app]++
	}
	apps := slices.Clone(m.Applications)
	mean := func(a Source) int {
		if n[a.Name] == 0 {
			return 1 << 30
		}
		return sum[a.Name] / n[a.Name]
	}
	slices.SortStableFunc(apps, func(a, b Source) int { return cmp.Or(cmp.Compare(mean(a), mean(b)), cmp.Compare(a.Name, b.Name)) })
	appY := map[string]int{}
	leftEnd := top + len(apps)*rowHeight
	height := max(leftEnd, rightEnd) + rowHeight
	// The shorter side is spread over the height.
	step := float64(height-top-rowHeight) / float64(max(1, len(apps)))
	for i, a := range apps {
		appY[a.Name] = top + int(float64(i)*max(step, rowHeight))
	}

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="Which event reaches whom">`, width, height)
	for _, head := range []struct {
		x      int
		anchor string
		text   string
	}{
		{columnApp, "end", "Application"}, {columnBroker, "middle", "Namespace (Broker)"}, {columnEnd + 36, "start", "Subscriber"},
		{columnEnd + 6, "middle", "before"}, {columnEnd + 22, "middle", "after"},
	} {
		class, yy := "head", 20
		if head.x < columnEnd+36 && head.x > columnBroker {
			class, yy = "tiny", 44
			fmt.Fprintf(&b, `<text class="%s" transform="translate(%d %d) rotate(-90)">%s</text>`, class, head.x+4, yy, head.text)
			continue
		}
		fmt.Fprintf(&b, `<text class="%s" x="%d" y="%d" text-anchor="%s">%s</text>`, class, head.x, yy, head.anchor, head.text)
	}
	m.edges(&b, appY, nsY, subY, nsIndex)
	for _, a := range apps {
		yy := appY[a.Name]
		fmt.Fprintf(&b, `<g class="app %s"><title>%s: events take the path %s</title><text x="%d" y="%d" text-anchor="end">%s</text><circle cx="%d" cy="%d" r="4"/></g>`,
			a.Path, esc(a.Name), a.Path, columnApp-12, yy+4, esc(shorten(a.Name, 32)), columnApp, yy)
	}
	for _, ns := range namespaces {
		fmt.Fprintf(&b, `<g class="ns c%d"><rect x="%d" y="%d" width="150" height="20" rx="10"/><text x="%d" y="%d" text-anchor="middle">%s</text></g>`,
			nsIndex[ns]%8, columnBroker-75, nsY[ns]-10, columnBroker, nsY[ns]+4, esc(shorten(ns, 20)))
	}
	before, after := m.states()
	for _, ns := range namespaces {
		for _, s := range of[ns] {
			key := ns + " " + s
			yy := subY[key]
			fmt.Fprintf(&b, `<g class="sub c%d"><title>%s, in namespace %s</title><circle class="%s" cx="%d" cy="%d" r="5"/><circle class="%s" cx="%d" cy="%d" r="5"/><text x="%d" y="%d">%s</text></g>`,
				nsIndex[ns]%8, esc(s), esc(ns), before[key], columnEnd+6, yy, after[key], columnEnd+22, yy, columnEnd+36, yy+4, esc(shorten(cmp.Or(s, "(no endpoint)"), 66)))
		}
	}
	b.WriteString(`</svg>`)
	return b.String()
}

// edges draws each line once, however many kinds of event take it.
func (m *Map) edges(b *strings.Builder, appY, nsY, subY, nsIndex map[string]int) {
	drawn := map[string]bool{}
	line := func(x1, y1, x2, y2, color int, class, title string) {
		key := fmt.Sprint(x1, y1, x2, y2, class)
		if drawn[key] {
			return
		}
		drawn[key] = true
		mid := (x1 + x2) / 2
		fmt.Fprintf(b, `<path class="edge %s c%d" d="M%d %dC%d %d %d %d %d %d"><title>%s</title></path>`, class, color, x1, y1, mid, y1, mid, y2, x2, y2, esc(title))
	}
	for _, f := range m.Flows {
		app, end := cmp.Or(f.Application, "any"), f.Namespace+" "+f.Subscriber
		class := "after"
		if f.After.Object == "" {
			class = "before"
		} else if f.After.Problem != "" {
			class = "broken"
		}
		color := nsIndex[f.Namespace] % 8
		line(columnApp+6, appY[app], columnBroker-76, nsY[f.Namespace], color, class, app+" to namespace "+f.Namespace)
		line(columnBroker+76, nsY[f.Namespace], columnEnd-4, subY[end], color, class, f.Event()+" of "+app+" to "+f.Subscriber)
	}
}

// states are the classes of the two dots of each subscriber: how its events
// arrive, the worst of them.
func (m *Map) states() (before, after map[string]string) {
	before, after = map[string]string{}, map[string]string{}
	set := func(to map[string]string, key string, r Route) {
		class := "yes"
		switch {
		case r.Object == "":
			class = "no"
		case r.Problem != "":
			class = "bad"
		}
		if old := to[key]; old == "" || old == "yes" || class == "bad" {
			to[key] = class
		}
	}
	for _, f := range m.Flows {
		key := f.Namespace + " " + f.Subscriber
		set(before, key, f.Before)
		set(after, key, f.After)
	}
	return before, after
}

func esc(s string) string { return html.EscapeString(s) }

func shorten(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}
