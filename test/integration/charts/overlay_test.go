package charts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

func tryOverlay(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), process.BuildPlain(t, "./build/overlay"), args...)
	cmd.Dir = "../../.."
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func overlay(t *testing.T, args ...string) {
	t.Helper()
	if out, err := tryOverlay(t, args...); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestAnOverlaidChartKeepsKymasObjectsAndGetsTheHooks(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		for _, component := range []string{"core", "application-connector"} {
			chain := chainOf(t, component)
			jobs := 1 + len(chain.Pre) + len(chain.Post) + len(chain.Rollback) // the first creates the state namespace
			if component == "application-connector" {
				jobs++ // helm test
			}
			out, err := h.Template(t.Context(), component, overlaid(t, component, "1.11"), "--namespace", systemNS)
			if err != nil {
				t.Fatal(err)
			}
			r := read(t, out)
			if maps := of[*corev1.ConfigMap](r); len(maps) != 1 || maps[0].Data["of"] != "kyma" {
				t.Errorf("%s: Kyma's ConfigMaps are %v", component, maps)
			}
			all := of[*batchv1.Job](r)
			if len(all) != jobs || all[0].Annotations[release] == "" {
				t.Errorf("%s: %d hooks, want %d", component, len(all), jobs)
			}
			if image := pod(all[0]).Containers[0].Image; !strings.HasPrefix(image, "registry.example/em/") || !strings.HasSuffix(image, ":v1") {
				t.Errorf("%s: the image is %s", component, image)
			}
		}
	})
}

func TestTheDefinitionOfSubscriptionsOutlivesTheChartThatLacksIt(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		chart := overlaid(t, "cluster-essentials", "1.11")
		raw, err := os.ReadFile(filepath.Join(chart, "templates", "eventing-subscription.crd.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		want := "apiVersion: apiextensions.k8s.io/v1beta1\nkind: CustomResourceDefinition\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n  name: subscriptions.eventing.kyma-project.io\nspec: {}\n"
		if diff := cmp.Diff(want, string(raw)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if _, err := os.Stat(filepath.Join(chart, "charts", "eventmesh-migration")); err == nil {
			t.Error("the chart of 1.11 needs no hook")
		}

		chart = overlaid(t, "cluster-essentials", "1.12")
		out, err := h.Template(t.Context(), "cluster-essentials", chart, "--namespace", systemNS)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out, "CustomResourceDefinition") {
			t.Error("the chart of 1.12 still has the definition: an upgrade would change it")
		}
		if chain := read(t, out).chain(t, "pre-upgrade"); len(chain) != 1 || !strings.HasPrefix(chain[0], "eventbus-purge plan") {
			t.Errorf("nothing stands before the upgrade to 1.12: %q", chain)
		}
	})
}

func TestAnOverlayForWhatItIsNotForIsRefused(t *testing.T) {
	core := overlaid(t, "core", "1.11")
	other := filepath.Join(core, "charts", "other")
	for name, tc := range map[string]struct {
		args []string
		says string
	}{
		"NoChart":      {nil, "make overlay KYMA_CHART="},
		"AnOverlay":    {[]string{"-chart", "charts/core"}, "is an overlay, and no chart of Kyma's"},
		"AnotherChart": {[]string{"-chart", other}, `there are no hooks for chart "other"`},
		"Version":      {[]string{"-chart", core, "-kyma", "1.13"}, "only for 1.11 and 1.12"},
		"CoreOf112":    {[]string{"-chart", core, "-kyma", "1.12"}, "needs no hooks"},
	} {
		if out, err := tryOverlay(t, tc.args...); err == nil || !strings.Contains(out, tc.says) {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
}
