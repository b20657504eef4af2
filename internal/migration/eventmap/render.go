package eventmap

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Rows are the map as a table, with its head.
func (m *Map) Rows() [][]string {
	rows := [][]string{{"APPLICATION", "PATH", "EVENT", "NAMESPACE", "SUBSCRIBER", "BEFORE", "AFTER"}}
	flowing := map[string]bool{}
	path := map[string]Path{}
	for _, a := range m.Applications {
		path[a.Name] = a.Path
	}
	for _, f := range m.Flows {
		flowing[f.Application] = true
		app := cmp.Or(f.Application, "any")
		rows = append(rows, []string{app, string(path[app]), f.Event(), f.Namespace, f.Subscriber, f.Before.String(), f.After.String()})
	}
	for _, a := range m.Applications {
		if !flowing[a.Name] && a.Name != "any" {
			rows = append(rows, []string{a.Name, string(a.Path), "<none>", "", "", "", ""})
		}
	}
	return rows
}

// String is the route in one cell of a table.
func (r Route) String() string {
	switch {
	case r.Object == "":
		return "-"
	case r.Problem != "":
		return r.Object + " (" + r.Problem + ")"
	}
	return r.Object
}

// ids numbers names: an identifier of Mermaid cannot hold everything.
type ids struct {
	prefix string
	of     map[string]string
}

func (i *ids) get(name string) string {
	if id, ok := i.of[name]; ok {
		return id
	}
	if i.of == nil {
		i.of = map[string]string{}
	}
	id := fmt.Sprintf("%s%d", i.prefix, len(i.of)+1)
	i.of[name] = id
	return id
}

// mermaidEdges is how many edges a flow chart has at most: Mermaid refuses more than 500.
const mermaidEdges = 400

func quote(s string) string {
	return `"` + strings.NewReplacer(`"`, "#quot;", "<", "#lt;", ">", "#gt;").Replace(s) + `"`
}

// WriteMermaid writes the map as a flow chart: dashed before, solid after. With too many edges for
// one chart, they are grouped: by Application and namespace, or else by the path of the
// Applications and namespace.
func (m *Map) WriteMermaid(w io.Writer) error {
	edges := 0
	for _, f := range m.Flows {
		for _, r := range []Route{f.Before, f.After} {
			if r.Object != "" {
				edges++
			}
		}
	}
	if edges > mermaidEdges {
		return m.writeGrouped(w, edges)
	}
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	apps, subs := &ids{prefix: "a"}, &ids{prefix: "s"}
	for _, a := range m.Applications {
		id := apps.get(a.Name)
		fmt.Fprintf(&b, "  %s[%s]\n", id, quote(a.Name))
	}
	namespaces, of := m.subscribers()
	for i, ns := range namespaces {
		fmt.Fprintf(&b, "  subgraph n%d[%s]\n", i+1, quote(ns))
		for _, s := range of[ns] {
			id := subs.get(ns + " " + s)
			fmt.Fprintf(&b, "    %s(%s)\n", id, quote(cmp.Or(s, "no endpoint")))
		}
		b.WriteString("  end\n")
	}
	for _, f := range m.Flows {
		from := apps.get(cmp.Or(f.Application, "any"))
		to := subs.get(f.Namespace + " " + f.Subscriber)
		if f.Before.Object != "" {
			fmt.Fprintf(&b, "  %s -. %s .-> %s\n", from, quote(label(f, "before", f.Before)), to)
		}
		if f.After.Object != "" {
			fmt.Fprintf(&b, "  %s -- %s --> %s\n", from, quote(label(f, "after", f.After)), to)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeGrouped writes one edge for all flows with the same ends.
func (m *Map) writeGrouped(w io.Writer, edges int) error {
	paths := map[string]Path{}
	count := map[Path]int{}
	for _, a := range m.Applications {
		paths[a.Name] = a.Path
		count[a.Path]++
	}
	type ends struct{ from, to string }
	type group struct{ before, after, broken int }
	by := func(from func(app string) string) map[ends]*group {
		groups := map[ends]*group{}
		for _, f := range m.Flows {
			app := cmp.Or(f.Application, "any")
			key := ends{from(app), f.Namespace}
			g := groups[key]
			if g == nil {
				g = &group{}
				groups[key] = g
			}
			switch {
			case f.problem(paths[app]) != "":
				g.broken++
			case f.After.Object != "":
				g.after++
			default:
				g.before++
			}
		}
		return groups
	}
	groups := by(func(app string) string { return app })
	what := "by Application and namespace"
	if len(groups) > mermaidEdges {
		groups = by(func(app string) string { return fmt.Sprintf("%d Applications, path %s", count[paths[app]], paths[app]) })
		what = "by path and namespace"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "flowchart LR\n  %%%% %d edges are grouped %s\n", edges, what)
	sorted := slices.SortedFunc(maps.Keys(groups), func(a, b ends) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	left, right := &ids{prefix: "a"}, &ids{prefix: "n"}
	for _, e := range sorted {
		if _, known := left.of[e.from]; !known {
			fmt.Fprintf(&b, "  %s[%s]\n", left.get(e.from), quote(e.from))
		}
		if _, known := right.of[e.to]; !known {
			fmt.Fprintf(&b, "  %s(%s)\n", right.get(e.to), quote(e.to))
		}
	}
	for _, e := range sorted {
		g := groups[e]
		var parts []string
		for _, p := range []struct {
			n    int
			what string
		}{{g.before, "before"}, {g.after, "after"}, {g.broken, "broken"}} {
			if p.n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
			}
		}
		arrow := "-- %s -->"
		if g.after == 0 {
			arrow = "-. %s .->"
		}
		fmt.Fprintf(&b, "  %s "+arrow+" %s\n", left.get(e.from), quote(strings.Join(parts, ", ")), right.get(e.to))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func label(f Flow, when string, r Route) string {
	s := f.Event() + ", " + when
	if r.Problem != "" {
		s += ": " + r.Problem
	}
	return s
}
