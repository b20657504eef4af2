package page

import (
	"fmt"
	"math"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/inspect"
	"github.com/kyma-project/eventmesh-migration/internal/wording"
)

// eventings are the Eventings that the person may see. The one that is served is first.
func (v *view) eventings(s *State, seen *Seen, now time.Time) {
	hidden := ""
	for i := range s.Eventings {
		e := &s.Eventings[i]
		if !seen.Eventing[e.Namespace] {
			hidden = e.Namespace
			continue
		}
		of := eventingOf(e, now)
		if i == 0 {
			if r := s.VolumeUsed; r != nil && e.NATS != nil {
				of.Volume = fillOf(*r*100, "of the volume")
			}
			if seen.Programs {
				of.Pods = podsOf(s.Programs)
			}
		}
		v.Eventings = append(v.Eventings, of)
	}
	if hidden != "" {
		v.Hidden = append(v.Hidden, "The Eventing, which you may not get. To see whether you may: "+
			wording.CommandLine("kubectl", "auth", "can-i", "get", inspect.Eventings.GroupResource().String(), "--namespace="+hidden))
	}
}

func eventingOf(e *inspect.Eventing, now time.Time) eventingView {
	m := bad
	switch {
	case e.Good():
		m = good
	case e.State == "" || e.State == "Processing":
		m = unknown
	}
	of := eventingView{
		ID: "e-" + e.Namespace + "/" + e.Name, Name: e.Namespace + "/" + e.Name, State: e.State, Mark: m.mark, Class: m.class, Backend: e.Backend, Version: e.Version,
	}
	if e.State == "" {
		of.State = "not looked at by an operator"
	}
	if !e.Served {
		of.State += " (not served)"
	}
	if e.Active != "" && e.Active != e.Backend {
		of.Backend += ", events still go to " + e.Active
	}
	if s := e.Switch; s != nil {
		of.Switch = fmt.Sprintf("from %s to %s, step %s for %s, %s left", s.From, s.To, s.Step, age(&s.Since, now), wording.Count(int(s.Pending), "event"))
		of.SwitchMessage = s.Message
	}
	if n := e.NATS; n != nil {
		percent := 0.0
		if n.MaxBytes > 0 {
			percent = 100 * float64(n.Bytes) / float64(n.MaxBytes)
		}
		of.Stream = fillOf(percent, fmt.Sprintf("of the stream: %s, %s of %s", wording.Count(int(n.Messages), "event"), wording.Bytes(n.Bytes), wording.Bytes(n.MaxBytes)))
		of.Servers = fmt.Sprintf("%d of %d ready, storage %s", n.Servers, n.Wanted, n.Storage)
		of.DeadLetters = number(n.DeadLetters)
		if n.DeadLetters > 0 {
			of.Letters = "kubectl eventing dead-letters list --all-namespaces"
		}
	}
	for _, p := range e.Problems {
		view := problemView{Title: p.Condition, Message: p.Message, Next: p.Next}
		if p.Reason != "" {
			view.Title += " (" + p.Reason + ")"
		}
		if p.Since != nil {
			view.Since = age(p.Since, now)
		}
		of.Problems = append(of.Problems, view)
	}
	return of
}

func podsOf(programs []inspect.Program) (all []pods) {
	for _, p := range programs {
		m := good
		if p.Ready < p.Wanted {
			m = bad
		}
		all = append(all, pods{fmt.Sprintf("%s %d/%d", p.Name, p.Ready, p.Wanted), m.mark, m.class})
	}
	return all
}

func fillOf(percent float64, of string) *fill {
	p := min(100, int(math.Floor(percent)))
	f := &fill{Text: fmt.Sprintf("%d %% %s", p, of), Percent: p, Class: good.class}
	if p >= nearlyFull {
		f.Class = bad.class
	}
	return f
}
