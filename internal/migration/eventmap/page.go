package eventmap

import (
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	template "github.com/DataDog/datadog-agent/pkg/template/html" // without calls of methods, for which the linker keeps each method of each type

	"github.com/kyma-project/eventmesh-migration/internal/flowpage"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.js
	script string

	pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
		"add": func(a, b int) int { return a + b }, "event": (*row).Event, "before": (*row).beforeState, "after": (*row).afterState,
		"lineClass": node.lineClass, "textY": node.textY, "left": picture.left, "right": picture.right,
	}).Parse(pageText))
)

const (
	// openUpTo is the number of Applications up to which the sections begin open.
	openUpTo = 50
	// problemsUpTo is how many rows the tables of problems have at most, and listUpTo how many one
	// has that begins open.
	problemsUpTo, listUpTo = 200, 20
)

// page is what the template is filled with. It holds plain values only, but for the script: the
// template escapes each for its place in the page.
type page struct {
	Cluster, At, Summary, ScriptHash string
	Map                              *Map
	OnlyBefore, OnlyAfter, Both      int
	Problems                         []problem
	// Listed are the flows with a problem that the tables have, and More those that they leave out.
	Listed, More int
	Sections     []section
	Open         bool
	// Silent are the Applications whose events nobody gets.
	Silent  []string
	Script  template.JS
	Palette template.CSS
	columns
}

// problem is what the flows Rows have, and Count of all. Explain is the ID that explain knows it
// by; "" if the cause may be one of several.
type problem struct {
	Problem, Explain string
	Count            int
	Rows             []*row
	Open             bool
}

// explained are the IDs of verify for the problems that have one cause.
var explained = map[string]string{
	problemNoTrigger: "subscription-without-trigger", problemTerminating: "subscription-terminating",
	problemNoBroker: "trigger-without-broker", problemNotReady: "trigger-not-ready",
	problemNotLinked: "link-missing", problemLinkedTwice: "link-twice", problemElsewhere: "link-elsewhere", problemLinkNotReady: "link-not-ready",
	problemNoSource: "httpsource-missing",
}

// grouped divides the flows by what is wrong with them, the problem of most flows first.
func grouped(rows []*row) (groups []problem, listed int) {
	at := map[string]int{}
	for _, r := range rows {
		i, known := at[r.Problem]
		if !known {
			i = len(groups)
			at[r.Problem] = i
			groups = append(groups, problem{Problem: r.Problem, Explain: explained[r.Problem]})
		}
		g := &groups[i]
		g.Count++
		if listed < problemsUpTo {
			g.Rows = append(g.Rows, r)
			listed++
		}
	}
	for i := range groups {
		groups[i].Open = len(groups[i].Rows) <= listUpTo
	}
	slices.SortStableFunc(groups, func(a, b problem) int { return b.Count - a.Count })
	return groups, listed
}

// section is one namespace.
type section struct {
	Name          string
	Color, Broken int
	Rows          []*row
	Picture       picture
}

// row is one flow.
type row struct {
	Flow
	// ID numbers the flows of the page; A and S are the Application and the subscriber within the
	// section.
	ID, A, S int
	App      string
	Problem  string
	Path     Path
}

// BeforeState and AfterState are the last two cells of the row.
func (r *row) beforeState() state { return stateOf(r.Before) }
func (r *row) afterState() state  { return stateOf(r.After) }

// state is a route with its symbol: colour alone tells nothing to some readers.
type state struct {
	Route
	Class, Mark string
}

// The page's styles have a word for each, which screen readers say instead of the symbol.
var (
	works  = state{Class: "y", Mark: "✓"}
	broken = state{Class: "x", Mark: "✗"}
	absent = state{Class: "o", Mark: "○"}
)

func stateOf(r Route) state {
	s := works
	switch {
	case r.Object == "":
		s = absent
	case r.Problem != "":
		s = broken
	}
	s.Route = r
	return s
}

// problem says what stops the events of a flow, or will after the switch; "" if nothing does.
func (f Flow) problem(path Path) string {
	switch {
	case f.After.Object != "":
		return f.After.Problem
	case path == PathMesh || path == PathBoth:
		return problemNoTrigger
	}
	return f.Before.Problem
}

// onMesh says whether the events of a flow take the mesh, and arrive.
func (f Flow) onMesh(path Path) bool {
	return path == PathMesh && f.After.Object != "" && f.After.Problem == ""
}

// WriteHTML writes one page that needs nothing else: pictures and script are part of it, and its
// policy forbids every request.
func (m *Map) WriteHTML(w io.Writer, cluster string, at time.Time) error {
	p := page{
		Cluster: cluster, At: at.UTC().Format("2006-01-02 15:04 UTC"), Map: m, ScriptHash: flowpage.Hash(script), Palette: flowpage.Palette, Script: template.JS(script), //nolint:gosec // it is ours
		Open: len(m.Applications) <= openUpTo, columns: theColumns,
	}
	paths := map[string]Path{}
	for _, a := range m.Applications {
		paths[a.Name] = a.Path
	}
	of := map[string][]*row{}
	heard := map[string]bool{}
	onMesh := 0
	var problems []*row
	for i, f := range m.Flows {
		app := cmp.Or(f.Application, "any")
		r := &row{Flow: f, ID: i + 1, App: app, Path: paths[app], Problem: f.problem(paths[app])}
		of[f.Namespace] = append(of[f.Namespace], r)
		heard[app] = true
		if f.onMesh(r.Path) {
			onMesh++
		}
		if r.Problem != "" {
			problems = append(problems, r)
		}
		switch {
		case f.Before.Object != "" && f.After.Object != "":
			p.Both++
		case f.Before.Object != "":
			p.OnlyBefore++
		default:
			p.OnlyAfter++
		}
	}
	p.Summary = summary(onMesh, len(m.Flows), problems)
	p.Problems, p.Listed = grouped(problems)
	p.More = len(problems) - p.Listed
	namespaces, _ := m.subscribers()
	for i, ns := range namespaces {
		s := section{Name: ns, Color: i % flowpage.Colors, Rows: of[ns]}
		s.Picture = arrange(ns, s.Rows)
		for _, r := range s.Rows {
			if r.Problem != "" {
				s.Broken++
			}
		}
		p.Sections = append(p.Sections, s)
	}
	for _, a := range m.Applications {
		if !heard[a.Name] {
			p.Silent = append(p.Silent, a.Name)
		}
	}
	return pageTemplate.Execute(w, p)
}

// summary is the page in one sentence.
func summary(onMesh, flows int, problems []*row) string {
	s := fmt.Sprintf("%d of %d on the mesh, ", onMesh, flows)
	if len(problems) == 0 {
		return s + "nothing is broken"
	}
	const named = 3
	var names []string
	for _, r := range problems[:min(named, len(problems))] {
		names = append(names, r.App+" → "+flowpage.Shorten(cmp.Or(flowpage.Host(r.Subscriber), "no endpoint"), 60))
	}
	s += fmt.Sprintf("%d broken: %s", len(problems), strings.Join(names, ", "))
	if more := len(problems) - len(names); more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

// columns say where the parts of a picture are drawn, in pixels: Applications on the left, the
// namespace's Broker in the middle, subscribers on the right.
type columns struct {
	// NameX is the right edge of the Applications' names, AppX the middle of their marks. BeforeX
	// and AfterX are the left edges of a subscriber's marks.
	NameX, AppX, BrokerX, BeforeX, AfterX int
	// End is the left edge of the subscribers' names.
	End int
}

var theColumns = columns{NameX: 228, AppX: 240, BrokerX: 440, BeforeX: 640, AfterX: 658, End: 678}

const (
	rowHeight = 22
	width     = 1200
	top       = 68
)

// picture says where everything of one namespace is drawn.
type picture struct {
	columns
	Name, Short               string
	Width, Height, BrokerY    int
	Applications, Subscribers []node
}

// node is a name in the picture, at the height Y, with the line between it and the Broker.
type node struct {
	Y int
	// Name may be shortened; Title then has all of it, and more on an Application.
	Name, Title string
	// Row is a flow that takes the line.
	Row int
	// Line is as bad as the worst of the flows: 0 works, 1 before only, 2 broken.
	Line int
	// Class and Mark are those of an Application.
	Class, Mark string
	// Before and After are those of a subscriber. In the picture, one text has both and the name:
	// the page stays small.
	Before, After state
}

// LineClass is the class of the line in the page.
func (n node) lineClass() string { return []string{"", "before", "broken"}[n.Line] }

// TextY is the base line of the texts.
func (n node) textY() int { return n.Y + 4 }

// curve is a line from the right or left end of the Broker to the height of a node, over so many
// pixels.
func (p picture) curve(x, wide int, n node) string {
	return flowpage.Curve(x, p.BrokerY, wide, n.Y-p.BrokerY)
}

// Left is the line of an Application, and Right that of a subscriber.
func (p picture) left(n node) string {
	return p.curve(p.BrokerX-76, p.AppX+9-p.BrokerX+76, n)
}
func (p picture) right(n node) string {
	return p.curve(p.BrokerX+76, p.BeforeX-4-p.BrokerX-76, n)
}

var marks = map[Path]node{
	PathMesh:     {Class: "y", Mark: "✓", Title: "events take the mesh"},
	PathBoth:     {Class: "o", Mark: "◐", Title: "the switch to the mesh is not finished"},
	PathEventBus: {Class: "o", Mark: "●", Title: "events take the Event Bus"},
	PathNone:     {Class: "o", Mark: "○", Title: "it has no event-service"},
}

// worse is the state of several routes at once: broken if one is, then absent if one is.
func worse(a, b state) state {
	rank := []string{"", works.Class, absent.Class, broken.Class}
	if slices.Index(rank, a.Class) > slices.Index(rank, b.Class) {
		return a
	}
	return b
}

// arrange lays out the picture of a namespace, and numbers the Applications and subscribers of its
// rows.
func arrange(namespace string, rows []*row) picture {
	p := picture{columns: theColumns, Width: width, Name: namespace, Short: flowpage.Shorten(namespace, 20)}
	// Both sides are in the order of the rows, which is that of the Applications.
	apps, subs := map[string]int{}, map[string]int{}
	for _, r := range rows {
		if _, known := apps[r.App]; !known {
			apps[r.App] = len(p.Applications)
			n, known := marks[r.Path]
			if !known {
				n = marks[PathNone]
			}
			n.Title, n.Name, n.Row = r.App+": "+n.Title, flowpage.Shorten(r.App, 30), r.ID
			p.Applications = append(p.Applications, n)
		}
		if _, known := subs[r.Subscriber]; !known {
			subs[r.Subscriber] = len(p.Subscribers)
			n := node{Name: flowpage.Shorten(cmp.Or(r.Subscriber, "(no endpoint)"), 66), Row: r.ID}
			if n.Name != r.Subscriber {
				n.Title = r.Subscriber
			}
			p.Subscribers = append(p.Subscribers, n)
		}
		r.A, r.S = apps[r.App], subs[r.Subscriber]
		s := &p.Subscribers[r.S]
		s.Before, s.After = worse(s.Before, r.beforeState()), worse(s.After, r.afterState())
		line := 0
		switch {
		case r.Problem != "":
			line = 2
		case r.After.Object == "":
			line = 1
		}
		for _, n := range []*node{&p.Applications[r.A], s} {
			if line > n.Line {
				n.Line, n.Row = line, r.ID
			}
		}
	}
	tall := max(len(p.Applications), len(p.Subscribers), 1)
	p.Height = top + tall*rowHeight
	spread := func(nodes []node) {
		for i := range nodes {
			nodes[i].Y = flowpage.Spread(i, len(nodes), tall, top, rowHeight)
		}
	}
	spread(p.Applications)
	spread(p.Subscribers)
	p.BrokerY = top + (tall-1)*rowHeight/2
	return p
}
