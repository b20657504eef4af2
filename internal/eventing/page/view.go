// Package page renders the live page of eventing: the state of eventing, the Subscriptions that
// have problems, and the flow of events from sources to sinks. It only reads, and shows each user
// only what that user may read. It does not show the content of events.
package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/inspect"
	"github.com/kyma-project/eventmesh-migration/internal/flowpage"
	"github.com/kyma-project/eventmesh-migration/internal/wording"
)

// What the largest tables have at most: the rest is found by the search.
const (
	mostSubscriptions = 50
	mostGroups        = 20
	mostDrawn         = 24
	mostTypes         = 4
	mostQuery         = 200
)

// The size at which, in percent, a volume or a stream is shown as nearly full.
const nearlyFull = 80

// State is all that was read of a cluster at a time.
type State struct {
	At        time.Time
	Home      inspect.Home
	Eventings []inspect.Eventing
	Programs  []inspect.Program
	// Subscriptions are all of them, those in trouble first.
	Subscriptions []inspect.Subscription
	// VolumeUsed is the part of the volume of NATS that is taken, nil if nobody knows.
	VolumeUsed *float64
	// NotRead is what could not be read, each with why.
	NotRead []string
}

// Seen is what a person may see.
type Seen struct {
	User string
	// All namespaces, or else those in which it is true.
	All        bool
	Namespaces map[string]bool
	// Eventing tells for each namespace with an Eventing whether its Eventings may be seen.
	Eventing map[string]bool
	// Programs: the Deployments of the operator's namespace may be seen.
	Programs bool
}

func (s *Seen) subscriptions(namespace string) bool { return s.All || s.Namespaces[namespace] }

// view is what the template is filled with: plain values, which it escapes for their places.
type view struct {
	User, Query, At string
	// Mark and Class are those of the summary.
	Mark, Class, Summary string
	Eventings            []eventingView
	// Hidden and NotRead say what is not on the page, and why.
	Hidden, NotRead []string
	// Total is how many Subscriptions the person may see, Hits how many the search has found.
	Total, Hits, Troubled int
	Rows                  []row
	MoreRows              int
	Picture               picture
	Sources, Sinks        []group
	MoreSources           int
	MoreSinks             int
}

// eventingView is an Eventing.
type eventingView struct {
	ID, Name, State, Mark, Class, Backend, Switch, SwitchMessage, Version string
	Stream, Volume                                                        *fill
	Servers, DeadLetters                                                  string
	// Letters is the command that lists dead letters.
	Letters  string
	Pods     []pods
	Problems []problemView
}

// fill is how full something is.
type fill struct {
	Text    string
	Percent int
	Class   string
}

type pods struct{ Text, Mark, Class string }

type problemView struct{ Title, Since, Message, Next string }

// row is a Subscription.
type row struct {
	ID, Namespace, Name, Mark, Class, State string
	Source, Sink                            string
	Types                                   []string
	MoreTypes                               int
	Backlog, Oldest, Repeating, Dead        string
	// Said is the last answer, where Why does not say it.
	Answer, Said, Why, Since, Next, Explain string
}

// group is a source or a sink with what is known of its Subscriptions.
type group struct {
	ID, Name, Mark, Class, State string
	Subscriptions, Troubled      int
	Backlog, Dead                string
	Types                        []string
	MoreTypes                    int
	Answer                       string

	backlog, dead int64
	known         bool
}

// mark is a state with a symbol: colour alone tells nothing to some readers.
type mark struct{ class, mark, word string }

var (
	good    = mark{"y", "✓", "well"}
	bad     = mark{"x", "✗", "in trouble"}
	unknown = mark{"o", "○", "not ready yet"}
)

// viewOf is what a person sees of a state who searches for a query.
func viewOf(s *State, seen *Seen, query string, now time.Time) *view {
	query = strings.TrimSpace(query)
	if r := []rune(query); len(r) > mostQuery {
		query = string(r[:mostQuery])
	}
	v := &view{User: seen.User, Query: query, At: s.At.UTC().Format("15:04:05 UTC"), NotRead: s.NotRead}
	v.eventings(s, seen, now)
	var found []inspect.Subscription
	words, hidden := strings.Fields(strings.ToLower(query)), false
	for i := range s.Subscriptions {
		sub := &s.Subscriptions[i]
		if !seen.subscriptions(sub.Namespace) {
			hidden = true
			continue
		}
		v.Total++
		if sub.Problem != nil {
			v.Troubled++
		}
		if matches(sub, words) {
			found = append(found, *sub)
		}
	}
	v.Hits = len(found)
	if hidden || !seen.All && v.Total == 0 {
		v.Hidden = append(v.Hidden, "Subscriptions of namespaces in which you may not list them. To see whether you may: kubectl auth can-i list subscriptions.eventing.kyma-project.io --namespace=NAMESPACE")
	}
	for i := range found[:min(len(found), mostSubscriptions)] {
		v.Rows = append(v.Rows, rowOf(&found[i], now))
	}
	v.MoreRows = len(found) - len(v.Rows)
	v.Sources, v.MoreSources = sources(found)
	v.Sinks, v.MoreSinks = sinks(found)
	v.Picture = arrange(found[:min(len(found), mostDrawn)], len(found))
	v.summary(s, seen)
	return v
}

// summary is the page in one sentence.
func (v *view) summary(s *State, seen *Seen) {
	m, text := good, ""
	for _, e := range v.Eventings {
		text += fmt.Sprintf("Eventing %s is %s. ", e.Name, e.State)
		if e.Class == bad.class {
			m = bad
		}
	}
	if len(s.Eventings) == 0 && len(s.NotRead) == 0 {
		m, text = bad, "There is no Eventing in the cluster. "
	}
	switch {
	case v.Total == 0 && seen.All:
		text += "There is no Subscription"
	case v.Total == 0:
		text += "You may see no Subscription"
	case v.Troubled == 0:
		text += fmt.Sprintf("No problem is known of %s", wording.Count(v.Total, "Subscription"))
	default:
		m = bad
		text += fmt.Sprintf("%s of %s in trouble", wording.Number(v.Troubled), wording.Count(v.Total, "Subscription"))
	}
	if len(s.NotRead) > 0 && m == good {
		m = unknown
	}
	v.Mark, v.Class, v.Summary = m.mark, m.class, text
}

// matches tells whether a Subscription has all words.
func matches(s *inspect.Subscription, words []string) bool {
	if len(words) == 0 {
		return true
	}
	parts := append([]string{s.Namespace + "/" + s.Name, s.Source, s.Sink, s.LastAnswer(), stateOf(s).word}, s.Types...)
	if s.Problem != nil {
		parts = append(parts, s.Problem.Reason, s.Problem.Message)
	}
	text := strings.ToLower(strings.Join(parts, "\n"))
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

func stateOf(s *inspect.Subscription) mark {
	switch {
	case s.Problem != nil:
		return bad
	case !s.Ready:
		return unknown
	}
	return good
}

func rowOf(s *inspect.Subscription, now time.Time) row {
	m := stateOf(s)
	r := row{
		ID: "s-" + s.Namespace + "/" + s.Name, Namespace: s.Namespace, Name: s.Name, Mark: m.mark, Class: m.class, State: m.word,
		Source: sourceOf(s), Sink: sinkOf(s), Backlog: "-", Oldest: "-", Repeating: "-", Dead: "-", Answer: cmp.Or(s.LastAnswer(), "-"),
	}
	r.Types, r.MoreTypes = cut(s.Types)
	if d := s.Delivery; d != nil {
		r.Backlog, r.Oldest, r.Repeating, r.Dead = number(d.Backlog), age(d.Oldest, now), number(d.Repeating), number(d.DeadLetters)
	}
	if p := s.Problem; p != nil {
		r.Why, r.Next, r.Explain = p.Message, p.Next, explain(p.Reason)
		if r.Answer != "-" && !strings.HasPrefix(r.Why, r.Answer) {
			r.Said = r.Answer
		}
		if p.Since != nil {
			r.Since = age(p.Since, now)
		}
	}
	return r
}

// explain is the command that says more about a reason.
func explain(reason string) string {
	if reason == "" {
		return ""
	}
	return wording.CommandLine("kubectl", "eventing", "explain", strings.ReplaceAll(reason, " ", "-"))
}

func sourceOf(s *inspect.Subscription) string {
	return cmp.Or(s.Source, "(named by the types)")
}

// sinkOf is the sink without what is the same in most of them.
func sinkOf(s *inspect.Subscription) string {
	return strings.Replace(flowpage.Host(s.Sink), ".svc.cluster.local", "", 1)
}

func cut(types []string) (some []string, more int) {
	some = types[:min(len(types), mostTypes)]
	return some, len(types) - len(some)
}

func number(n int64) string { return wording.Number(int(n)) }

// age of a time, "-" if it is not known.
func age(t *metav1.Time, now time.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(0, now.Sub(t.Time)))
}

// add counts a Subscription of a source or a sink.
func (g *group) add(s *inspect.Subscription) {
	g.Subscriptions++
	m := stateOf(s)
	if m == bad {
		g.Troubled++
	}
	if g.Class == "" || m == bad || m == unknown && g.Class == good.class {
		g.Mark, g.Class, g.State = m.mark, m.class, m.word
		g.Answer = cmp.Or(s.LastAnswer(), "-")
	}
	if d := s.Delivery; d != nil {
		g.known = true
		g.backlog += d.Backlog
		g.dead += d.DeadLetters
	}
	g.Backlog, g.Dead = "-", "-"
	if g.known {
		g.Backlog, g.Dead = number(g.backlog), number(g.dead)
	}
}

// grouped divides Subscriptions, which have those in trouble first, by a name.
func grouped(id string, all []inspect.Subscription, name func(*inspect.Subscription) string, each func(*group, *inspect.Subscription)) ([]group, int) {
	at := map[string]int{}
	var groups []group
	for i := range all {
		s := &all[i]
		n := name(s)
		j, known := at[n]
		if !known {
			j = len(groups)
			at[n] = j
			groups = append(groups, group{ID: id + n, Name: n})
		}
		groups[j].add(s)
		if each != nil {
			each(&groups[j], s)
		}
	}
	slices.SortStableFunc(groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(min(b.Troubled, 1), min(a.Troubled, 1)), cmp.Compare(b.backlog, a.backlog))
	})
	some := groups[:min(len(groups), mostGroups)]
	return some, len(groups) - len(some)
}

func sources(all []inspect.Subscription) ([]group, int) {
	groups, more := grouped("from-", all, sourceOf, func(g *group, s *inspect.Subscription) {
		for _, t := range s.Types {
			if !slices.Contains(g.Types, t) {
				g.Types = append(g.Types, t)
			}
		}
	})
	for i := range groups {
		slices.Sort(groups[i].Types)
		groups[i].Types, groups[i].MoreTypes = cut(groups[i].Types)
	}
	return groups, more
}

func sinks(all []inspect.Subscription) ([]group, int) {
	return grouped("to-", all, func(s *inspect.Subscription) string { return cmp.Or(sinkOf(s), "(no sink)") }, nil)
}
