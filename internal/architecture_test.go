// Package internal_test holds the rules of the house: which room may know
// which, and who may touch the process. They are facts of the code, so they are
// tested, with the reason beside each. Which names a file may not import is in
// .golangci.yml.
package internal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/kyma-project/eventmesh-migration"

// goPackage is what a rule looks at. Tests are not part of it: they may reach
// for whatever they need.
type goPackage struct {
	Doc        string
	ImportPath string
	Dir        string
	GoFiles    []string
	// Imports are what the package itself imports, Deps also what those do.
	Imports []string
	Deps    []string
	Error   *struct{ Err string }
	// Uses are the names of other packages that the code mentions, like os.Exit.
	Uses []string `json:"-"`
}

// rank is the order of the rooms: imports go to a higher rank only, and the
// rooms of one rank do not know each other.
var rank = map[string]int{
	"cmd":      0,
	"registry": 1, "check": 1,
	"cli": 2, "jobs": 2, "jobmanager": 2, "verify": 2, "eventmap": 2, "diagnose": 2, "runbook": 2,
	"inventory": 3, "migrationtest": 3, "nextstep": 3,
	"command": 4,
	"engine":  5, "eventservice": 5,
	"migration": 6, "frame": 6, "tracing": 6,
	"kyma": 7, "k8sutil": 7, "redact": 7, "version": 7, "wording": 7,
	"natsutil": 7, "labelcap": 7, "exemplar": 7, "flowpage": 7,
	"knative": 8, "k8sobject": 8,
	"eventing": 1, // it knows the event-service's server, and nothing of the migration
	"api":      8,
}

// room returns the room a package of the product is in, "" for any other
// package.
func room(importPath string) string {
	rel, ok := strings.CutPrefix(importPath, module+"/")
	if !ok {
		return ""
	}
	rel = strings.Replace(rel, "internal/migration/", "internal/", 1)
	parts := strings.Split(rel, "/")
	switch {
	case (parts[0] == "internal" || parts[0] == "pkg") && len(parts) > 1:
		return parts[1]
	case parts[0] == "cmd", parts[0] == "api":
		return parts[0]
	default:
		return ""
	}
}

// mechanics are the packages of internal/ that know nothing of Kyma.
var mechanics = []string{"command", "frame", "k8sutil", "natsutil", "redact", "version", "wording"}

// severalJobs are the commands that are more than one job's binary.
var severalJobs = []string{"cmd/eventmesh-migrate", "cmd/event-service", "cmd/eventing-controller", "cmd/eventing-manager", "cmd/eventing-publisher-proxy", "cmd/kubectl-eventing"}

// rule is one of the rules of the house. breaks returns what a package of the
// product should not import or use.
type rule struct {
	name, reason string
	breaks       func(p *goPackage) []string
}

var rules = []rule{
	{
		name:   "EveryRoomHasItsPlace",
		reason: "a package without a rank could import anything; docs/architecture.md names the packages and their order: add it there first",
		breaks: func(p *goPackage) []string {
			if _, ok := rank[room(p.ImportPath)]; !ok {
				return []string{"the room itself"}
			}
			return nil
		},
	},
	{
		name:   "ImportsPointDown",
		reason: "the engine is written once because it knows no job, and a job is a pure decision because it knows no command line",
		breaks: func(p *goPackage) []string {
			from := room(p.ImportPath)
			return which(p.Imports, func(imported string) bool {
				to := room(imported)
				return to != "" && to != from && rank[to] <= rank[from]
			})
		},
	},
	{
		name:   "JobsDoNotKnowEachOther",
		reason: "each job is one image, is run alone, and is decided by the state of the cluster and nothing that another job did",
		breaks: func(p *goPackage) []string {
			if room(p.ImportPath) != "jobs" {
				return nil
			}
			return which(p.Imports, func(imported string) bool { return room(imported) == "jobs" && jobOf(imported) != jobOf(p.ImportPath) })
		},
	},
	{
		name:   "PackagesForOthersKnowNoKyma",
		reason: "installers of anything import what is in pkg/, and have nothing to do with Kyma",
		breaks: func(p *goPackage) []string {
			if !strings.HasPrefix(p.ImportPath, module+"/pkg/") {
				return nil
			}
			return which(p.Deps, func(dep string) bool {
				return strings.HasPrefix(dep, module+"/") && !strings.HasPrefix(dep, module+"/pkg/") && !slices.Contains(mechanics, room(dep))
			})
		},
	},
	{
		name:   "OnlyCommandsHaveATerminal",
		reason: "who imports the engine for a controller or an installer prints nothing: what reads flags and draws on a terminal is not in that program",
		breaks: func(p *goPackage) []string {
			if !strings.HasPrefix(p.ImportPath, module+"/pkg/") || room(p.ImportPath) == "command" {
				return nil
			}
			return which(p.Deps, func(dep string) bool {
				return room(dep) == "command" || room(dep) == "frame" || strings.HasPrefix(dep, "github.com/spf13/")
			})
		},
	},
	{
		name:   "TheAPIHasTypesOnly",
		reason: "whoever creates an Eventing or a Subscription imports api/, and wants no client and nothing of ours with it",
		breaks: func(p *goPackage) []string {
			if room(p.ImportPath) != "api" {
				return nil
			}
			return which(p.Deps, func(dep string) bool {
				return isClient(dep) || strings.HasPrefix(dep, module+"/")
			})
		},
	},
	{
		name:   "TheProductsDoNotKnowEachOther",
		reason: "the migration, the library and eventing are released, installed and removed apart: what moves a cluster is not in the image that carries its events. The program for people knows eventing and the library",
		breaks: func(p *goPackage) []string {
			own := productOf(p.ImportPath)
			return which(p.Deps, func(dep string) bool {
				return !mayKnow(own, productOf(dep))
			})
		},
	},
	{
		name:   "FactsHaveNoClient",
		reason: "what the parts of eventing agree on is looked up, never executed",
		breaks: func(p *goPackage) []string {
			if !strings.HasSuffix(p.ImportPath, "/eventing/backend") {
				return nil
			}
			return which(p.Deps, isClient)
		},
	},
	{
		name:   "NoProgramMakesArtifacts",
		reason: "what packs and signs is for those who publish; the clients of registries are not in an image that runs in a cluster",
		breaks: func(p *goPackage) []string {
			return which(p.Deps, func(dep string) bool {
				return strings.HasPrefix(dep, module+"/build/") || strings.HasPrefix(dep, "github.com/google/go-containerregistry/")
			})
		},
	},
	{
		name:   "DeliveriesAskNoAPIServer",
		reason: "events are delivered while the API server is away; what needs it is the controller's",
		breaks: func(p *goPackage) []string {
			if !strings.HasSuffix(p.ImportPath, "/eventing/delivery") {
				return nil
			}
			return which(p.Deps, isClient)
		},
	},
	{
		name:   "KymaIsFactsOnly",
		reason: "shapes, names and labels are looked up, never executed; with a client among them they would grow behaviour",
		breaks: func(p *goPackage) []string {
			if room(p.ImportPath) != "kyma" {
				return nil
			}
			return which(p.Deps, isClient)
		},
	},
	{
		name:   "MechanicsKnowNothingOfOurs",
		reason: "mechanics that know what they are used for are mechanics that only one caller can use",
		breaks: func(p *goPackage) []string {
			from := room(p.ImportPath)
			if from != "k8sutil" && from != "natsutil" {
				return nil
			}
			return which(p.Deps, func(dep string) bool {
				return strings.HasPrefix(dep, module+"/") && room(dep) != from
			})
		},
	},
	{
		name:   "OnlyTheFrameHasTheEnvironment",
		reason: "a variable that is read somewhere deep is a setting that no help and no validation knows",
		breaks: func(p *goPackage) []string {
			if r := room(p.ImportPath); r == "command" || r == "frame" || r == "cmd" {
				return nil
			}
			return which(p.Uses, func(name string) bool {
				return slices.Contains([]string{
					"os.Getenv", "os.LookupEnv", "os.Environ", "os.ExpandEnv", "os.Setenv", "os.Args", "os.Stdin", "os.Stdout", "os.Stderr",
				}, name)
			})
		},
	},
	{
		name:   "OnlyMainExits",
		reason: "an exit somewhere else skips what is deferred (the lock, the report), and no test can see its code",
		breaks: func(p *goPackage) []string {
			if room(p.ImportPath) == "cmd" {
				return nil
			}
			return which(p.Uses, func(name string) bool {
				return name == "os.Exit" || name == "syscall.Exit" || strings.HasPrefix(name, "log.Fatal") ||
					strings.HasPrefix(name, "k8s.io/klog/v2.Fatal") || strings.HasPrefix(name, "k8s.io/klog/v2.Exit")
			})
		},
	},
	{
		name:   "AJobsCommandIsTheFrameAndTheJob",
		reason: "main makes no decisions: what it would decide, no test of the frame or the job would meet",
		breaks: func(p *goPackage) []string {
			rel := strings.TrimPrefix(p.ImportPath, module+"/")
			if room(p.ImportPath) != "cmd" || slices.Contains(severalJobs, rel) {
				return nil
			}
			ours := which(p.Imports, func(imported string) bool { return strings.HasPrefix(imported, module+"/") })
			jobs := which(ours, func(imported string) bool { return room(imported) == "jobs" })
			bad := which(ours, func(imported string) bool { return room(imported) != "cli" && room(imported) != "jobs" })
			if len(jobs) > 1 {
				bad = append(bad, jobs[1:]...)
			}
			return bad
		},
	},
	{
		name:   "TheEventServiceIsAServerAndNothingElse",
		reason: "it runs beside the migration, not in it: what moves a cluster must not be in the image that carries its events",
		breaks: func(p *goPackage) []string {
			rel := strings.TrimPrefix(p.ImportPath, module+"/")
			if room(p.ImportPath) != "eventservice" && rel != "cmd/event-service" {
				return nil
			}
			return which(p.Deps, func(dep string) bool {
				return slices.Contains([]string{"cli", "registry", "jobs", "jobmanager", "verify", "eventmap", "diagnose", "inventory", "engine", "migration"}, room(dep))
			})
		},
	},
	{
		name:   "TheSuiteForOthersNeedsNoTest",
		reason: "who imports pkg/migrationtest gets all that it imports: the stand-ins of our own tests, and what they need, are none of theirs",
		breaks: func(p *goPackage) []string {
			if room(p.ImportPath) != "migrationtest" {
				return nil
			}
			return which(p.Deps, func(dep string) bool { return strings.HasPrefix(dep, module+"/test/") })
		},
	},
	{
		name:   "TheProductNeedsNoTest",
		reason: "a switch or a stand-in for tests must not reach an image",
		breaks: func(p *goPackage) []string {
			if strings.HasSuffix(p.ImportPath, "test") {
				return nil // helps tests, here and in other modules
			}
			return which(p.Deps, func(dep string) bool { return strings.HasPrefix(dep, module+"/test/") || dep == "testing" })
		},
	},
}

func which(names []string, bad func(string) bool) []string {
	var out []string
	for _, n := range names {
		if bad(n) {
			out = append(out, n)
		}
	}
	return out
}

func isClient(importPath string) bool {
	return strings.HasPrefix(importPath, "k8s.io/client-go/") || strings.HasPrefix(importPath, "sigs.k8s.io/controller-runtime/")
}

// jobOf returns the name of the job a package belongs to.
func jobOf(importPath string) string {
	job, _, _ := strings.Cut(strings.TrimPrefix(importPath, module+"/internal/migration/jobs/"), "/")
	return job
}

func TestArchitecture(t *testing.T) {
	packages := load(t)
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, p := range packages {
				for _, bad := range r.breaks(p) {
					t.Errorf("%s must not have %s: %s", strings.TrimPrefix(p.ImportPath, module+"/"), bad, r.reason)
				}
			}
		})
	}
}

// mostLines is how long a package may be without its tests, mostMethods how many methods a type may
// have.
const (
	mostLines   = 2600
	mostMethods = 25
)

// TestPackagesAreSmall: a package that nobody can read at once has borders inside that nothing
// holds, and a type with many methods is such a package.
func TestPackagesAreSmall(t *testing.T) {
	for _, p := range load(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		lines, methods := 0, map[string]int{}
		if strings.HasPrefix(name, "pkg/") && p.Doc == "" {
			t.Errorf("%s has no package comment", name)
		}
		for _, f := range p.GoFiles {
			raw, err := os.ReadFile(filepath.Join(p.Dir, f))
			if err != nil {
				t.Fatal(err)
			}
			lines += bytes.Count(raw, []byte("\n"))
			for _, receiver := range receivers(t, raw) {
				methods[receiver]++
			}
		}
		if lines > mostLines {
			t.Errorf("%s has %d lines, more than %d: divide it where one half need not know the other", name, lines, mostLines)
		}
		for receiver, n := range methods {
			if n > mostMethods {
				t.Errorf("%s.%s has %d methods, more than %d: divide it where one half need not know the other", name, receiver, n, mostMethods)
			}
		}
	}
}

// receivers returns the type of each method in a file.
func receivers(t *testing.T, source []byte) (all []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv == nil {
			continue
		}
		receiver := f.Recv.List[0].Type
		if pointer, ok := receiver.(*ast.StarExpr); ok {
			receiver = pointer.X
		}
		if generic, ok := receiver.(*ast.IndexExpr); ok {
			receiver = generic.X
		}
		if name, ok := receiver.(*ast.Ident); ok {
			all = append(all, name.Name)
		}
	}
	return all
}

// loaded are the packages of the product: to list them takes seconds.
var loaded []*goPackage

// load returns the packages of the product.
func load(t *testing.T) []*goPackage {
	t.Helper()
	if loaded != nil {
		return loaded
	}
	// go test remembers a result until something changes that the test itself
	// has read; what go list reads does not count, so a new package would not.
	for _, dir := range []string{".", "../api", "../cmd", "../pkg"} {
		if err := filepath.WalkDir(dir, func(_ string, _ fs.DirEntry, err error) error { return err }); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,Doc,GoFiles,Imports,Deps,Error", module+"/api/...", module+"/cmd/...", module+"/internal/...", module+"/pkg/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("cannot list the packages: %v:\n%s", err, &stderr)
	}
	var packages []*goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &goPackage{}
		err := dec.Decode(p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if p.Error != nil {
			t.Fatalf("cannot list %s: %s", p.ImportPath, p.Error.Err)
		}
		if p.ImportPath == module+"/internal" {
			continue // these tests
		}
		for _, f := range p.GoFiles {
			p.Uses = append(p.Uses, uses(t, filepath.Join(p.Dir, f))...)
		}
		packages = append(packages, p)
	}
	if len(packages) < 2 {
		t.Fatalf("only %d packages found: these rules would hold for nothing", len(packages))
	}
	loaded = packages
	return packages
}

// uses returns the names of other packages in a file, by import path.
func uses(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return usesOf(parsed)
}

func usesOf(file *ast.File) []string {
	imported := map[string]string{}
	for _, i := range file.Imports {
		p := strings.Trim(i.Path.Value, `"`)
		name := path.Base(p)
		if parent := path.Base(path.Dir(p)); name == "v2" {
			name = parent
		}
		if i.Name != nil {
			name = i.Name.Name
		}
		imported[name] = p
	}
	var out []string
	ast.Inspect(file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && imported[x.Name] != "" {
				out = append(out, imported[x.Name]+"."+sel.Sel.Name)
			}
		}
		return true
	})
	return out
}

// TestScannersFindOnlyTheProductsModules: what is archived, or has known vulnerabilities, and is
// needed by tests alone, is in a module of the tests (docs/decisions/0001-libraries.md).
// nats-server is delivered (decision 1215). Fails on the commit before: go.mod had all of NATS
// Streaming.
func TestScannersFindOnlyTheProductsModules(t *testing.T) {
	for _, name := range []string{"go.mod", "go.sum"} {
		raw, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, module := range []string{
			"github.com/nats-io/nats-streaming-server", "github.com/nats-io/stan.go", "github.com/hashicorp/raft", "github.com/kubernetes-sigs/service-catalog", "k8s.io/kubernetes", "helm.sh/helm",
			// Those of build/release and test/knative.
			"github.com/google/go-containerregistry", "github.com/spdx/tools-golang", "github.com/secure-systems-lab/go-securesystemslib", "golang.org/x/crypto/x509roots", "k8s.io/apiserver", "github.com/google/cel-go", "knative.dev/eventing",
		} {
			if strings.Contains(string(raw), module) {
				t.Errorf("%s has %s, which no program is linked from", name, module)
			}
		}
	}
}

// TestRulesCatch breaks each rule once: one that nothing can break is no rule.
func TestRulesCatch(t *testing.T) {
	in := func(dir string, imports, uses []string) *goPackage {
		p := &goPackage{ImportPath: module + "/" + dir, Uses: uses}
		for _, i := range imports {
			if strings.HasPrefix(i, "api/") || strings.HasPrefix(i, "build/") || strings.HasPrefix(i, "internal/") || strings.HasPrefix(i, "pkg/") || strings.HasPrefix(i, "test/") {
				i = module + "/" + i
			}
			p.Imports = append(p.Imports, i)
		}
		p.Deps = p.Imports
		return p
	}
	for _, tc := range []struct {
		reason string
		pkg    *goPackage
		want   []string
	}{
		{reason: "the suite for others knows a job", pkg: in("pkg/migrationtest", []string{"internal/migration/jobs/trigger"}, nil), want: []string{"ImportsPointDown", "PackagesForOthersKnowNoKyma", "TheProductsDoNotKnowEachOther"}},
		{reason: "the suite for others knows a test of ours", pkg: in("pkg/migrationtest", []string{"test/snapshot"}, nil), want: []string{"PackagesForOthersKnowNoKyma", "TheProductsDoNotKnowEachOther", "TheSuiteForOthersNeedsNoTest"}},
		{reason: "the suite for others as it should be", pkg: in("pkg/migrationtest", []string{"testing", "pkg/engine", "pkg/migration", "internal/k8sutil", "k8s.io/client-go/dynamic"}, nil)},
		{reason: "a room nobody knows", pkg: in("internal/helpers", nil, nil), want: []string{"EveryRoomHasItsPlace"}},
		{reason: "the engine knows a job", pkg: in("pkg/engine", []string{"internal/migration/jobs/httpsource"}, nil), want: []string{"ImportsPointDown", "PackagesForOthersKnowNoKyma", "TheProductsDoNotKnowEachOther"}},
		{reason: "the engine prints", pkg: in("pkg/engine", []string{"internal/frame"}, nil), want: []string{"OnlyCommandsHaveATerminal"}},
		{reason: "what a job says has flags", pkg: in("pkg/migration", []string{"github.com/spf13/pflag"}, nil), want: []string{"OnlyCommandsHaveATerminal"}},
		{reason: "the commands of an importer know Kyma", pkg: in("pkg/command", []string{"internal/migration/kyma"}, nil), want: []string{"PackagesForOthersKnowNoKyma", "TheProductsDoNotKnowEachOther"}},
		{reason: "the commands of an importer as they should be", pkg: in("pkg/command", []string{"internal/command", "internal/frame", "pkg/migration", "github.com/spf13/cobra"}, []string{"os.Args"})},
		{reason: "the engine knows Kyma", pkg: in("pkg/engine", []string{"internal/migration/kyma"}, nil), want: []string{"PackagesForOthersKnowNoKyma", "TheProductsDoNotKnowEachOther"}},
		{reason: "what a job says knows the engine", pkg: in("pkg/migration", []string{"pkg/engine"}, nil), want: []string{"ImportsPointDown"}},
		{reason: "a job knows the frame", pkg: in("internal/migration/jobs/trigger", []string{"internal/migration/cli"}, nil), want: []string{"ImportsPointDown"}},
		{reason: "the frame knows a job", pkg: in("internal/command", []string{"internal/migration/jobs/trigger"}, nil), want: []string{"ImportsPointDown", "TheProductsDoNotKnowEachOther"}},
		{reason: "the map knows the checks", pkg: in("internal/migration/eventmap", []string{"internal/migration/verify"}, nil), want: []string{"ImportsPointDown"}},
		{reason: "the inventory knows the checks", pkg: in("internal/migration/inventory", []string{"internal/migration/verify"}, nil), want: []string{"ImportsPointDown"}},
		{reason: "the checks as they should be", pkg: in("internal/migration/verify", []string{"internal/migration/inventory", "pkg/engine", "internal/migration/kyma"}, nil)},
		{reason: "a job knows the registry", pkg: in("internal/migration/jobs/trigger", []string{"internal/migration/registry"}, nil), want: []string{"ImportsPointDown"}},
		{reason: "the frame knows the registry", pkg: in("internal/migration/cli", []string{"internal/migration/registry"}, nil), want: []string{"ImportsPointDown"}},
		{reason: "the registry knows the jobs", pkg: in("internal/migration/registry", []string{"internal/migration/jobs/a", "internal/migration/jobs/b", "internal/migration/kyma", "pkg/jobmanager"}, nil)},
		{reason: "a job knows another", pkg: in("internal/migration/jobs/trigger", []string{"internal/migration/jobs/httpsource"}, nil), want: []string{"JobsDoNotKnowEachOther"}},
		{reason: "a part of a job is the job's", pkg: in("internal/migration/jobs/trigger", []string{"internal/migration/jobs/trigger/route"}, nil)},
		{reason: "a part of a job knows another job", pkg: in("internal/migration/jobs/trigger/eventbus", []string{"internal/migration/jobs/scaledown"}, nil), want: []string{"JobsDoNotKnowEachOther"}},
		{reason: "a decoder as it should be", pkg: in("internal/eventservice/legacy", []string{"encoding/json", "internal/eventservice/cloudevent"}, nil)},
		{reason: "the types of the API have a client", pkg: in("api/operator/v1alpha1", []string{"k8s.io/client-go/rest"}, nil), want: []string{"TheAPIHasTypesOnly"}},
		{reason: "the types of the API know a name of ours", pkg: in("api/operator/v1alpha1", []string{"internal/migration/kyma"}, nil), want: []string{"ImportsPointDown", "TheAPIHasTypesOnly", "TheProductsDoNotKnowEachOther"}},
		{reason: "eventing knows the engine", pkg: in("internal/eventing/manager", []string{"pkg/engine"}, nil), want: []string{"TheProductsDoNotKnowEachOther"}},
		{reason: "the publisher knows a job", pkg: in("internal/eventing/publisher", []string{"internal/migration/jobs/trigger"}, nil), want: []string{"TheProductsDoNotKnowEachOther"}},
		{reason: "the publisher's command knows the frame", pkg: in("cmd/eventing-publisher-proxy", []string{"internal/eventing/publisher", "internal/migration/cli"}, nil), want: []string{"TheProductsDoNotKnowEachOther"}},
		{reason: "the publisher as it should be", pkg: in("cmd/eventing-publisher-proxy", []string{"github.com/spf13/pflag", "os/signal", "internal/eventing/publisher", "internal/eventservice"}, []string{"os.Args", "os.Exit"})},
		{reason: "the contract of eventing has a client", pkg: in("internal/eventing/backend", []string{"k8s.io/client-go/dynamic"}, nil), want: []string{"FactsHaveNoClient"}},
		{reason: "a controller as it should be", pkg: in("internal/eventing/controller", []string{"internal/eventing/delivery", "sigs.k8s.io/controller-runtime/pkg/client"}, nil)},
		{reason: "a program packs images", pkg: in("cmd/eventmesh-migrate", []string{"build/release/artifact"}, nil), want: []string{"NoProgramMakesArtifacts"}},
		{reason: "deliveries have a client", pkg: in("internal/eventing/delivery", []string{"k8s.io/client-go/rest"}, nil), want: []string{"DeliveriesAskNoAPIServer"}},
		{reason: "facts have a client", pkg: in("internal/migration/kyma", []string{"k8s.io/client-go/rest"}, nil), want: []string{"KymaIsFactsOnly"}},
		{reason: "a job manager for everybody knows Kyma", pkg: in("pkg/jobmanager", []string{"pkg/engine", "internal/migration/kyma"}, nil), want: []string{"PackagesForOthersKnowNoKyma", "TheProductsDoNotKnowEachOther"}},
		{reason: "a job manager for everybody", pkg: in("pkg/jobmanager", []string{"pkg/engine"}, nil)},
		{reason: "mechanics know facts", pkg: in("internal/k8sutil", []string{"internal/migration/kyma"}, nil), want: []string{"ImportsPointDown", "TheProductsDoNotKnowEachOther", "MechanicsKnowNothingOfOurs"}},
		{reason: "the engine has flags", pkg: in("pkg/engine", []string{"github.com/spf13/pflag"}, nil), want: []string{"OnlyCommandsHaveATerminal"}},
		{reason: "a job reads the environment", pkg: in("internal/migration/jobs/trigger", nil, []string{"os.Getenv"}), want: []string{"OnlyTheFrameHasTheEnvironment"}},
		{reason: "the engine exits", pkg: in("pkg/engine", nil, []string{"os.Exit"}), want: []string{"OnlyMainExits"}},
		{reason: "the frame exits", pkg: in("internal/command", nil, []string{"log.Fatalf"}), want: []string{"OnlyMainExits"}},
		{reason: "main knows two jobs", pkg: in("cmd/trigger-sync", []string{"internal/migration/cli", "internal/migration/jobs/a", "internal/migration/jobs/b"}, nil), want: []string{"AJobsCommandIsTheFrameAndTheJob"}},
		{reason: "main knows the engine", pkg: in("cmd/trigger-sync", []string{"internal/migration/cli", "pkg/engine"}, nil), want: []string{"AJobsCommandIsTheFrameAndTheJob"}},
		{reason: "a stand-in in the product", pkg: in("internal/migration/cli", []string{"test/standin"}, nil), want: []string{"TheProductNeedsNoTest"}},
		{reason: "the event-service knows the engine", pkg: in("internal/eventservice", []string{"pkg/engine"}, nil), want: []string{"ImportsPointDown", "TheProductsDoNotKnowEachOther", "TheEventServiceIsAServerAndNothingElse"}},
		{reason: "the operator's tool knows all jobs", pkg: in("cmd/eventmesh-migrate", []string{"internal/migration/cli", "internal/migration/registry", "pkg/jobmanager"}, nil)},
		{reason: "the event-service's command knows the frame", pkg: in("cmd/event-service", []string{"internal/eventservice", "internal/migration/cli"}, nil), want: []string{"TheEventServiceIsAServerAndNothingElse"}},
		{reason: "the event-service as it should be", pkg: in("cmd/event-service", []string{"github.com/spf13/pflag", "os/signal", "internal/eventservice"}, []string{"os.Args", "os.Exit"})},
		{reason: "a main as it should be", pkg: in("cmd/trigger-sync", []string{"os", "internal/migration/cli", "internal/migration/jobs/trigger"}, []string{"os.Exit"})},
		{reason: "the frame as it should be", pkg: in("internal/command", []string{"os/signal", "github.com/spf13/cobra", "pkg/engine"}, []string{"os.Args"})},
		{reason: "the engine as it should be", pkg: in("pkg/engine", []string{"internal/k8sutil", "pkg/migration", "pkg/engine/internal/journal", "k8s.io/client-go/dynamic"}, nil)},
	} {
		var got []string
		for _, r := range rules {
			if len(r.breaks(tc.pkg)) > 0 {
				got = append(got, r.name)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: rules broken (-want +got):\n%s", tc.reason, diff)
		}
	}
}

func TestUses(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
import (
	"os"
	system "syscall"
	"k8s.io/klog/v2"
)
func f() { os.Exit(1); system.Exit(1); klog.Fatal(os.Args) }
`, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"os.Exit", "syscall.Exit", "k8s.io/klog/v2.Fatal", "os.Args"}
	if diff := cmp.Diff(want, usesOf(file)); diff != "" {
		t.Errorf("what a file uses, under whatever name it imports it (-want +got):\n%s", diff)
	}
}
