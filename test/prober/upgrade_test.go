package prober_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	product "github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/node"
	"github.com/kyma-project/eventmesh-migration/test/prober"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// combination is a way in which Kyma is upgraded.
type combination struct {
	// order of the charts.
	order []string
	// failing: upgrades fail for a reason that goes away, and are repeated.
	failing bool
	// killed are hooks, of each chart that has them: their upgrades are repeated, too.
	killed []string
	// killing pods all the time: of event-services, of the publisher, and of
	// subscribers.
	killing bool
	seed    uint64
	// interval between two events.
	interval time.Duration
}

var (
	// The order of Kyma's installer (docs/migration/domain.md §0.1), and one in which the switch
	// comes first.
	installer      = []string{"core", "event-bus", "application-connector"}
	connectorFirst = []string{"application-connector", "core", "event-bus"}
)

func (c combination) String() string {
	name := "Installer"
	if c.order[0] != installer[0] {
		name = "ApplicationConnectorFirst"
	}
	if c.failing {
		name += "FailingHooks"
	}
	if len(c.killed) > 0 {
		name += "KilledHooks"
	}
	if c.killing {
		name += "KilledPods"
	}
	return name
}

// TestUpgrade upgrades Kyma with the real Helm, charts, jobs and event-services,
// while events are sent to every Application: none that was accepted is lost. Each
// run is another one: EVENTMESH_TEST_SEED repeats the one that a log names.
func TestUpgrade(t *testing.T) {
	o := combination{killed: []string{"pre-trigger-sync"}, killing: true, seed: seed()}
	if s, err := strconv.ParseUint(os.Getenv("EVENTMESH_TEST_SEED"), 10, 64); err == nil {
		o.seed = s
	}
	o.order = [][]string{installer, connectorFirst}[o.seed/1000%2]
	upgradeKyma(t, o)
}

func seed() uint64 { return uint64(time.Now().UnixNano()) } //nolint:gosec // only to be another one

// applications and who is subscribed to their events; of one, the HTTPSource was
// deleted by hand.
var applications = []struct{ app, namespace, subscriber, eventType string }{
	{"app-0001", "shop", "orders", "order.created"},
	{"app-0002", "crm", "customers", "customer.changed"},
	{"app-0003", "shop", "payments", "order.paid"},
}

const withoutSource = "app-0002"

func upgradeKyma(t *testing.T, o combination) *prober.Report {
	t.Helper()
	t.Logf("%s, seed %d", o, o.seed)
	var endpoints []string
	for _, a := range applications {
		endpoints = append(endpoints, a.subscriber+"."+a.namespace)
	}
	c := startCluster(t, len(applications), endpoints...)
	u := c.kyma110(t)

	var targets []prober.Target
	for _, a := range applications {
		targets = append(targets, c.target(a.app, a.eventType))
	}
	p := c.probe(t, targets, prober.Options{Interval: o.interval, MaxPending: 100}, func(p *prober.Prober, step stepper) {
		step("Kyma 1.10")
		calm := func() {}
		if o.killing {
			calm = u.disturb(t, p, o.seed)
		}
		defer calm()
		for i, component := range o.order {
			if o.failing && i == 0 {
				u.failing(t, component, step)
			}
			for j, hook := range o.killed {
				if component != "event-bus" {
					step(fmt.Sprintf("%s: %s killed", component, hook), func() { u.killHook(t, component, hook, o.seed+uint64(10*i+j)) })
				}
			}
			step(component, func() { u.must(t, component, !o.killing) })
		}
		calm()
		step("Kyma 1.11")
	}, endpoints...)

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.Await(ctx); err != nil {
		t.Error(err)
	}
	r := p.Report()
	t.Logf("%s, seed %d: the prober's report:\n%s", o, o.seed, r)
	if len(r.Missing) > 0 || len(r.GivenUp) > 0 {
		t.Errorf("events were lost:\n%s", r)
	}
	// It is the migration that was probed.
	c.awaitMesh(t, "every Kyma Subscription has become a Trigger", func(m *standin.Mesh) bool {
		return m.Has(standin.KymaSubscriptions, 0) && m.Has(schema.GroupVersionResource{Resource: "triggers"}, len(applications)) && standin.TriggersReady(m)
	})
	for _, a := range applications {
		if !c.path.OnMesh(a.app) {
			t.Errorf("the event-service of %s is not on the mesh", a.app)
		}
	}
	return r
}

// kymaUpgrade is a cluster whose Kyma is installed by Helm.
type kymaUpgrade struct {
	*cluster
	helm   *helm.Helm
	charts string
	// quiet says that pods are left alone for now.
	quiet atomic.Bool
}

const (
	repository = "kyma.test/eventmesh"
	imageTag   = "1.11"
)

// kyma110 installs Kyma 1.10, and waits until events flow.
func (c *cluster) kyma110(t *testing.T) *kymaUpgrade {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	u := &kymaUpgrade{cluster: c, charts: t.TempDir()}
	if u.helm, err = helm.New(ctx, root, 3); err != nil {
		t.Fatal(err)
	}
	u.helm.Env = []string{"KUBECONFIG=" + c.Kubeconfig, "HOME=" + t.TempDir()}
	// The operator's image holds the chart; that of 1.11, with the event path over it.
	old, err := filepath.Abs("testdata/application")
	if err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(u.charts, "application-1.11")
	u.tool(t, root, "./build/applicationoverlay", "-chart", old, "-into", fresh)
	c.operator = func(tag, eventServiceImage string) node.Container {
		chart := old
		if tag == imageTag {
			chart = fresh
		}
		return standin.StartApplicationOperator(c.ctx, standin.ApplicationOperatorOptions{
			Helm: u.helm, Namespaced: u.helm.Major > 2, Client: c.client, Chart: chart, EventServiceImage: eventServiceImage, Log: t.Logf,
		})
	}
	for _, component := range []string{"core", "event-bus", "application-connector"} {
		if err := u.upgrade(t, component, "1.10"); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range applications {
		c.awaitPath(t, "the event-service of "+a.app, func(p *standin.EventPath) bool { return p.Serving(a.app) })
		c.link(t, a.app, a.namespace)
		c.subscribe(t, a.namespace, a.subscriber, a.app, a.eventType)
	}
	if err := c.client.Resource(standin.HTTPSources).Namespace(standin.IntegrationNamespace).Delete(ctx, withoutSource, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	n := len(applications)
	c.awaitMesh(t, "the Event Bus delivers", func(m *standin.Mesh) bool {
		return m.Has(standin.KymaSubscriptions, n) && standin.SubscriptionsReady(m) && standin.LinksReady(m)
	})
	c.awaitPath(t, "the event path stands", func(p *standin.EventPath) bool { return p.Subscribed(2 * n) })
	return u
}

// tool runs a program of the repository in its root.
func (u *kymaUpgrade) tool(t *testing.T, root, pkg string, args ...string) {
	t.Helper()
	p, err := node.StartProcess(process.BuildPlain(t, pkg), nil, append(args, map[string][]string{
		"./build/applicationoverlay": {"-ours", filepath.Join(root, "charts", "application")},
		"./build/overlay":            {"-charts", filepath.Join(root, "charts")},
	}[pkg]...))
	if err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	if code, said := p.Ended(); code != 0 {
		t.Fatalf("%s: exit code %d: %s", pkg, code, said)
	}
}

// chart writes a stand-in of Kyma's chart, with the hooks over it from 1.11 on, and
// returns its folder.
func (u *kymaUpgrade) chart(t *testing.T, component, version string) string {
	t.Helper()
	chart := filepath.Join(u.charts, component+"-"+version)
	if _, err := os.Stat(chart); err == nil {
		return chart
	}
	files := map[string]string{
		"Chart.yaml":  fmt.Sprintf("apiVersion: v1\nname: %s\nversion: %s.0\n", component, version),
		"values.yaml": "ofKyma: true\n",
		"templates/configmap.yaml": fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  namespace: {{ .Release.Namespace }}\ndata:\n  version: %q\n",
			component, version),
	}
	switch component {
	case "event-bus":
		for _, d := range standin.EventBus() {
			raw, err := yaml.Marshal(d.Object)
			if err != nil {
				t.Fatal(err)
			}
			files["templates/"+d.GetName()+".yaml"] = string(raw)
		}
	case "application-connector":
		files["templates/application-operator.yaml"] = applicationOperator(version)
	}
	if err := helm.WriteChart(chart, files); err != nil {
		t.Fatal(err)
	}
	if version != "1.10" && component != "event-bus" {
		u.tool(t, u.helm.Root, "./build/overlay", "-chart", chart, "-kyma", version, "-repository", repository, "-tag", imageTag)
	}
	return chart
}

// applicationOperator is its StatefulSet: what the values of Kyma's chart put
// together.
func applicationOperator(version string) string {
	image := "eu.gcr.io/kyma-project/event-service:b2aa1331"
	if version != "1.10" {
		image = repository + "/event-service:" + imageTag
	}
	return fmt.Sprintf(`apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: application-operator
  namespace: {{ .Release.Namespace }}
spec:
  serviceName: application-operator
  replicas: 1
  selector:
    matchLabels: {app: application-operator}
  template:
    metadata:
      labels: {app: application-operator}
    spec:
      containers:
      - name: application-operator
        image: %s/application-operator:%s
        args: ["--eventServiceImage=%s"]
`, repository, version, image)
}

// namespaceOf a release (docs/migration/domain.md §8.1).
func namespaceOf(component string) string {
	if component == "application-connector" {
		return standin.IntegrationNamespace
	}
	return standin.SystemNamespace
}

// upgrade installs or upgrades a release as Kyma's installer does.
func (u *kymaUpgrade) upgrade(t *testing.T, component, version string, sets ...string) error {
	t.Helper()
	var args []string
	switch {
	case version == "1.10":
	case component == "event-bus":
		// Its own hook deletes the Deployments first (docs/migration/domain.md §5.1).
		for _, d := range standin.EventBus() {
			if err := u.client.Resource(standin.Deployments).Namespace(standin.SystemNamespace).Delete(t.Context(), d.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Logf("%s: %v", component, err)
			}
		}
	default:
		// A killed run's lock is over soon, and the API server has no way to pods.
		for _, set := range append([]string{
			"eventmesh-migration.leaseSeconds=3",
			"eventmesh-migration.jobs.eventservice-verify.args[0]=--per-application-timeout=20s",
			"eventmesh-migration.jobs.trigger-sync.args[0]=--nats-monitoring-url=" + u.path.MonitoringURL,
			"eventmesh-migration.jobs.trigger-sync.args[1]=--observe-publishers=2s",
		}, sets...) {
			args = append(args, "--set", set)
		}
	}
	began := time.Now()
	_, err := u.helm.Upgrade(t.Context(), component, u.chart(t, component, version), namespaceOf(component), 10*time.Minute, args...)
	t.Logf("%s %s: %s: %s %v", component, version, time.Since(began).Round(time.Second/10), strings.Join(u.told(), ", "), err)
	return err
}

// attempts are as many as Kyma's installer makes (docs/migration/domain.md §8.2).
const attempts = 6

// must upgrades; a failure is repeated as the installer does, unless nothing is in
// its way. The slower a machine, the more of an upgrade is disturbed: so the last
// attempts are left alone.
func (u *kymaUpgrade) must(t *testing.T, component string, calm bool) {
	t.Helper()
	var all []error
	defer u.quiet.Store(false)
	for i := range attempts {
		u.quiet.Store(i >= attempts/2)
		err := u.upgrade(t, component, "1.11")
		if err == nil {
			return
		}
		all = append(all, err)
		if calm {
			break
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	t.Fatalf("%v\nwhat the hooks said: %v", errors.Join(all...), u.output)
}

// failing lets the upgrade fail for a reason that goes away.
func (u *kymaUpgrade) failing(t *testing.T, component string, step stepper) {
	t.Helper()
	sub := standin.KymaSubscription(applications[0].namespace, applications[0].subscriber, "", "")
	trigger := applications[0].namespace + "/" + product.TriggerName(sub)
	for _, tc := range []struct {
		name, set string
		break_    func()
	}{
		{"an HTTPSource is not ready", "httpsource-sync.args[0]", func() { u.controllers.Break(standin.AdapterNeverReady, withoutSource) }},
		{"a Trigger is not ready", "trigger-sync.args[1]", func() { u.mesh.Break(standin.TriggerNeverReady, trigger) }},
	} {
		tc.break_()
		step(component+": "+tc.name, func() {
			if err := u.upgrade(t, component, "1.11", "eventmesh-migration.jobs."+tc.set+"=--ready-timeout=2s"); err == nil {
				t.Error("the upgrade succeeds although " + tc.name)
			}
		})
		u.controllers.HealAll()
		u.mesh.HealAll()
	}
}

// killHook kills a hook after a moment, if it runs, and so fails the upgrade.
func (u *kymaUpgrade) killHook(t *testing.T, component, hook string, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // no secret
	after := time.Duration(random.Int64N(int64(120 * time.Millisecond)))
	u.mu.Lock()
	u.kill[hook] = after
	u.mu.Unlock()
	// It may have been too quick to be killed.
	_ = u.upgrade(t, component, "1.11")
	u.mu.Lock()
	delete(u.kill, hook)
	u.mu.Unlock()
}

// disturb kills pods until calm is called, which may be twice.
func (u *kymaUpgrade) disturb(t *testing.T, p *prober.Prober, seed uint64) (calm func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // no secret
		for {
			pause := time.NewTimer(time.Second + time.Duration(random.Int64N(int64(3*time.Second))))
			select {
			case <-pause.C:
			case <-ctx.Done():
				return
			}
			if u.quiet.Load() {
				continue
			}
			a := applications[random.IntN(len(applications))]
			switch random.IntN(4) {
			case 0: // the container ends, as after a crash
				n := u.node.Kill(func(pod *corev1.Pod) bool { return pod.Labels["app"] == a.app+"-event-service" })
				t.Logf("killed %d containers of the event-service of %s", n, a.app)
			case 1: // an eviction
				u.evict(ctx, t, standin.IntegrationNamespace, "app="+a.app+"-event-service", random)
			case 2:
				u.evict(ctx, t, standin.SystemNamespace, "app.kubernetes.io/name=event-publish-service", random)
			default:
				subscriber := u.subscribers[a.subscriber+"."+a.namespace]
				subscriber.set(nil)
				t.Logf("the subscriber of %s is away", a.app)
				back := time.NewTimer(time.Second)
				select {
				case <-back.C:
				case <-ctx.Done():
				}
				subscriber.set(p)
			}
		}
	})
	return func() {
		stop()
		running.Wait()
	}
}

func (u *kymaUpgrade) evict(ctx context.Context, t *testing.T, namespace, selector string, random *rand.Rand) {
	pods, err := u.core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil || len(pods.Items) == 0 {
		return
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	pod := pods.Items[random.IntN(len(pods.Items))]
	err = u.core.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})
	t.Logf("evicted Pod %s/%s: %v", namespace, pod.Name, err)
}
