package engine_test

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/model"
)

var (
	configMaps = migration.CoreResource("", "configmaps", "ConfigMap")
	names      = migration.Names{Program: "tidy-up", Domain: "tidy-up.example.org"}
)

// tidy is a job: it sets the label tidy on all ConfigMaps of the namespace shop.
type tidy struct{}

func (tidy) Name() string { return "tidy" }

func (tidy) Doc() (short, long string) { return "Label ConfigMaps.", "" }

func (tidy) Plan(ctx context.Context, c *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	all, err := c.List(ctx, configMaps, "shop", migration.ListOptions{LabelSelector: "!tidy"})
	if err != nil {
		return nil, err
	}
	plan := &migration.Plan{}
	for _, obj := range all {
		ref := configMaps.RefTo(obj)
		plan.Units = append(plan.Units, migration.Unit{ID: ref.String(), Changes: []migration.Change{
			{Verb: migration.Patch, Ref: ref, Object: obj, Patch: []byte(`{"metadata":{"labels":{"tidy":"yes"}}}`), Why: "it has no label"},
		}})
	}
	return plan, nil
}

func (tidy) Await(*migration.Change) []migration.Condition { return nil }

// shop is a Kubernetes API server in memory, with one ConfigMap. A program takes the rest.Config of
// its cluster instead, for example from clientcmd.
func shop() *rest.Config {
	cfg := model.New(1).Client("example").Config()
	client := dynamic.NewForConfigOrDie(cfg)
	create := func(r migration.Resource, namespace, name string) {
		obj := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}}}
		obj.SetGroupVersionKind(r.GVK())
		if _, err := r.In(client, namespace).Create(context.Background(), obj, metav1.CreateOptions{}); err != nil {
			panic(err)
		}
	}
	create(migration.CoreResource("", "namespaces", "Namespace"), "", "shop")
	create(configMaps, "shop", "orders")
	return cfg
}

func ExampleNew() {
	e, err := engine.New(shop(), engine.Options{Names: names})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	for _, command := range []func(context.Context, migration.Job) *migration.Report{e.Plan, e.Run, e.Run, e.Undo} {
		report := command(ctx, tidy{})
		fmt.Println(report.Command, report.Result, report.ExitCode())
	}
	_, err = engine.New(shop(), engine.Options{})
	fmt.Println(err)
	// Output:
	// plan planned 0
	// run succeeded 0
	// run nothing-to-do 0
	// undo succeeded 0
	// the program has no name: set Names.Program
}

// A plan shows each change, and why it is left to make. It writes nothing.
func ExampleEngine_Plan() {
	e, err := engine.New(shop(), engine.Options{Names: names})
	if err != nil {
		fmt.Println(err)
		return
	}
	report := e.Plan(context.Background(), tidy{})
	fmt.Println(report.Message)
	for _, change := range report.Changes {
		fmt.Printf("%s %s/%s: %s; can be undone: %s\n", change.Verb, change.Namespace, change.Name, change.Message, change.Reversible)
	}
	// Output:
	// a run would make 1 change
	// patch shop/orders: it has no label; can be undone: yes
}

// A signal ends a run in order. Its journal stays open, and the next run finishes what it began.
func ExampleEngine_Run() {
	e, err := engine.New(shop(), engine.Options{Names: names})
	if err != nil {
		fmt.Println(err)
		return
	}
	// In a program: signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM).
	ctx, interrupt := context.WithCancel(context.Background())
	interrupt()
	fmt.Println(e.Run(ctx, tidy{}).Result)
	report := e.Run(context.Background(), tidy{})
	fmt.Println(report.Result, report.Message)
	for _, change := range report.Changes {
		fmt.Println(change.Verb, change.Name, change.Result)
	}
	// Output:
	// interrupted
	// succeeded 1 change made
	// patch orders done
}

// Somebody looks at what an undo would do, and agrees to undo that run and no other.
func ExampleEngine_PlanUndo() {
	ctx, cfg := context.Background(), shop()
	e, err := engine.New(cfg, engine.Options{Names: names})
	if err != nil {
		fmt.Println(err)
		return
	}
	e.Run(ctx, tidy{})
	plan := e.PlanUndo(ctx, tidy{})
	for _, change := range plan.Changes {
		fmt.Println(plan.Result, change.Verb, change.Name)
	}
	agreed, err := engine.New(cfg, engine.Options{Names: names, UndoOnly: map[string]string{"tidy": plan.Run}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(agreed.Undo(ctx, tidy{}).Result)
	// Output:
	// planned patch orders
	// succeeded
}

// Decide asks a job what is left to do, for a program that acts on the plan itself.
func ExampleEngine_Decide() {
	e, err := engine.New(shop(), engine.Options{Names: names})
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := e.Decide(context.Background(), tidy{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, unit := range plan.Units {
		fmt.Println(unit.ID)
	}
	// Output: ConfigMap shop/orders
}

// State tells what earlier runs have left: their journals, their reports, and who holds the lock.
func ExampleEngine_State() {
	ctx := context.Background()
	e, err := engine.New(shop(), engine.Options{Names: names})
	if err != nil {
		fmt.Println(err)
		return
	}
	e.Run(ctx, tidy{})
	state, err := e.State(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, journal := range state.Journals {
		fmt.Printf("%s: open %t\n", journal.Job, journal.Open)
	}
	fmt.Println("last report:", state.Reports["tidy"].Result)
	fmt.Println("locked:", state.Lock != nil)
	// Output:
	// tidy: open false
	// last report: succeeded
	// locked: false
}

// Missing says which permissions an account lacks, before anybody runs the job with it.
func ExampleEngine_Missing() {
	e, err := engine.New(shop(), engine.Options{Names: names})
	if err != nil {
		fmt.Println(err)
		return
	}
	rows := append(migration.WriterState("tidy-up"), migration.Access{Resource: "configmaps", Namespace: "shop", Verbs: []string{"list", "patch"}})
	missing, err := e.Missing(context.Background(), rows)
	fmt.Println(len(missing), err)
	// Output: 0 <nil>
}
