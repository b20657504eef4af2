package model_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/model"
)

// sinks are a kind of the worlds, of which the sandboxes here have objects, too: it may be served
// at other versions.
var sinks = migration.Resource{GroupVersionResource: schema.GroupVersionResource{Group: model.Group, Version: "v1", Resource: "sinks"}, Kind: "Sink"}

func sinkRef(name string) migration.Ref {
	return migration.Ref{Resource: sinks, Namespace: "shop", Name: name}
}

func newSink(name, endpoint string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": model.Group + "/v1", "kind": "Sink", "metadata": map[string]any{"namespace": "shop", "name": name},
		"spec": map[string]any{"endpoint": endpoint},
	}}
}

func newSinkSandbox(t *testing.T) *sandbox {
	t.Helper()
	s := newSandboxOf(t, model.New(1, model.Kinds...))
	for _, name := range []string{"patched", "victim"} {
		if _, err := s.sinks().Create(t.Context(), newSink(name, "http://old"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *sandbox) sinks() dynamic.ResourceInterface {
	return s.user.Resource(sinks.GroupVersionResource).Namespace("shop")
}

func (s *sandbox) serve(versions ...string) {
	s.server.Serve(sinks.GroupVersionResource.GroupResource(), versions...)
}

// endpoints are those of the Sinks, by name.
func (s *sandbox) endpoints() map[string]string {
	all := map[string]string{}
	for key, obj := range s.server.Objects() {
		if key.Plural == "sinks" {
			all[key.Name], _, _ = unstructured.NestedString(obj, "spec", "endpoint")
		}
	}
	return all
}

// sinkJob creates, patches and deletes a Sink.
func (s *sandbox) sinkJob() *scripted {
	return fixed(
		unit("new", migration.Change{Verb: migration.Create, Ref: sinkRef("new"), Object: newSink("new", "http://new")}),
		unit("patched", migration.Change{Verb: migration.Patch, Ref: sinkRef("patched"), Patch: []byte(`{"spec":{"endpoint":"http://new"}}`)}),
		unit("victim", migration.Change{Verb: migration.Delete, Ref: sinkRef("victim")}),
	)
}

// TestUndoWhereServed: an undo works on each object at the version at which its kind is served
// then. On f3299ef an object whose kind was served at another one stayed, or was not restored, and
// the undo said that all was undone.
func TestUndoWhereServed(t *testing.T) {
	before := map[string]string{"patched": "http://old", "victim": "http://old"}
	after := map[string]string{"patched": "http://new", "new": "http://new"}
	for name, tc := range map[string]struct {
		reason string
		since  func(s *sandbox)
		result migration.Result
		want   map[string]string
		phase  string
	}{
		"Same":    {"nothing changed", func(*sandbox) {}, migration.Succeeded, before, "undone"},
		"Another": {"the version of the run is not served any more", func(s *sandbox) { s.serve("v2") }, migration.Succeeded, before, "undone"},
		"More":    {"the version of the run is served, and a better one", func(s *sandbox) { s.serve("v2", "v1") }, migration.Succeeded, before, "undone"},
		"None":    {"no version is served: nothing can be told of the objects, and the run can be undone later", func(s *sandbox) { s.serve() }, migration.PartlyRestored, after, "done"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, newSinkSandbox, func(t *testing.T, s *sandbox) {
				job := s.sinkJob()
				want(t, s.run("first", job), migration.Succeeded)
				same(t, s.endpoints(), after)
				tc.since(s)
				want(t, s.undo(job), tc.result)
				same(t, s.endpoints(), tc.want)
				if s.phases() != tc.phase {
					t.Errorf("%s: the journal is %q, want %q", tc.reason, s.phases(), tc.phase)
				}
				s.serve("v1")
				s.undo(job)
				same(t, s.endpoints(), before)
				if s.phases() != "undone" {
					t.Errorf("%s: with the kind back, the journal is %q", tc.reason, s.phases())
				}
			})
		})
	}
}

// TestUndoAnotherNamespace: what was deleted is not restored into a namespace that somebody has
// deleted and created again.
func TestUndoAnotherNamespace(t *testing.T) {
	const another = "its namespace shop was deleted and created again"
	for name, tc := range map[string]struct {
		reason string
		// former: the journal does not say which namespace it was, as those of earlier builds.
		former bool
	}{
		"ByUID":  {"the UID is another one", false},
		"ByTime": {"the namespace is younger than the journal", true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, newSinkSandbox, func(t *testing.T, s *sandbox) {
				job := s.sinkJob()
				if tc.former {
					s.server.Deny(func(p model.Permission) bool { return p.Resource == "namespaces" && p.Verb == "get" })
				}
				want(t, s.run("first", job), migration.Succeeded)
				s.server.Deny(nil)
				time.Sleep(2 * time.Second)
				s.another("shop")
				r := s.undo(job)
				want(t, r, migration.PartlyRestored)
				mustSay(t, r, migration.Error, another)
				if left := s.endpoints(); len(left) != 0 {
					t.Errorf("%s: restored %v", tc.reason, left)
				}
			})
		})
	}
}

// TestRunAnotherNamespace: a run that goes on does not create what an interrupted one had deleted
// in a namespace that somebody has deleted and created again. On a979837 it did.
func TestRunAnotherNamespace(t *testing.T) {
	for name, verb := range map[string]migration.Verb{"Create": migration.Create, "Recreate": migration.Recreate} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, newSinkSandbox, func(t *testing.T, s *sandbox) {
				u := unit("victim", migration.Change{Verb: migration.Delete, Ref: sinkRef("victim")}, migration.Change{Verb: verb, Ref: sinkRef("victim"), Object: newSink("victim", "http://new")})
				u.Commit = true
				s.killed(fixed(u), true, call("delete", "victim"))
				s.another("shop")
				r := s.run("second", fixed())
				want(t, r, migration.PartlyRestored)
				if len(says(r, "cannot be restored: its namespace shop was deleted and created again")) == 0 {
					t.Errorf("it does not say why: %+v", r.Findings)
				}
				if left := s.endpoints(); len(left) != 0 {
					t.Errorf("created %v", left)
				}
				if s.phases() != "rolled-back" {
					t.Errorf("the journal is %q", s.phases())
				}
			})
		})
	}
}

// another deletes a namespace, and creates another one of its name.
func (s *sandbox) another(name string) {
	s.t.Helper()
	all := s.user.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	if err := all.Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
	time.Sleep(time.Minute)
	again := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
	if _, err := all.Create(s.t.Context(), again, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// TestUndoAcceptsWhatIsLeft: a run of which somebody has created an object again does not keep
// earlier runs from being undone for ever. A person decides, by the command that the undo names.
func TestUndoAcceptsWhatIsLeft(t *testing.T) {
	bubble(t, "", func(t *testing.T, s *sandbox) {
		s.before()
		earlier, newest := fixed(unit("new", s.creation("new"))), fixed(unit("victim", s.deletion("victim")))
		want(t, s.run("first", earlier), migration.Succeeded)
		want(t, s.run("second", newest), migration.Succeeded)
		s.put("victim", map[string]any{"k": "theirs"})
		undo := func(name string, accept bool) *migration.Report {
			return s.with(s.server.Client(name), func(o *engine.Options) {
				o.AcceptLeft = accept
				o.Undo = func(job string) string { return "undo " + job }
			}).Undo(t.Context(), newest)
		}
		for _, name := range []string{"third", "fourth"} {
			r := undo(name, false)
			want(t, r, migration.PartlyRestored)
			if !slices.ContainsFunc(r.Findings, func(f migration.Finding) bool { return f.Command == "undo scripted --accept-left" }) {
				t.Errorf("no command leads out of it: %+v", r.Findings)
			}
		}
		r := undo("fifth", true)
		want(t, r, migration.Succeeded)
		mustSay(t, r, migration.Error, "was created again by somebody else")
		noted := 0
		for key, obj := range s.server.Objects() {
			if data, _ := obj["data"].(map[string]any); key.Plural == "secrets" && data["accepted"] != nil {
				noted++
			}
		}
		if noted != 1 {
			t.Errorf("%d journals say what was accepted", noted)
		}
		want(t, undo("sixth", false), migration.Succeeded)
		if live := s.live("new"); live != nil {
			t.Error("the earlier run was not undone")
		}
		if live := s.live("victim"); live == nil || data(live.Object)["k"] != "theirs" {
			t.Errorf("what somebody else has created: %v", live)
		}
	})
}

// TestAcceptLeftAndAnother: a second actor changes, at every call of an undo with --accept-left,
// what is left, or what the undo is about to restore. What that one wrote last stays, the run is
// closed, and its journal names what was not restored, and nothing that was.
func TestAcceptLeftAndAnother(t *testing.T) {
	theirs := map[string]any{"k": "theirs"}
	for name, act := range map[string]struct {
		do func(s *sandbox)
		// keeps is the object with their data.
		keeps string
	}{
		"DeletesWhatIsLeft":    {func(s *sandbox) { s.remove("victim") }, ""},
		"MakesWhatIsLeftAgain": {func(s *sandbox) { s.again("victim", theirs) }, "victim"},
		"MakesWhatIsRestored": {func(s *sandbox) {
			if s.live("other") == nil {
				s.put("other", theirs)
			} else {
				s.edit("other", `{"data":{"k":"theirs"}}`)
			}
		}, "other"},
	} {
		t.Run(name, func(t *testing.T) {
			for n, more := 1, true; more; n++ {
				bubble(t, fmt.Sprintf("Call%d", n), func(_ *testing.T, s *sandbox) { more = s.acceptLeft(n, act.do, act.keeps) })
			}
		})
	}
}

// acceptLeft undoes a run with --accept-left while another one acts before call n, and says whether
// there was such a call.
func (s *sandbox) acceptLeft(n int, act func(*sandbox), keeps string) (acted bool) {
	t := s.t
	t.Helper()
	s.before()
	s.put("other", map[string]any{"k": "other"})
	earlier, newest := fixed(unit("new", s.creation("new"))), fixed(unit("victim", s.deletion("victim")), unit("other", s.deletion("other")))
	want(t, s.run("first", earlier), migration.Succeeded)
	want(t, s.run("second", newest), migration.Succeeded)
	s.put("victim", map[string]any{"k": "somebody"})
	client := s.server.Client("third")
	var calls atomic.Int64 // the Lease is renewed beside
	client.Before(func(*model.Request) {
		if calls.Add(1) == int64(n) {
			act(s)
		}
	})
	r := s.with(client, func(o *engine.Options) { o.AcceptLeft = true }).Undo(t.Context(), newest)
	want(t, r, migration.Succeeded)
	acted = calls.Load() >= int64(n)
	if keeps != "" && acted {
		if live := s.live(keeps); live == nil || data(live.Object)["k"] != "theirs" {
			t.Errorf("what they wrote last to %s is lost: %v", keeps, live)
		}
	}
	var noted []string
	for key, obj := range s.server.Objects() {
		raw, _ := data(obj)["accepted"].(string)
		if key.Plural != "secrets" || raw == "" {
			continue
		}
		var accepted struct{ Objects []string }
		content, err := base64.StdEncoding.DecodeString(raw)
		if err == nil {
			err = json.Unmarshal(content, &accepted)
		}
		if err != nil {
			t.Fatal(err)
		}
		noted = append(noted, accepted.Objects...)
	}
	for _, ch := range r.Changes {
		left := ch.Result == migration.ChangeNotRestored || ch.Result == migration.ChangeProtected
		if slices.Contains(noted, ref(ch.Name).String()) != left {
			t.Errorf("%s is %s, and the journal says that %v were accepted", ch.Name, ch.Result, noted)
		}
	}
	want(t, s.with(s.server.Client("fourth"), func(*engine.Options) {}).Undo(t.Context(), newest), migration.Succeeded)
	if live := s.live("new"); live != nil {
		t.Error("the earlier run was not undone")
	}
	return acted
}

// TestUndoOneNotFound: that one request for a kind is answered with 404 proves nothing. On f3299ef
// the undo ended with exit code 0, its journal was closed, and the object was there.
func TestUndoOneNotFound(t *testing.T) {
	for name, tc := range map[string]struct{ method, path string }{
		"List":     {http.MethodGet, "/sinks"},
		"Get":      {http.MethodGet, "/sinks/patched"},
		"Deletion": {http.MethodDelete, "/sinks/new"},
		"Creation": {http.MethodPost, "/sinks"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, newSinkSandbox, func(t *testing.T, s *sandbox) {
				job := s.sinkJob()
				want(t, s.run("first", job), migration.Succeeded)
				want(t, s.undoThrough(job, http.StatusNotFound, tc.method, tc.path), migration.Succeeded)
				same(t, s.endpoints(), map[string]string{"patched": "http://old", "victim": "http://old"})
			})
		})
	}
}

// TestAnswersAreCompared: what the server makes of an object is held to what was asked for. On
// f3299ef the run said "3 changes made", and the undo that all was undone, both without a finding.
func TestAnswersAreCompared(t *testing.T) {
	drops := func(name string) func(*model.Request, model.Object) {
		return func(_ *model.Request, obj model.Object) {
			if metadata, _ := obj["metadata"].(map[string]any); metadata["name"] == name {
				unstructured.RemoveNestedField(obj, "spec", "endpoint")
			}
		}
	}
	for name, tc := range map[string]struct {
		reason string
		lossy  string
		// run and undo are the findings of each.
		run, undo string
		result    migration.Result
		phase     string
	}{
		"Created":  {"what is created loses a field", "new", "spec.endpoint is missing or different", "", migration.Succeeded, "undone"},
		"Patched":  {"the field of a patch is dropped: an undo leaves what is not as the run had made it", "patched", "spec.endpoint is missing or different", "its fields are left alone", migration.PartlyRestored, "done"},
		"Restored": {"what is created again loses a field", "victim", "", "it differs in spec.endpoint", migration.PartlyRestored, "done"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, newSinkSandbox, func(t *testing.T, s *sandbox) {
				job := s.sinkJob()
				s.server.Admit(drops(tc.lossy))
				r := s.run("first", job)
				want(t, r, migration.Succeeded)
				if tc.run == "" && len(r.Findings) != 0 {
					t.Errorf("%s: %+v", tc.reason, r.Findings)
				} else if tc.run != "" {
					mustSay(t, r, migration.Warning, tc.run)
					if !strings.Contains(r.Message, "otherwise than sent") {
						t.Errorf("%s: the run says %q", tc.reason, r.Message)
					}
				}
				r = s.undo(job)
				want(t, r, tc.result)
				if tc.undo != "" {
					mustSay(t, r, migration.Error, tc.undo)
				}
				if s.phases() != tc.phase {
					t.Errorf("%s: the journal is %q, want %q", tc.reason, s.phases(), tc.phase)
				}
			})
		})
	}
}
