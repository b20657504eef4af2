//go:build e2e && soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/test/measure"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	versions "github.com/kyma-project/eventmesh-migration/test/upgrade"
)

// upgrading is a cluster that runs the version before.
type upgrading struct {
	*switching
	former string // its sources
}

// startUpgrading starts with the backend NATS, and with events.
func startUpgrading(t *testing.T) *upgrading {
	t.Helper()
	of := full
	of.subscriptions = measure.Number(t, "EVENTING_SOAK_SUBSCRIPTIONS", full.subscriptions)
	u := &upgrading{switchingCluster(t, of), versions.Sources(t)}
	u.formerVersion(t)
	u.begin(t)
	u.prober.Step("the version before")
	u.accepted(t, 1000)
	return u
}

func (u *upgrading) formerVersion(t *testing.T) {
	t.Helper()
	u.started.Values = ""
	u.version(t, func(ctx context.Context) error { return u.started.ImagesOf(ctx, u.former, "previous") })
}

// apply applies the manifest that was built last, and returns when the pods of the other version
// are gone, all is ready, and more holds. Images of the version before end with ":previous".
func (u *upgrading) apply(t *testing.T, step string, more func() error) {
	t.Helper()
	u.prober.Step(step)
	began := time.Now()
	u.do(t, "", "apply", "-f", u.manifest)
	toFormer := strings.Contains(u.started.Manifest, ":previous")
	poll.Until(t, 5*time.Minute, "all programs are of one version", func(ctx context.Context) error {
		if err := more(); err != nil {
			return err
		}
		pods, err := u.client.CoreV1().Pods(eventingNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range pods.Items {
			if image := pods.Items[i].Spec.Containers[0].Image; strings.HasSuffix(image, ":previous") != toFormer {
				return fmt.Errorf("pod %s has %s", pods.Items[i].Name, image)
			}
			for _, c := range pods.Items[i].Status.Conditions {
				if c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue {
					return fmt.Errorf("pod %s is not ready", pods.Items[i].Name)
				}
			}
		}
		is, err := u.dynamic.Resource(eventings).Namespace(u.namespace).Get(ctx, u.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if state, _, _ := unstructured.NestedString(is.Object, "status", "state"); state != "Ready" {
			return fmt.Errorf("%v", is.Object["status"])
		}
		return nil
	})
	t.Logf("%s: %.0f s", step, time.Since(began).Seconds())
}

// judged ends the sending. Events may come twice in some steps.
func (u *upgrading) judged(t *testing.T, gap time.Duration, mayComeTwice ...string) {
	t.Helper()
	r := u.nothingLost(t)
	if is := u.prober.LongestGap(); is > gap {
		t.Errorf("no event was accepted for %s", is)
	}
	twice := 0
	for i := range r.Duplicates {
		if !slices.Contains(mayComeTwice, r.Duplicates[i].Step) {
			twice++
		}
	}
	t.Logf("%d of %d events arrived twice, %d of them in other steps than %q", len(r.Duplicates), r.Accepted, twice, mayComeTwice)
	if twice*1000 > r.Accepted {
		t.Errorf("%d events arrived more than once", twice)
	}
}

// TestSoakUpgradeOnMesh upgrades the version before, which had a Trigger for each type of a
// Subscription, while the mesh delivers an event each 10 ms. Its Triggers stay until the backend is
// switched, and events come twice until what they were sent before the upgrade has ended.
func TestSoakUpgradeOnMesh(t *testing.T) {
	u := startUpgrading(t)
	u.moreVolumes(t, 2)
	u.to(t, "EventMesh")
	if n := len(u.triggers(t)); n != u.subscriptions {
		t.Fatalf("the version before has %d Triggers for %d Subscriptions", n, u.subscriptions)
	}
	u.prober.Step("the version before, on the mesh")
	u.accepted(t, 1000)
	u.thisVersion(t)
	u.apply(t, "upgrade", func() error {
		if !slices.Contains(u.triggers(t), present) {
			return errors.New("there is no Trigger for all Subscriptions")
		}
		return nil
	})
	u.prober.Step("both ways")
	time.Sleep(backend.MeshTimeout + 10*time.Second) // what was sent before may still arrive
	u.prober.Step("this version")
	u.accepted(t, 1000)
	for _, to := range []string{"NATS", "EventMesh"} {
		u.to(t, to)
		u.accepted(t, 500)
	}
	if names := u.triggers(t); len(names) != 1 || names[0] != present {
		t.Errorf("after the switch, the Triggers are %q", names)
	}
	u.judged(t, longestGap, "upgrade", "both ways")
}

// TestSoakUpgradeOnNATS upgrades the version before, goes back as docs/eventing/README.md says, and
// upgrades again, while NATS delivers an event each 10 ms. Its one server is started again by each.
func TestSoakUpgradeOnNATS(t *testing.T) {
	u := startUpgrading(t)
	always := func() error { return nil }
	u.thisVersion(t)
	u.apply(t, "upgrade", always)
	u.accepted(t, 1000)
	u.prober.Step("the way back")
	root, scripts := scriptsOf(t, "docs/eventing/README.md")
	back := slices.IndexFunc(scripts, func(script string) bool { return strings.Contains(script, " app.kubernetes.io/instance=eventing") })
	if back < 0 {
		t.Fatal("the page does not say how to go back")
	}
	u.shell(t, root, scripts[back])
	u.formerVersion(t)
	u.apply(t, "back", always)
	u.accepted(t, 1000)
	u.thisVersion(t)
	u.apply(t, "upgrade again", always)
	u.accepted(t, 1000)
	const restart = 30 * time.Second // of one server: new pod, TLS, stream, publishers
	u.judged(t, restart)
}

// present leads the events of all Subscriptions.
var present = backend.Names(backend.DefaultPrefix).Triggers()[0]

// triggers are the names of those that lead events of the mesh.
func (s *switching) triggers(t *testing.T) []string {
	t.Helper()
	list, err := s.dynamic.Resource(schema.GroupVersionResource{Group: "eventing.knative.dev", Version: "v1", Resource: "triggers"}).Namespace(eventingNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].GetName())
	}
	return names
}
