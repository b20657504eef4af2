package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The products of this repository. What is none of theirs is common: it knows none of them.
const (
	migrationProduct = "migration"
	libraryProduct   = "library"
	eventingProduct  = "eventing"
	// takeOverProduct is the program of eventing for people, which moves clusters with the library.
	takeOverProduct = "take-over"
	// everyProduct is what knows all of them by its task, such as the programs that release them.
	everyProduct = "every"
)

// owners says whose a directory, or a file, is: the longest path counts. "*_test.go" are the tests
// of a directory.
var owners = map[string]string{
	"pkg":                            libraryProduct,
	"internal/command":               libraryProduct,
	"docs/library":                   libraryProduct,
	"examples":                       libraryProduct,
	"test/model":                     libraryProduct,
	"test/integration/engine":        libraryProduct,
	"test/integration/migrationtest": libraryProduct,

	"internal/migration":               migrationProduct,
	"docs/migration":                   migrationProduct,
	"cmd":                              migrationProduct, // jobs, their tool, and the event-service of Kyma 1.11
	"cmd/internal/program":             "",
	"charts/application":               migrationProduct,
	"charts/application-connector":     migrationProduct,
	"charts/cluster-essentials":        migrationProduct,
	"charts/core":                      migrationProduct,
	"charts/eventmesh-migration":       migrationProduct,
	"build/applicationoverlay":         migrationProduct,
	"build/overlay":                    migrationProduct,
	"test/bench":                       migrationProduct,
	"test/demo":                        migrationProduct,
	"test/knative":                     migrationProduct,
	"test/newjob":                      migrationProduct,
	"test/samplecluster":               migrationProduct,
	"test/sandbox":                     migrationProduct,
	"test/snapshot":                    migrationProduct,
	"test/suite":                       migrationProduct,
	"test/integration/charts":          migrationProduct,
	"test/integration/eventbus":        migrationProduct,
	"test/integration/httpsource":      migrationProduct,
	"test/integration/jobmanager":      migrationProduct,
	"test/integration/rbac":            migrationProduct,
	"test/integration/serviceinstance": migrationProduct,
	"test/integration/trigger":         migrationProduct,

	"api":               eventingProduct,
	"internal/eventing": eventingProduct,
	"internal/eventservice/publish/content_test.go": everyProduct, // it compares a document of eventing
	"docs/eventing":                                    eventingProduct,
	"cmd/eventing-controller":                          eventingProduct,
	"cmd/eventing-manager":                             eventingProduct,
	"cmd/eventing-publisher-proxy":                     eventingProduct,
	"cmd/kubectl-eventing":                             takeOverProduct,
	"internal/eventing/takeover":                       takeOverProduct,
	"test/integration/takeover":                        takeOverProduct,
	"test/standin/kymaeventing":                        takeOverProduct,
	"test/integration/eventing/letters_people_test.go": takeOverProduct, // they call its program
	"test/integration/eventing/walk_slow_test.go":      takeOverProduct,
	"cmd/internal/nats-server":                         eventingProduct,
	"charts/eventing":                                  eventingProduct,
	"charts/eventing-manager":                          eventingProduct,
	"module":                                           eventingProduct,
	"build/release/modulepack":                         eventingProduct,
	"test/bench/eventing":                              eventingProduct,
	"test/bench/publisher":                             eventingProduct,
	"test/eventing":                                    eventingProduct,
	"test/eventingcluster":                             eventingProduct,
	"test/eventingpods":                                eventingProduct,
	"test/integration/eventing":                        eventingProduct,
	"test/integration/eventingmanager":                 eventingProduct,
	"test/integration/kubectleventing":                 takeOverProduct,
	"test/integration/eventingpage":                    takeOverProduct, // it calls its program

	"test/e2e/eventing_apiserver_soak_test.go": eventingProduct,
	"test/e2e/eventing_events_test.go":         eventingProduct,
	"test/e2e/eventing_knative_soak_test.go":   eventingProduct,
	"test/e2e/eventing_nats_soak_test.go":      eventingProduct,
	"test/e2e/eventing_objects_soak_test.go":   eventingProduct,
	"test/e2e/eventing_operator_soak_test.go":  eventingProduct,
	"test/e2e/eventing_pause_soak_test.go":     eventingProduct,
	"test/e2e/eventing_people_test.go":         takeOverProduct, // it calls kubectl eventing
	"test/e2e/eventing_restore_soak_test.go":   eventingProduct,
	"test/e2e/eventing_safeguards_test.go":     eventingProduct,
	"test/e2e/eventing_servers_test.go":        eventingProduct,
	"test/e2e/eventing_switch_soak_test.go":    eventingProduct,
	"test/e2e/eventing_switch_test.go":         eventingProduct,
	"test/e2e/eventing_test.go":                eventingProduct,
	"test/e2e/eventing_triggers_soak_test.go":  eventingProduct,
	"test/e2e/eventing_upgrade_soak_test.go":   eventingProduct,
	"test/e2e/eventservice_test.go":            migrationProduct,
	"test/e2e/harness_test.go":                 migrationProduct,
	"test/e2e/mesh_test.go":                    migrationProduct,
	"test/e2e/prober_test.go":                  migrationProduct,
	"test/e2e/purge_test.go":                   migrationProduct,
	"test/e2e/scaledown_test.go":               migrationProduct,
	"test/e2e/trigger_test.go":                 migrationProduct,
	"test/e2e/upgrade_test.go":                 migrationProduct,

	"test/e2e/jobs_test.go":         migrationProduct,
	"test/prober":                   "",
	"test/bench/eventservice":       "",
	"test/guide":                    libraryProduct,
	"test/guide/readme_test.go":     everyProduct,
	"test/view":                     libraryProduct,
	"test/upgrade":                  everyProduct,
	"test/mutation":                 everyProduct,
	"build/generate":                everyProduct,
	"build/licenses":                everyProduct,
	"internal/findings_test.go":     everyProduct,
	"internal/references_test.go":   everyProduct,
	"internal/messages_test.go":     everyProduct,
	"internal/modules_test.go":      everyProduct,
	"test/natsserver":               eventingProduct,
	"test/e2e/workload":             everyProduct,
	"test/eventservice":             "",
	"test/e2e/released_test.go":     everyProduct,
	"test/eventservice/*_test.go":   migrationProduct,
	"test/prober/*_test.go":         migrationProduct,
	"build/release":                 everyProduct,
	"build/release/artifact":        "",
	"internal/architecture_test.go": everyProduct,
	"internal/products_test.go":     everyProduct,
	"test/integration/together":     everyProduct,
}

// productOf says whose the package or the file is, by its path in the module. "": it is common, or
// not ours.
func productOf(name string) string {
	name = strings.TrimPrefix(name, module+"/")
	if owner, ok := owners[path.Join(path.Dir(name), "*_test.go")]; ok && strings.HasSuffix(name, "_test.go") {
		return owner
	}
	for ; name != "."; name = path.Dir(name) {
		if owner, ok := owners[name]; ok {
			return owner
		}
	}
	return ""
}

// mayKnow says whether what is one product's may depend on what is another's.
func mayKnow(from, to string) bool {
	return to == "" || from == to || from == everyProduct || from == migrationProduct && to == libraryProduct ||
		from == takeOverProduct && (to == libraryProduct || to == eventingProduct)
}

// source is what the deletion of a product on paper looks at.
type source struct {
	// imports are the packages of this module that the file imports, and names the other files and
	// directories of it that its strings name.
	imports, names []string
	// declares and needs are the identifiers of its package that the file declares, and does not.
	declares, needs []string
}

var namesPath = regexp.MustCompile(`^(?:\.\./|\./)*((?:api|build|charts|cmd|docs|internal|module|pkg|test)/[a-z0-9][\w./-]*)$`)

func sourceOf(name, text string) (source, error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
	if err != nil {
		return source{}, err
	}
	var s source
	for _, i := range file.Imports {
		if p, _ := strconv.Unquote(i.Path.Value); strings.HasPrefix(p, module+"/") {
			s.imports = append(s.imports, strings.TrimPrefix(p, module+"/"))
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				s.declares = append(s.declares, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					s.declares = append(s.declares, spec.Name.Name)
				case *ast.ValueSpec:
					for _, n := range spec.Names {
						s.declares = append(s.declares, n.Name)
					}
				}
			}
		}
	}
	for _, n := range file.Unresolved {
		s.needs = append(s.needs, n.Name)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				if match := namesPath.FindStringSubmatch(text); match != nil {
					s.names = append(s.names, path.Clean(match[1]))
				}
			}
		}
		return true
	})
	return s, nil
}

// brokenWithout returns the files that do not compile any more, or do not find what they name, when
// all files of a product are deleted, and are not that product's; each with what it lacks.
func brokenWithout(product string, sources map[string]source) map[string]string {
	gone := func(name string) bool { return productOf(name) == product }
	files := map[string][]string{} // by package
	// left says, by package and identifier, whether a file that is left declares it.
	left := map[string]map[string]bool{}
	for name, s := range sources {
		dir := path.Dir(name)
		files[dir] = append(files[dir], name)
		if left[dir] == nil {
			left[dir] = map[string]bool{}
		}
		for _, n := range s.declares {
			left[dir][n] = left[dir][n] || !gone(name)
		}
	}
	// Packages of which no file is left, and those whose code does not compile. What knows every
	// product is corrected with the deletion.
	lost := map[string]bool{}
	for dir, names := range files {
		lost[dir] = !slices.ContainsFunc(names, func(n string) bool { return !gone(n) })
	}
	lacks := func(name string) string {
		s := sources[name]
		for _, p := range s.imports {
			if lost[p] {
				return p
			}
		}
		for _, p := range s.names {
			if gone(p) || lost[p] {
				return p
			}
		}
		for _, n := range s.needs {
			if is, declared := left[path.Dir(name)][n]; declared && !is {
				return n
			}
		}
		return ""
	}
	for again := true; again; {
		again = false
		for dir, names := range files {
			if !lost[dir] && productOf(dir) != everyProduct && slices.ContainsFunc(names, func(n string) bool { return !gone(n) && !strings.HasSuffix(n, "_test.go") && lacks(n) != "" }) {
				lost[dir], again = true, true
			}
		}
	}
	broken := map[string]string{}
	for name := range sources {
		if what := lacks(name); what != "" && !gone(name) {
			broken[name] = what
		}
	}
	return broken
}

// TestEachProductCanBeDeleted deletes each product on paper. What is left of the others, with its
// tests, compiles and finds what it names. The migration is made with the library, so that it goes
// with that, and so does the program that takes over Kyma's eventing.
func TestEachProductCanBeDeleted(t *testing.T) {
	sources := map[string]source{}
	for name, text := range checkout(t) {
		if path.Ext(name) != ".go" || strings.Contains(name, "/testdata/") || text == "" {
			continue
		}
		var err error
		if sources[name], err = sourceOf(name, text); err != nil {
			t.Fatal(err)
		}
	}
	for _, product := range []string{migrationProduct, eventingProduct, takeOverProduct, libraryProduct} {
		broken := brokenWithout(product, sources)
		for _, name := range slices.Sorted(maps.Keys(broken)) {
			if !mayKnow(productOf(name), product) {
				t.Errorf("without the product %s, %s breaks, which needs %s: move it, or say in the table owners whose it is", product, name, broken[name])
			}
		}
	}
}

func TestBrokenWithoutCatches(t *testing.T) {
	parse := func(files map[string]string) map[string]source {
		sources := map[string]source{}
		for name, text := range files {
			s, err := sourceOf(name, text)
			if err != nil {
				t.Fatal(err)
			}
			sources[name] = s
		}
		return sources
	}
	for _, tc := range []struct {
		reason string
		files  map[string]string
		want   []string
	}{
		{"an import", map[string]string{"test/x/a.go": "package x\nimport _ \"" + module + "/internal/migration/cli\"", "internal/migration/cli/a.go": "package cli"}, []string{"test/x/a.go"}},
		{"an import of what breaks", map[string]string{
			"test/y/a_test.go": "package y\nimport _ \"" + module + "/test/x\"", "test/x/a.go": "package x\nimport _ \"" + module + "/internal/migration/cli\"", "internal/migration/cli/a.go": "package cli",
		}, []string{"test/x/a.go", "test/y/a_test.go"}},
		{"tests of a package break nobody else", map[string]string{
			"test/y/a.go": "package y\nimport _ \"" + module + "/test/x\"", "test/x/a.go": "package x", "test/x/a_test.go": "package x\nimport _ \"" + module + "/internal/migration/cli\"", "internal/migration/cli/a.go": "package cli",
		}, []string{"test/x/a_test.go"}},
		{"a program that is built", map[string]string{"test/x/a_test.go": "package x\nvar p = \"./cmd/trigger-sync\"", "cmd/trigger-sync/main.go": "package main"}, []string{"test/x/a_test.go"}},
		{"a document", map[string]string{"test/x/a_test.go": "package x\nvar p = \"../../docs/migration/none\""}, []string{"test/x/a_test.go"}},
		{"a name of a file that goes", map[string]string{"test/e2e/a_test.go": "package e2e\nfunc f() { g() }", "internal/migration/a.go": "package m\nfunc g() {}"}, nil},
		{"nothing", map[string]string{"test/x/a.go": "package x\nvar p = \"internal/migration is no path\""}, nil},
	} {
		if diff := cmp.Diff(tc.want, slices.Sorted(maps.Keys(brokenWithout(migrationProduct, parse(tc.files))))); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
		}
	}
}
