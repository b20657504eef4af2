package model

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// again lets a user delete a namespace and create it again under its name, with other objects, in
// one of ten schedules: at a write of the first process, or when that has ended. It draws none of
// the numbers of the schedule. Worlds on a real server have no controller that would empty a
// namespace.
func (s *Schedule) again() {
	drawn := mix(s.Seed ^ 0x616761696e)
	if drawn%10 != 0 || s.pressure != 0 {
		return
	}
	space := s.World.Spaces[drawn/10%8/7] // mostly the one in which everything is
	at := moment{2 + int(drawn/80%12), true}
	if drawn/960%3 == 0 {
		at = moment{1 << 20, true}
	}
	first := s.processes[0]
	first.deeds = append(first.deeds, deed{who: "bob", at: at, text: "deletes Namespace " + space, do: func(ctx context.Context, u *user) error {
		if s.World.Quick {
			return nil
		}
		if err := u.of(namespaces, "").Delete(ctx, space, metav1.DeleteOptions{}); err != nil {
			return err
		}
		s.emptying.Add(1)
		go func() {
			defer s.emptying.Done()
			if err := s.createAgain(ctx, u, space, drawn); err != nil {
				s.problem("Namespace %s is not there again: %v", space, err)
			}
		}()
		return nil
	}})
	if s.undo == nil && drawn/2880%2 == 0 {
		s.undo = s.process(rand.New(rand.NewPCG(s.Seed, 0x616761696e)), "undo")
		s.undo.kill, s.undo.term, s.undo.broken = nil, nil, false
		s.undo.opts.Timeout = 0
	}
}

// createAgain creates a namespace as soon as its predecessor is gone, and some of what was in it.
func (s *Schedule) createAgain(ctx context.Context, u *user, space string, drawn uint64) error {
	for range 600 {
		_, err := u.of(namespaces, "").Create(ctx, object(namespaces, "", space, map[string]any{}), metav1.CreateOptions{})
		if err == nil {
			break
		}
		if err := s.release(ctx, u, space); err != nil {
			return err
		}
		if err := wait(ctx, time.Second); err != nil {
			return err
		}
	}
	s.note("bob: creates Namespace %s again", space)
	if space != s.World.Spaces[0] {
		return nil
	}
	for _, obj := range s.World.objects {
		if obj.GetKind() != "ConfigMap" && mix(drawn^mix(uint64(len(obj.GetName())+int(obj.GetName()[len(obj.GetName())-1]))))%3 > 0 {
			continue
		}
		r := configMaps
		if obj.GetKind() != "ConfigMap" {
			r = resourceOf(obj.GetKind())
		}
		obj = obj.DeepCopy()
		obj.SetLabels(map[string]string{"again": "1"})
		obj.SetFinalizers(nil)
		if _, err := u.of(r, space).Create(ctx, obj, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// release removes the finalizer whose controller is gone from what is being deleted.
func (s *Schedule) release(ctx context.Context, u *user, space string) error {
	list, err := u.of(sources, space).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		obj := &list.Items[i]
		if obj.GetDeletionTimestamp() == nil || !has(obj.GetFinalizers(), dead) {
			continue
		}
		obj.SetFinalizers(without(obj.GetFinalizers(), dead))
		_, _ = u.of(sources, space).Update(ctx, obj, metav1.UpdateOptions{}) // once more after a conflict
	}
	return nil
}

func resourceOf(kind string) migration.Resource {
	i := slices.IndexFunc(Kinds, func(k Kind) bool { return k.Kind == kind })
	return resource(kind, Kinds[i].Plural)
}

// namespaceAt is the UID of a namespace at a time; "" if there is none.
func (c *checker) namespaceAt(name string, at time.Time) string {
	all := c.states(Key{Plural: "namespaces", Name: name}, at, at)
	u := unstructured.Unstructured{Object: all[len(all)-1]}
	if u.Object == nil {
		return ""
	}
	return string(u.GetUID())
}

// sameNamespace holds what a run creates in the place of what a run has deleted to the namespace
// that this was in.
func (c *checker) sameNamespace(w Write, r *record) {
	if r.gone == nil || !isRun(r.gone.Actor) {
		return
	}
	was, is := c.namespaceAt(w.Key.Namespace, r.gone.Time), c.namespaceAt(w.Key.Namespace, w.Time)
	if was != is {
		c.fail("(x) version %d: %s creates %s in another namespace of the same name: it was deleted from the one with UID %s, and this has %s", w.Version, w.Actor, w.Key, was, is)
	}
}

// follows holds a report to the reasons of what follows: nobody waits for a Source that the run
// does not delete.
func (c *checker) follows(p *process) {
	space := c.s.World.Spaces[0]
	for _, ch := range p.report.Changes {
		if ch.Kind != "Channel" || ch.Result != migration.ChangeFailed {
			continue
		}
		for _, source := range c.s.World.sourcesOf(ch.Name) {
			all := c.states(Key{Group, "sources", space, source}, p.ended, p.ended)
			going := slices.ContainsFunc(p.report.Changes, func(of migration.ChangeReport) bool {
				return of.Kind == "Source" && of.Name == source && of.Verb == migration.Delete && of.Result != migration.ChangeLeft
			})
			if obj := all[len(all)-1]; obj != nil && !deleting(obj) && !going {
				c.fail("(xi) %s waits for Source %s, which it does not delete, to go from Channel %s: %s", p.name, source, ch.Name, ch.Message)
			}
		}
	}
}

// shares holds the rechecks of a process to the reads that they share: who asks while one is under
// way does not read once more.
func (c *checker) shares(p *process) {
	looks := p.job.looks()
	for _, one := range looks {
		for _, other := range looks {
			if other.began.After(one.asked) && !other.ended.After(one.began) && one.began.Sub(other.ended) < 900*time.Millisecond {
				c.fail("(xii) %s reads the switch at %s for a recheck that asked at %s, and had the answer of a read from %s to %s", p.name,
					one.began.UTC().Format("04:05.000"), one.asked.UTC().Format("04:05.000"), other.began.UTC().Format("04:05.000"), other.ended.UTC().Format("04:05.000"))
			}
		}
	}
}

// dear is how long it takes to read the switch in schedules in which that is costly.
const dear = 2200 * time.Millisecond

// costly makes what all rechecks read take long, in one of twelve schedules.
func (s *Schedule) costly() bool {
	return mix(s.Seed^0x636f7374)%12 == 0 && s.pressure == 0 && !s.hurried
}

// costs is costly for one process.
func (s *Schedule) costs(client Process) {
	c, ok := client.(*Client)
	if !ok || !s.costly() {
		return
	}
	c.Before(func(r *Request) {
		if r.Verb == "get" && r.Plural == "configmaps" && strings.HasSuffix(r.Name, "switch") {
			time.Sleep(dear)
		}
	})
}

// created again by users, and otherwise: what a run deleted is not as it was.
func (c *checker) madeOtherwise(p *process, from int64) map[Key]string {
	other := map[Key]string{}
	gone := map[Key]Object{}
	for _, w := range c.past {
		if w.Version <= from || w.Version > p.until || !slices.Contains([]string{"sources", "entries", "registries", "channels"}, w.Key.Plural) {
			continue
		}
		switch {
		case begins(w) && isRun(w.Actor):
			gone[w.Key] = w.Before
			delete(other, w.Key)
		case begins(w):
			delete(gone, w.Key)
			delete(other, w.Key)
		case w.Before == nil && isUser(w.Actor) && gone[w.Key] != nil:
			if paths := c.otherwise(gone[w.Key], w.After); len(paths) > 0 {
				other[w.Key] = fmt.Sprintf("%s created it again, and it differs in %s", w.Actor, strings.Join(paths, ", "))
			}
		}
	}
	return other
}

func (c *checker) otherwise(was, is Object) []string {
	return slices.DeleteFunc(changed(content(was), content(is)), func(p string) bool { return strings.HasPrefix(p, "finalizers.") })
}
