package eventmap

import (
	"cmp"
	_ "embed"
	"html/template"
	"io"
	"slices"
	"time"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"add": func(a, b int) int { return a + b }}).Parse(pageText))

// page is what the template is filled with. It holds plain values only: the template
// escapes each for its place in the page.
type page struct {
	Cluster, At                 string
	Map                         *Map
	OnlyBefore, OnlyAfter, Both int
	Picture                     picture
}

// WriteHTML writes one page that needs nothing else: the picture is part of it,
// and its policy forbids every request.
func (m *Map) WriteHTML(w io.Writer, cluster string, at time.Time) error {
	p := page{Cluster: cluster, At: at.UTC().Format("2006-01-02 15:04 UTC"), Map: m, Picture: m.picture()}
	for _, f := range m.Flows {
		switch {
		case f.Before.Object != "" && f.After.Object != "":
			p.Both++
		case f.Before.Object != "":
			p.OnlyBefore++
		default:
			p.OnlyAfter++
		}
	}
	return pageTemplate.Execute(w, p)
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

// picture says where everything is drawn: Applications on the left, the namespaces'
// Brokers in the middle, subscribers on the right.
type picture struct {
	Width, Height                       int
	Lines                               []line
	Applications, Brokers, Subscribers  []node
	AppX, BrokerX, BeforeX, AfterX, End int
}

// node is a name in the picture, at the height Y.
type node struct {
	Y           int
	Color       int
	Name, Title string
	// Path is that of an Application.
	Path Path
	// Before and After are the classes of a subscriber's two dots.
	Before, After string
}

// line is how events go from one column to the next.
type line struct {
	X1, Y1, X2, Y2 int
	Color          int
	Class, Title   string
}

// Middle is where the line bends.
func (l line) Middle() int { return (l.X1 + l.X2) / 2 }

// picture puts together what belongs together: the subscribers by namespace, the
// Applications by where most of their events go.
func (m *Map) picture() picture {
	p := picture{Width: width, AppX: columnApp, BrokerX: columnBroker, BeforeX: columnEnd + 6, AfterX: columnEnd + 22, End: columnEnd + 36}
	before, after := m.states()
	namespaces, of := m.subscribers()
	colors, subY, nsY := map[string]int{}, map[string]int{}, map[string]int{}
	y := top
	for i, ns := range namespaces {
		colors[ns] = i % 8
		first := y
		for _, s := range of[ns] {
			key := ns + " " + s
			subY[key] = y
			p.Subscribers = append(p.Subscribers, node{
				Y: y, Color: colors[ns], Name: shorten(cmp.Or(s, "(no endpoint)"), 66), Title: s + ", in namespace " + ns, Before: before[key], After: after[key],
			})
			y += rowHeight
		}
		nsY[ns] = (first + y - rowHeight) / 2
		p.Brokers = append(p.Brokers, node{Y: nsY[ns], Color: colors[ns], Name: shorten(ns, 20)})
		y += rowHeight / 2
	}
	rightEnd := y

	// An Application is drawn at the mean height of what it reaches.
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
	leftEnd := top + len(apps)*rowHeight
	p.Height = max(leftEnd, rightEnd) + rowHeight
	// The shorter side is spread over the height.
	step := float64(p.Height-top-rowHeight) / float64(max(1, len(apps)))
	appY := map[string]int{}
	for i, a := range apps {
		appY[a.Name] = top + int(float64(i)*max(step, rowHeight))
		p.Applications = append(p.Applications, node{
			Y: appY[a.Name], Name: shorten(a.Name, 32), Title: a.Name + ": events take the path " + string(a.Path), Path: a.Path,
		})
	}

	// Each line once, however many kinds of event take it.
	drawn := map[line]bool{}
	draw := func(l line) {
		key := line{X1: l.X1, Y1: l.Y1, X2: l.X2, Y2: l.Y2, Class: l.Class}
		if !drawn[key] {
			drawn[key] = true
			p.Lines = append(p.Lines, l)
		}
	}
	for _, f := range m.Flows {
		app := cmp.Or(f.Application, "any")
		class := "after"
		if f.After.Object == "" {
			class = "before"
		} else if f.After.Problem != "" {
			class = "broken"
		}
		draw(line{
			X1: columnApp + 6, Y1: appY[app], X2: columnBroker - 76, Y2: nsY[f.Namespace],
			Color: colors[f.Namespace], Class: class, Title: app + " to namespace " + f.Namespace,
		})
		draw(line{
			X1: columnBroker + 76, Y1: nsY[f.Namespace], X2: columnEnd - 4, Y2: subY[f.Namespace+" "+f.Subscriber],
			Color: colors[f.Namespace], Class: class, Title: f.Event() + " of " + app + " to " + f.Subscriber,
		})
	}
	return p
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

func shorten(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}
