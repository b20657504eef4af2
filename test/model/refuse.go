package model

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// refusal is a limit of the cluster that one process meets: some of its writes are refused, the first ones or all.
type refusal struct {
	name, verb, plural string
	// after is how many of them are taken before, n how many are refused then; 0: all.
	after, n int64
}

// refusedWrites are the writes that a refusal may concern: those of the plans, and those of the journal.
var refusedWrites = [][2]string{
	{"create", "sinks"}, {"create", "sources"}, {"create", "instances"}, {"create", "secrets"},
	{"patch", "sources"}, {"patch", "namespaces"}, {"patch", "workers"}, {"update", "secrets"}, {"patch", "secrets"},
	{"delete", "sources"}, {"delete", "sinks"}, {"delete", "instances"}, {"delete", "brokers"},
}

// refuses chooses the refusal that a process of the schedule meets; in one of five schedules there is one. It does not use the
// numbers of the schedule, so that what a seed made before stays as it was where there is none.
func (s *Schedule) refuses(p *process) *refusal {
	n := mix(s.Seed ^ 0x726566757365)
	if s.pressure != 0 || n%5 != 0 {
		return nil
	}
	n /= 5
	all := s.processes
	if s.undo != nil {
		all = append(slices.Clone(all), s.undo)
	}
	if p != all[n%uint64(len(all))] {
		return nil
	}
	names := slices.Sorted(maps.Keys(Refusals))
	n = mix(n)
	of := refusedWrites[n/7%uint64(len(refusedWrites))]
	return &refusal{name: names[n/101%uint64(len(names))], verb: of[0], plural: of[1], after: int64(n / 1009 % 3), n: int64(n / 10007 % 3)}
}

// limit makes the server refuse what the process is to meet.
func (s *Schedule) limit(p *process, client Process) {
	c, ok := client.(*Client)
	r := s.refuses(p)
	if !ok || r == nil {
		return
	}
	p.limit = r
	s.note("%s meets a limit: %+v", p.name, *r)
	var seen atomic.Int64
	c.Refuse(func(req *Request) error {
		if req.Verb != r.verb || req.Plural != r.plural {
			return nil
		}
		if n := seen.Add(1); n <= r.after || r.n > 0 && n > r.after+r.n {
			return nil
		}
		s.note("%s is refused (%s): %s", p.name, r.name, req)
		return Refusals[r.name](req)
	})
}

const (
	// altered is what a webhook makes of the endpoint of a Source.
	altered = "http://altered"
	// protocol is a field that the API server adds.
	protocol = "protocol"
)

// alter makes the API server change what it is given, in one of twelve schedules, as webhooks and schemas do: the first Source that
// a rollback or an undo restores, or each Sink that is created; or it serves a kind at another version when the undo begins. It does
// not use the numbers of the schedule either.
func (s *Schedule) alter(p *process, client Process) {
	c, ok := client.(*Client)
	n := mix(s.Seed ^ 0x616c746572)
	if !ok || n%12 != 0 {
		return
	}
	first := len(s.ran) == 1
	switch n / 12 % 3 {
	case 0:
		if !first {
			return
		}
		var once atomic.Bool
		c.server.Admit(func(r *Request, obj Object) {
			if r.Verb != "create" || r.Plural != "sources" || !isRun(r.Actor) || !once.CompareAndSwap(false, true) {
				return
			}
			if spec, ok := obj["spec"].(Object); ok {
				spec["endpoint"] = altered
			}
		})
		s.note("a webhook alters the first Source that is restored")
	case 1:
		if !first {
			return
		}
		c.server.Admit(func(r *Request, obj Object) {
			if r.Verb != "create" || r.Plural != "sinks" {
				return
			}
			if spec, ok := obj["spec"].(Object); ok {
				spec[protocol] = "http/1.1"
			}
		})
		s.note("the API server adds a default to each Sink")
	default:
		if p != s.undo {
			return
		}
		of := []migration.Resource{sinks, sources, instances}[n/36%3]
		versions := [][]string{{"v2"}, {"v2", "v1"}}[n/108%2]
		c.server.Serve(of.GroupResource(), versions...)
		s.note("%s are served at %q", of.Resource, versions)
	}
}

// limits holds what a report calls a missing permission to the limit that the process met.
func (c *checker) limits(p *process) {
	if p.limit == nil || p.limit.name == "permission" || p.limit.name == "account" {
		return
	}
	for _, f := range p.report.Findings {
		if strings.HasPrefix(f.ID, "permission-") {
			c.fail("(viii) %s met the limit %q, and calls it a permission: %s", p.name, p.limit.name, f)
		}
	}
}

// happened holds a report to the history: what it calls done, some run has written, or, of a patch, a user in the same words.
func (c *checker) happened(p *process) {
	for _, ch := range p.report.Changes {
		if ch.Result != migration.ChangeDone || ch.Verb == migration.Restart || ch.Verb == migration.Await {
			continue
		}
		if !slices.ContainsFunc(c.past, func(w Write) bool {
			switch {
			case !isRun(w.Actor) && (ch.Verb != migration.Patch || !isUser(w.Actor)) || w.Version > p.until || w.Kind != ch.Kind || w.Key.Namespace != ch.Namespace || w.Key.Name != ch.Name:
				return false
			case ch.Verb == migration.Delete:
				return w.After == nil || deleting(w.After)
			case ch.Verb == migration.Patch:
				return w.Before != nil && w.After != nil
			default:
				return w.Before == nil
			}
		}) {
			c.fail("(vii) %s says that %s of %s %s/%s is done, and nobody has done it", p.name, ch.Verb, ch.Kind, ch.Namespace, ch.Name)
		}
	}
}
