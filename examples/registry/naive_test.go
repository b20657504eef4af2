package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.org/registry-move/naive"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// page is the document that says what the naive program loses.
const page = "../../docs/library/why-not-100-lines.md"

// program is one that moves images, and undoes that.
type program struct {
	run, undo func(context.Context, *rest.Config) error
}

// programs are the columns of the table in the page.
var programs = []program{
	{
		run: func(ctx context.Context, cfg *rest.Config) error { return moveNaively(ctx, cfg, former, next) },
		// What everybody says of such a program: to undo it, run it backwards.
		undo: func(ctx context.Context, cfg *rest.Config) error { return moveNaively(ctx, cfg, next, former) },
	},
	{
		run:  func(ctx context.Context, cfg *rest.Config) error { return withEngine(ctx, cfg, (*engine.Engine).Run) },
		undo: func(ctx context.Context, cfg *rest.Config) error { return withEngine(ctx, cfg, (*engine.Engine).Undo) },
	},
}

func moveNaively(ctx context.Context, cfg *rest.Config, from, to string) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	return naive.Move(ctx, client, from, to, 3*time.Second)
}

func withEngine(ctx context.Context, cfg *rest.Config, command func(*engine.Engine, context.Context, migration.Job) *migration.Report) error {
	// The lock of a killed run lasts for a second.
	e, err := engine.New(cfg, engine.Options{Names: migration.Names{Program: "registry-move"}, LeaseDuration: time.Second})
	if err != nil {
		return err
	}
	if report := command(e, ctx, &Job{From: former, To: next}); report.ExitCode() != migration.ExitOK {
		return fmt.Errorf("%s: %s: %v", report.Result, report.Message, report.Findings)
	}
	return nil
}

// play is one program in one scenario.
type play struct {
	program
	t      *testing.T
	cfg    *rest.Config
	admin  dynamic.Interface
	before map[string]string
}

// scenarios are the rows of the table in the page. Each returns what was lost, "" for nothing.
var scenarios = []struct {
	name string
	// others are created in addition to one workload of each kind.
	others []*unstructured.Unstructured
	play   func(*play) string
}{
	{name: "Killed between the list and the first patch, run again", play: func(p *play) string {
		p.killed(&wire{killBefore: 1})
		return p.finishes(p.run(p.ctx(), p.cfg))
	}},
	{name: "Killed between two patches, run again", play: func(p *play) string {
		p.killed(&wire{killAfter: 1})
		return p.finishes(p.run(p.ctx(), p.cfg))
	}},
	{name: "Killed between two patches, undone", play: func(p *play) string {
		p.killed(&wire{killAfter: 1})
		return p.restores(p.undo(p.ctx(), p.cfg))
	}},
	{name: "Killed during a rollout that never becomes ready, run again", others: []*unstructured.Unstructured{unready()}, play: func(p *play) string {
		p.killed(&wire{killAfterName: "unready"})
		if err := p.run(p.ctx(), p.cfg); err == nil {
			return "it says that all is done"
		}
		return ""
	}},
	{name: "One write is answered 429", play: func(p *play) string {
		return p.finishes(p.run(p.ctx(), p.through(&wire{fault: tooMany})))
	}},
	{name: "One write is answered 500", play: func(p *play) string {
		return p.finishes(p.run(p.ctx(), p.through(&wire{fault: internal})))
	}},
	{name: "One write is made, and its answer is lost", play: func(p *play) string {
		return p.finishes(p.run(p.ctx(), p.through(&wire{fault: lostAnswer})))
	}},
	{name: "One write is refused by an admission webhook", play: func(p *play) string {
		if err := p.run(p.ctx(), p.through(&wire{fault: denied, faultAt: 2})); err == nil {
			return "it says that all is done"
		}
		return p.restores(nil)
	}},
	{name: "A rollout never becomes ready", others: []*unstructured.Unstructured{unready()}, play: func(p *play) string {
		if err := p.run(p.ctx(), p.cfg); err == nil {
			return "it says that all is done"
		}
		return p.restores(nil)
	}},
	{name: "Somebody adds a variable between read and write", play: func(p *play) string {
		return p.edited(`{"op":"add","path":"/spec/template/spec/containers/0/env","value":[{"name":"LEVEL","value":"debug"}]}`, next+"deployment:1 LEVEL=debug")
	}},
	{name: "Somebody deploys version 2 between read and write", play: func(p *play) string {
		return p.edited(`{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"`+former+`deployment:2"}`, next+"deployment:2")
	}},
	{name: "Two of them at once", play: func(p *play) string {
		errs := make(chan error, 2)
		for range 2 {
			go func() { errs <- p.run(p.ctx(), p.cfg) }()
		}
		return p.finishes(errors.Join(<-errs, <-errs))
	}},
	{name: "Undone, all workloads were moved by it", play: func(p *play) string {
		return p.restores(errors.Join(p.run(p.ctx(), p.cfg), p.undo(p.ctx(), p.cfg)))
	}},
	{
		name:   "Undone, one workload had an image of the new registry before",
		others: []*unstructured.Unstructured{workload(kinds[0], "early", next+"early:1")},
		play: func(p *play) string {
			return p.restores(errors.Join(p.run(p.ctx(), p.cfg), p.undo(p.ctx(), p.cfg)))
		},
	},
	{name: "Undone, somebody has deployed version 2 since", play: func(p *play) string {
		if err := p.run(p.ctx(), p.cfg); err != nil {
			return err.Error()
		}
		const version2 = next + "deployment:2" // which the former registry never had
		p.edit(`{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"` + version2 + `"}`)
		err := p.undo(p.ctx(), p.cfg)
		if image := p.images()["Deployment deployment"]; image != version2 {
			return fmt.Sprintf("it runs %s (%v)", image, err)
		}
		return ""
	}},
}

// TestNaive holds the table of the page: what each program loses in which scenario.
func TestNaive(t *testing.T) {
	cfg := testCluster(t)
	cfg.QPS, cfg.WarningHandler = -1, rest.NoWarnings{}
	admin, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][2]string{}
	for _, scenario := range scenarios {
		var row [2]string
		for i, program := range programs {
			if err := prepare(t.Context(), admin); err != nil {
				t.Fatal(err)
			}
			for _, other := range scenario.others {
				if _, err := kinds[0].In(admin, "default").Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			p := &play{program: program, t: t, cfg: cfg, admin: admin}
			p.before = p.images()
			row[i] = "survives"
			if lost := scenario.play(p); lost != "" {
				row[i] = "loses"
				t.Logf("%s: %s: %s", []string{"naive", "library"}[i], scenario.name, lost)
			}
		}
		got[scenario.name] = row
	}
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rowsOf(string(raw)), got); diff != "" {
		t.Errorf("%s is not what happens (-page +test):\n%s", page, diff)
	}
	lost := 0
	for _, row := range got {
		lost += strings.Count(row[0], "loses")
	}
	sentence := fmt.Sprintf("Of %d scenarios they lose %d.", len(got), lost)
	if !strings.Contains(strings.Join(strings.Fields(string(raw)), " "), sentence) {
		t.Errorf("%s does not say: %s", page, sentence)
	}
}

// rowsOf reads the table of the page: the words that begin the second and third cell of each row.
func rowsOf(document string) map[string][2]string {
	_, table, _ := strings.Cut(document, "<!-- held by TestNaive -->")
	table, _, _ = strings.Cut(table, "<!-- end -->")
	rows := map[string][2]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.Contains(line, "---") || strings.Contains(line, "100 lines") {
			continue
		}
		var row [2]string
		for i := range row {
			row[i], _, _ = strings.Cut(strings.Trim(cells[i+2], " *"), "*")
			row[i], _, _ = strings.Cut(row[i], ",")
		}
		rows[strings.TrimSpace(cells[1])] = row
	}
	return rows
}

func (p *play) ctx() context.Context { return p.t.Context() }

// through returns the way to the API server over a wire.
func (p *play) through(w *wire) *rest.Config {
	cfg := rest.CopyConfig(p.cfg)
	cfg.Wrap(w.wrap)
	p.t.Cleanup(func() {
		if w.writes.Load() == 0 {
			p.t.Error("no write came over the wire: nothing was tested")
		}
	})
	return cfg
}

// killed runs the program until the wire kills it. Nothing of it reaches the API server any more.
func (p *play) killed(w *wire) {
	p.t.Helper()
	w.dead = make(chan struct{})
	cfg := p.through(w)
	ended := make(chan error, 1)
	go func() { ended <- p.run(p.ctx(), cfg) }()
	select {
	case <-w.dead:
	case err := <-ended:
		select {
		case <-w.dead:
		default:
			p.t.Fatalf("it ended before it was killed: %v", err)
		}
	}
}

// finishes says what is wrong after a run that is to have moved everything.
func (p *play) finishes(err error) string {
	if err := errors.Join(err, moved(p.ctx(), p.admin)); err != nil {
		return err.Error()
	}
	return ""
}

// restores says what differs from the state before.
func (p *play) restores(err error) string {
	if diff := cmp.Diff(p.before, p.images()); diff != "" || err != nil {
		return fmt.Sprintf("%v: (-before +after)\n%s", err, diff)
	}
	return ""
}

// edited runs the program twice. Before its first write arrives, somebody else edits a Deployment.
func (p *play) edited(operation, want string) string {
	err := p.run(p.ctx(), p.through(&wire{onFirst: func() { p.edit(operation) }}))
	err = errors.Join(err, p.run(p.ctx(), p.cfg))
	if got := p.images()["Deployment deployment"]; got != want || err != nil {
		return fmt.Sprintf("%v: the Deployment has %q, want %q", err, got, want)
	}
	return ""
}

func (p *play) edit(operation string) {
	_, err := kinds[0].In(p.admin, "default").Patch(p.ctx(), "deployment", types.JSONPatchType, []byte("["+operation+"]"), metav1.PatchOptions{})
	if err != nil {
		p.t.Error(err)
	}
}

// images are those of the first containers, with their variables, by kind and name.
func (p *play) images() map[string]string {
	p.t.Helper()
	images := map[string]string{}
	for _, kind := range kinds {
		all, err := kind.In(p.admin, "default").List(p.ctx(), metav1.ListOptions{})
		if err != nil {
			p.t.Fatal(err)
		}
		for _, obj := range all.Items {
			containers, _, _ := unstructured.NestedSlice(obj.Object, "spec", "template", "spec", "containers")
			container := containers[0].(map[string]any)
			images[kind.Kind+" "+obj.GetName()] = container["image"].(string)
			for _, variable := range asList(container["env"]) {
				images[kind.Kind+" "+obj.GetName()] += fmt.Sprintf(" %s=%s", variable.(map[string]any)["name"], variable.(map[string]any)["value"])
			}
		}
	}
	return images
}

func asList(v any) []any {
	list, _ := v.([]any)
	return list
}

// unready is a Deployment whose pod no node can run.
func unready() *unstructured.Unstructured {
	obj := workload(kinds[0], "unready", former+"unready:1")
	_ = unstructured.SetNestedField(obj.Object, int64(1), "spec", "replicas")                // it has a spec
	_ = unstructured.SetNestedField(obj.Object, int64(1), "spec", "progressDeadlineSeconds") // it has a spec
	return obj
}

// wire is the way of one run to the API server. It counts patches of workloads.
type wire struct {
	// killBefore and killAfter are the patches at which the run is killed, from 1; 0: none.
	// killAfterName is the object after whose patch it is.
	killBefore, killAfter int32
	killAfterName         string
	// dead is closed when the run is killed.
	dead chan struct{}
	// onFirst is called before the first patch is sent.
	onFirst func()
	// fault is that of one patch, faultAt its number, default 1.
	fault   func(http.RoundTripper, *http.Request) (*http.Response, error)
	faultAt int32

	once   sync.Once
	writes atomic.Int32
}

var errKilled = errors.New("this run was killed")

func (w *wire) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if w.isDead() {
			return nil, errKilled
		}
		if r.Method != http.MethodPatch || !strings.HasPrefix(r.URL.Path, "/apis/apps/") {
			return next.RoundTrip(r)
		}
		n := w.writes.Add(1)
		if w.onFirst != nil {
			w.once.Do(w.onFirst) // which the others wait for
		}
		if n == w.killBefore {
			w.kill()
			return nil, errKilled
		}
		if w.fault != nil && n == max(w.faultAt, 1) {
			return w.fault(next, r)
		}
		resp, err := next.RoundTrip(r)
		if n == w.killAfter || w.killAfterName != "" && strings.HasSuffix(r.URL.Path, "/"+w.killAfterName) {
			w.kill()
			if err == nil {
				_ = resp.Body.Close()
			}
			return nil, errKilled
		}
		return resp, err
	})
}

func (w *wire) kill() { w.once.Do(func() { close(w.dead) }) }

func (w *wire) isDead() bool {
	select {
	case <-w.dead: // of a wire that kills nobody, this waits, and the default is taken
		return true
	default:
		return false
	}
}

func tooMany(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
	return answer(r, apierrors.NewTooManyRequests("try later", 1))
}

func internal(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
	return answer(r, apierrors.NewInternalError(errors.New("leader changed")))
}

func denied(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
	return answer(r, apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "workloads"}, "", errors.New("the policy says no")))
}

func lostAnswer(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	resp, err := next.RoundTrip(r)
	if err == nil {
		_ = resp.Body.Close()
		err = syscall.ECONNRESET
	}
	return nil, err
}

func answer(r *http.Request, err *apierrors.StatusError) (*http.Response, error) {
	status := err.Status()
	status.APIVersion, status.Kind = "v1", "Status"
	raw, _ := json.Marshal(status) // it is one of Kubernetes
	header := http.Header{"Content-Type": {"application/json"}}
	if status.Code == http.StatusTooManyRequests {
		header.Set("Retry-After", "1")
	}
	return &http.Response{
		StatusCode: int(status.Code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header,
		Body: io.NopCloser(bytes.NewReader(raw)), ContentLength: int64(len(raw)), Request: r,
	}, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
