package model

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// refusal is a limit of the cluster that one process meets: some of its writes are refused, the
// first ones or all.
type refusal struct {
	name, verb, plural string
	// after is how many of them are taken before, n how many are refused then; 0: all.
	after, n int64
}

// refusedWrites are the writes that a refusal may concern: those of the plans, and those of the
// journal.
var refusedWrites = [][2]string{
	{"create", "sinks"}, {"create", "instances"}, {"create", "secrets"}, {"create", "sources"},
	{"patch", "namespaces"}, {"patch", "workers"}, {"patch", "sources"}, {"patch", "secrets"},
	{"delete", "sources"}, {"delete", "sinks"}, {"delete", "instances"},
}

// restrict chooses the process that meets a limit, in one of eight schedules, which is then neither
// killed nor asked to stop. Like press, it does not use the numbers of the schedule.
func (s *Schedule) restrict() {
	n := mix(s.Seed ^ 0x726566757365)
	if s.pressure != 0 || n%8 != 0 {
		return
	}
	p := s.processes[0]
	if s.undo != nil && n/8%3 == 0 {
		p = s.undo
	}
	names := slices.Sorted(maps.Keys(Refusals))
	n = mix(n)
	of := refusedWrites[n%uint64(len(refusedWrites))]
	p.limit = &refusal{name: names[n/101%uint64(len(names))], verb: of[0], plural: of[1], after: int64(n / 1009 % 2), n: int64(n / 10007 % 3)}
	p.kill, p.term, p.spite, p.after = nil, nil, false, false
}

// limited makes the server refuse what the process is to meet.
func (s *Schedule) limited(p *process, client Process) {
	c, ok := client.(*Client)
	r := p.limit
	if !ok || r == nil {
		return
	}
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

// alter makes the API server change what it is given, in one of twelve schedules, as webhooks and
// schemas do: the first Source that a rollback or an undo restores, or each Sink that is created;
// or it serves a kind at another version when the undo begins. It does not use the numbers of the
// schedule either.
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
