package eventmap

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteTable writes the map for people.
func (m *Map) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "APPLICATION\tPATH\tEVENT\tNAMESPACE\tSUBSCRIBER\tBEFORE\tAFTER")
	flowing := map[string]bool{}
	path := map[string]Path{}
	for _, a := range m.Applications {
		path[a.Name] = a.Path
	}
	for _, f := range m.Flows {
		flowing[f.Application] = true
		app := cmp.Or(f.Application, "any")
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", app, path[app], f.Event(), f.Namespace, f.Subscriber, f.Before, f.After)
	}
	for _, a := range m.Applications {
		if !flowing[a.Name] && a.Name != "any" {
			fmt.Fprintf(t, "%s\t%s\t<none>\t\t\t\t\n", a.Name, a.Path)
		}
	}
	return t.Flush()
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

// WriteMermaid writes the map as a flow chart: dashed before, solid after.
func (m *Map) WriteMermaid(w io.Writer) error {
	var b strings.Builder
	quote := func(s string) string {
		return `"` + strings.NewReplacer(`"`, "#quot;", "<", "#lt;", ">", "#gt;").Replace(s) + `"`
	}
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

func label(f Flow, when string, r Route) string {
	s := f.Event() + ", " + when
	if r.Problem != "" {
		s += ": " + r.Problem
	}
	return s
}
