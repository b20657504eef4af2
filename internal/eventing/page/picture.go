package page

import (
	"cmp"
	"fmt"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/inspect"
	"github.com/kyma-project/eventmesh-migration/internal/flowpage"
)

const (
	rowHeight = 22
	top       = 52
	width     = 1200
	// mostTypesDrawn is how many types of one Subscription are drawn.
	mostTypesDrawn = 3
)

// columns say where the names of each kind begin, how wide they are, and how many characters fit.
var columns = [4]struct{ x, wide, chars int }{{12, 180, 24}, {282, 220, 30}, {592, 220, 30}, {902, 286, 39}}

// picture is the flow of events from the left to the right: sources, types, Subscriptions, sinks.
type picture struct {
	Width, Height int
	Heads         []node
	Nodes         []node
	Lines         []line
	// More Subscriptions are not drawn.
	More int
}

type node struct {
	ID, Text, Title, Mark, Class string
	X, Y                         int
	column, index                int
}

type line struct{ Path, Class string }

// edge is a line between nodes, of a Subscription in a state.
type edge struct {
	from, to int
	state    mark
	color    int
}

// arrange lays out Subscriptions.
func arrange(all []inspect.Subscription, of int) picture {
	p := picture{Width: width, More: of - len(all)}
	for c, head := range []string{"Source", "Type", "Subscription", "Sink"} {
		p.Heads = append(p.Heads, node{Text: head, X: columns[c].x, Y: 22})
	}
	var edges []edge
	at, count := map[string]int{}, [4]int{}
	add := func(column int, key, text string, m mark) int {
		id := fmt.Sprintf("%d-%s", column, key)
		i, known := at[id]
		if !known {
			i = len(p.Nodes)
			at[id] = i
			p.Nodes = append(p.Nodes, node{ID: "n" + id, Text: flowpage.Shorten(text, columns[column].chars), Title: text, Class: good.class, column: column, index: count[column]})
			count[column]++
		}
		if n := &p.Nodes[i]; m == bad || m == unknown && n.Class == good.class {
			n.Class = m.class
		}
		return i
	}
	for i := range all {
		s := &all[i]
		m, key := stateOf(s), s.Namespace+"/"+s.Name
		subscription := add(2, key, key, m)
		p.Nodes[subscription].Mark = m.mark
		color := i % flowpage.Colors
		for j, t := range s.Types {
			more := len(s.Types) - mostTypesDrawn
			if j == mostTypesDrawn && more > 0 {
				t = fmt.Sprintf("%d more types", more)
			}
			source := add(0, s.Source, sourceOf(s), m)
			kind := add(1, s.Source+"/"+t, t, m)
			edges = append(edges, edge{source, kind, m, color}, edge{kind, subscription, m, color})
			if j == mostTypesDrawn {
				break
			}
		}
		sink := add(3, s.Sink, cmp.Or(sinkOf(s), "(no sink)"), m)
		edges = append(edges, edge{subscription, sink, m, color})
	}
	p.place(edges, count)
	return p
}

func (p *picture) place(edges []edge, count [4]int) {
	tall := max(1, count[0], count[1], count[2], count[3])
	p.Height = top + tall*rowHeight
	for i := range p.Nodes {
		n := &p.Nodes[i]
		n.X, n.Y = columns[n.column].x, flowpage.Spread(n.index, count[n.column], tall, top, rowHeight)
	}
	drawn := map[string]bool{}
	for _, e := range edges {
		a, b := p.Nodes[e.from], p.Nodes[e.to]
		x := a.X + columns[a.column].wide
		l := line{Path: flowpage.Curve(x, a.Y-4, b.X-8-x, b.Y-a.Y), Class: fmt.Sprintf("c%d", e.color)}
		if e.state != good {
			l.Class += " " + e.state.class
		}
		// If two lines overlap, the one with the problem is drawn: it comes first.
		if !drawn[l.Path] {
			drawn[l.Path] = true
			p.Lines = append(p.Lines, l)
		}
	}
}
