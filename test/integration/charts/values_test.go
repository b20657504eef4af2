package charts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kyma-project/eventmesh-migration/test/helm"
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// Fails on the commit before: the tag devel was rendered, and waited for until the Job's deadline.
func TestAnImageThatNobodyHasPushedIsRefused(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		refused(t, h, `image.tag is "devel", and nobody has pushed eu.gcr.io/kyma-project/eventmesh-migration/httpsource-sync:devel`, "--set", "image.allowDevel=false")
		refused(t, h, "image.digests.eventmesh-migrate", "--set", "image.allowDevel=false,image.tag=devel,hooks.enabled=false,phase=pre")
		render(t, h, "--set", "image.allowDevel=false,image.tag=v1")
		// A program without a digest falls back to the tag.
		refused(t, h, "image.digests.serviceinstance-recreate", "--set", "image.allowDevel=false,image.digests.httpsource-sync="+digest)
		render(t, h, "--set", "image.allowDevel=false,component=cluster-essentials,image.digests.eventbus-purge="+digest)
	})
}

// Fails on the commit before: one tag, and with it one digest, was for all programs.
func TestADigestIsOfItsProgramAndCountsInsteadOfTheTag(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		other := strings.Replace(digest, "0", "f", 1)
		r := render(t, h, "--set", "image.tag=v1,image.repository=localhost:5000/em,image.digests.httpsource-sync="+digest+",image.digests.trigger-sync="+other)
		pinned := map[string]string{"httpsource-sync": "@" + digest, "trigger-sync": "@" + other}
		jobs := of[*batchv1.Job](r)
		if len(jobs) == 0 {
			t.Fatal("no Job")
		}
		for _, job := range jobs {
			c := pod(job).Containers[0]
			program := c.Name
			if program == stateNamespace {
				program = chainOf(t, "core").Pre[0].Job
			}
			version := ":v1"
			if pinned[program] != "" {
				version = pinned[program]
			}
			if want := "localhost:5000/em/" + program + version; c.Image != want {
				t.Errorf("Job %s runs %s, want %s", job.Name, c.Image, want)
			}
		}
		for _, job := range of[*batchv1.Job](render(t, h, "--set", "hooks.enabled=false,phase=pre,image.digests.eventmesh-migrate="+digest)) {
			for _, c := range append(pod(job).InitContainers, pod(job).Containers...) {
				if !strings.HasSuffix(c.Image, "/eventmesh-migrate@"+digest) {
					t.Errorf("without hooks %s runs %s", c.Name, c.Image)
				}
			}
		}
	})
}

// digestsFile names all images as "docker inspect" does.
func digestsFile(t *testing.T, change func(lines []string) []string) string {
	t.Helper()
	var lines []string
	programs := []string{"eventmesh-migrate", "event-service"}
	for _, e := range chartJobs() {
		programs = append(programs, e.Name())
	}
	for _, program := range programs {
		lines = append(lines, "registry.example:5000/em/"+program+"@"+digest)
	}
	file := filepath.Join(t.TempDir(), "digests")
	if err := os.WriteFile(file, []byte(strings.Join(change(lines), "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Fails on the commit before: the overlay knew no digests.
func TestAnOverlayWritesTheDigests(t *testing.T) {
	chart := overlaid(t, "core", "1.11")
	file := digestsFile(t, func(lines []string) []string {
		lines[0] = strings.Replace(lines[0], "@", ":v1@", 1)
		return append([]string{"# pushed yesterday", ""}, lines...)
	})
	overlay(t, "-chart", chart, "-repository", "registry.example:5000/em", "-digests", file)
	each(t, func(t *testing.T, h *helm.Helm) {
		out, err := h.Template(t.Context(), "core", chart, "--namespace", systemNS)
		if err != nil {
			t.Fatal(err)
		}
		for _, job := range of[*batchv1.Job](read(t, out)) {
			program := pod(job).Containers[0].Name
			if program == stateNamespace {
				program = chainOf(t, "core").Pre[0].Job
			}
			if c := pod(job).Containers[0]; c.Image != "registry.example:5000/em/"+program+"@"+digest {
				t.Errorf("Job %s runs %s", job.Name, c.Image)
			}
		}
	})
}

func TestDigestsThatLeaveAProgramUnpinnedAreRefused(t *testing.T) {
	chart := overlaid(t, "core", "1.11")
	for name, tc := range map[string]struct {
		change func(lines []string) []string
		says   string
	}{
		"Missing": {func(lines []string) []string {
			return slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, "/trigger-sync@") })
		}, "names no digest for trigger-sync: add a line"},
		"Tag":             {func(lines []string) []string { return append(lines, "registry.example:5000/em/other:v1") }, "is no registry/path/program@sha256:"},
		"Short":           {func(lines []string) []string { return append(lines, "other@sha256:0123") }, "is no registry/path/program@sha256:"},
		"OtherRepository": {func(lines []string) []string { return append(lines, "example.com/em/trigger-sync@"+digest) }, "is not in the repository registry.example:5000/em"},
		"TwoOfOne": {func(lines []string) []string {
			return append(lines, "trigger-sync@"+strings.Replace(digest, "0", "1", 1))
		}, "names two digests for trigger-sync"},
	} {
		t.Run(name, func(t *testing.T) {
			before, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			out, err := tryOverlay(t, "-chart", chart, "-repository", "registry.example:5000/em", "-digests", digestsFile(t, tc.change))
			if err == nil || !strings.Contains(out, tc.says) {
				t.Errorf("%v, %s", err, out)
			}
			if after, err := os.ReadFile(filepath.Join(chart, "values.yaml")); err != nil || string(after) != string(before) {
				t.Errorf("the chart was changed: %v", err)
			}
		})
	}
}

// Fails on the commit before: it rendered "namespace: 123", which the API server refuses in the
// middle of an upgrade.
func TestANameThatWouldBreakAnUpgradeIsRefused(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		// An error also holds the command line. The schema names the value's path; Helm 2 knows no
		// schema.
		says := func(value string) string {
			key, _, _ := strings.Cut(value, "=")
			if h.Major == 2 {
				return ": " + key + " is "
			}
			group, _, _ := strings.Cut(key, ".")
			return "at '/" + group
		}
		for _, value := range []string{
			"namespaces.state=123", "namespaces.state=", "namespaces.state=a: b", "namespaces.eventBus=Kyma", "namespaces.integration=true.x", "namespaces.tiller=-",
			"namespaces.nats=" + strings.Repeat("a", 64),
		} {
			for _, set := range []string{"--set", "--set-string"} {
				if out, err := template(t, h, "--set", "standalone=true", set, value); err == nil || !strings.Contains(err.Error(), says(value)) {
					t.Errorf("%s %s: %v\n%.300s", set, value, err, out)
				}
			}
		}
		for _, value := range []string{"image.digests.trigger-sync=sha256:0", "image.tag=20261122"} {
			refused(t, h, says(value), "--set", value)
		}
		if h.Major == 2 {
			return
		}
		for _, value := range []string{
			"image.pullSecrets={123}", "priorityClassName=123", "priorityClassName=a b", "nats.pods={a:4222}", "namespaces.exclude={123}", "image.tag=a b",
			"image.repository=a b", "image.digests.trigger-sync=sha256:0", "image.digests.trigger-snyc=" + digest, "ttlSecondsAfterFinished=-1",
			"networkPolicy.ports={https}", "podLabels.a={1}",
		} {
			if out, err := template(t, h, "--set", "standalone=true", "--set-string", value); err == nil || !strings.Contains(err.Error(), says(value)) {
				t.Errorf("%s: %v\n%.300s", value, err, out)
			}
		}
	})
}

// Fails on the commit before: a scalar that YAML takes for a number, or a colon in one, was
// rendered as it is.
func TestEveryScalarIsQuoted(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		for _, component := range []string{"component=application-connector", "component=application-connector,hooks.enabled=false,phase=post"} {
			// read refuses what is no string.
			out, err := h.Template(t.Context(), "1e3", hooksChart, "--namespace", "123", "--kube-version", modern,
				"--set", "standalone=true,image.allowDevel=true,networkPolicy.enabled=true,admissionPolicy.enabled=true,"+component,
				"--set-string", `podLabels.1=2,podAnnotations.true=a: b,nodeSelector.a=true,jobs.trigger-sync.args={--legacy-traffic=a: "b"},priorityClassName=off,image.pullSecrets={no}`)
			if err != nil {
				t.Fatal(err)
			}
			r := read(t, out)
			for _, obj := range r.objects {
				m, err := meta.Accessor(obj)
				if err != nil || m.GetLabels()["app.kubernetes.io/instance"] != "1e3" {
					t.Errorf("%T %s has the labels %v: %v", obj, m.GetName(), m.GetLabels(), err)
				}
			}
			if !strings.Contains(out, `--legacy-traffic=a: \"b\"`) {
				t.Errorf("%s: an argument is not what was set", component)
			}
		}
	})
}

// Fails on the commit before: the user was fixed, which OpenShift's restricted-v2 refuses.
func TestSecurityContextsAreValues(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		want := &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
		for chart, prefix := range map[string]string{hooksChart: "", "charts/core": "eventmesh-migration."} {
			set := strings.ReplaceAll("@standalone=true,@image.allowDevel=true,@podSecurityContext.runAsUser=,@podSecurityContext.runAsGroup=", "@", prefix)
			out, err := h.Template(t.Context(), "core", chart, "--namespace", systemNS, "--kube-version", modern, "--set", set)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, pod(read(t, out).job(t, "core-pre-trigger-sync")).SecurityContext); diff != "" {
				t.Errorf("%s: the cluster is to choose the user (-want +got):\n%s", chart, diff)
			}
		}
		spec := pod(render(t, h, "--set", "podSecurityContext.runAsUser=1000680000,podSecurityContext.seccompProfile.type=Unconfined,securityContext.runAsNonRoot=true").job(t, "core-pre-trigger-sync"))
		if *spec.SecurityContext.RunAsUser != 1000680000 || spec.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeUnconfined || !*spec.Containers[0].SecurityContext.RunAsNonRoot {
			t.Errorf("the security contexts are %v and %v", spec.SecurityContext, spec.Containers[0].SecurityContext)
		}
	})
}

// Fails on the commit before: both were left to the default, which is yes for every pod of the
// account.
func TestOnlyTheJobsPodsHaveTheToken(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		for _, args := range [][]string{{"--set", "component=application-connector"}, {"--set", "hooks.enabled=false,phase=pre"}} {
			r := render(t, h, args...)
			for _, account := range of[*corev1.ServiceAccount](r) {
				if account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken {
					t.Errorf("ServiceAccount %s gives its token to every pod", account.Name)
				}
			}
			for _, job := range of[*batchv1.Job](r) {
				if got := pod(job).AutomountServiceAccountToken; got == nil || !*got {
					t.Errorf("Job %s does not ask for its token", job.Name)
				}
			}
		}
	})
}

// Fails on the commit before: there was neither value.
func TestAffinityAndTimeToLive(t *testing.T) {
	const arch = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0]"
	each(t, func(t *testing.T, h *helm.Helm) {
		for _, more := range []string{"", ",hooks.enabled=false,phase=pre"} {
			for _, job := range of[*batchv1.Job](render(t, h, "--set", "ttlSecondsAfterFinished=86400,"+arch+".key=kubernetes.io/arch,"+arch+".operator=In,"+arch+".values={amd64}"+more)) {
				if job.Spec.TTLSecondsAfterFinished == nil || *job.Spec.TTLSecondsAfterFinished != 86400 {
					t.Errorf("Job %s lives %v", job.Name, job.Spec.TTLSecondsAfterFinished)
				}
				if a := pod(job).Affinity; a == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Values[0] != "amd64" {
					t.Errorf("Job %s has the affinity %v", job.Name, a)
				}
			}
			for _, job := range of[*batchv1.Job](render(t, h, "--set", "standalone=true"+more)) {
				if job.Spec.TTLSecondsAfterFinished != nil || pod(job).Affinity != nil {
					t.Errorf("Job %s is to stay, and to run anywhere", job.Name)
				}
			}
		}
	})
}

// Fails on the commit before: there was no such value. It comes and goes with the account: a Job
// that still runs must not lose the API server.
func TestANetworkPolicyLetsTheJobsReachTheAPIServerOnly(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		if got := of[*networkingv1.NetworkPolicy](render(t, h)); len(got) > 0 {
			t.Errorf("%d NetworkPolicies that nobody asked for", len(got))
		}
		r := render(t, h, "--set", "networkPolicy.enabled=true,networkPolicy.egress[0].to[0].namespaceSelector.matchLabels.a=b")
		policies := of[*networkingv1.NetworkPolicy](r)
		lives := func(m metav1.Object) string {
			return m.GetName() + ": " + m.GetAnnotations()[release] + " " + m.GetAnnotations()[policy]
		}
		var accounts, fences []string
		for _, account := range of[*corev1.ServiceAccount](r) {
			accounts = append(accounts, lives(account))
		}
		for _, policy := range policies {
			fences = append(fences, lives(policy))
		}
		slices.Sort(accounts)
		slices.Sort(fences)
		if diff := cmp.Diff(accounts, fences); diff != "" {
			t.Errorf("a NetworkPolicy does not come and go with its account (-account +policy):\n%s", diff)
		}
		for _, policy := range policies {
			var ports []intstr.IntOrString
			for _, port := range policy.Spec.Egress[0].Ports {
				ports = append(ports, *port.Port)
			}
			if diff := cmp.Diff([]intstr.IntOrString{intstr.FromInt32(443), intstr.FromInt32(6443)}, ports); diff != "" || len(policy.Spec.Egress) != 2 || len(policy.Spec.Ingress) != 0 || len(policy.Spec.PolicyTypes) != 2 {
				t.Errorf("NetworkPolicy %s: %+v\n%s", policy.Name, policy.Spec, diff)
			}
			for _, job := range of[*batchv1.Job](r) {
				for key, value := range policy.Spec.PodSelector.MatchLabels {
					if job.Spec.Template.Labels[key] != value {
						t.Errorf("NetworkPolicy %s is not for Job %s", policy.Name, job.Name)
					}
				}
			}
		}
	})
}

// Fails on the commit before: it rendered nothing, and exited with 0.
func TestAChartWithoutAnyJobIsRefused(t *testing.T) {
	all := func(component string) string {
		chain := chainOf(t, component)
		return without(jobsOf(slices.Concat(chain.Pre, chain.Post, chain.Rollback))...)
	}
	each(t, func(t *testing.T, h *helm.Helm) {
		refused(t, h, "no job of core is enabled", "--set", all("core"))
		refused(t, h, "no job of application-connector is enabled", "--set", "hooks.enabled=false,phase=pre,component=application-connector,"+all("application-connector"))
		render(t, h, "--set", "component=application-connector,"+all("core"))
		render(t, h, "--set", "component=cluster-essentials,"+all("core"))
	})
}

// Fails on the commit before: the chart named no version. Helm 2 asks only where it installs.
func TestAKubernetesThatIsTooOldIsRefused(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		for _, chart := range []string{hooksChart, "charts/core", "charts/application-connector", "charts/cluster-essentials/1.12", "charts/application"} {
			if _, err := h.Template(t.Context(), "core", chart, "--kube-version", "1.13.9"); h.Major > 2 && (err == nil || !strings.Contains(err.Error(), "kubeVersion: >=1.14.0-0")) {
				t.Errorf("%s: %v", chart, err)
			}
		}
		for _, version := range []string{"1.14.0", "v1.14.10-gke.36"} {
			render(t, h, "--kube-version", version)
		}
	})
}

// Fails on the commit before: there was nothing for "helm test" to run.
func TestHelmTestAsksWhetherTheEventServicesHaveSwitched(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		r := render(t, h, "--set", "component=application-connector")
		if diff := cmp.Diff([]string{"eventservice-verify run --defer=fail"}, r.chain(t, "test")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		job := r.job(t, "core-test-eventservice-verify")
		if deadline := *job.Spec.ActiveDeadlineSeconds + *pod(job).TerminationGracePeriodSeconds; deadline > 300 {
			t.Errorf("it may take %d seconds, and Helm waits 300", deadline)
		}
		if !slices.ContainsFunc(of[*corev1.ServiceAccount](r), func(account *corev1.ServiceAccount) bool {
			return account.Annotations[release] == "test" && strings.Contains(account.Annotations[policy], "hook-succeeded")
		}) {
			t.Error("its account outlives it")
		}
		for name, list := range rules(r) {
			for _, rule := range list {
				if strings.Contains(name, "core-test-") && !slices.Contains(rule.Resources, "configmaps") && (slices.Contains(rule.Verbs, "create") || slices.Contains(rule.Verbs, "patch") || slices.Contains(rule.Verbs, "delete")) {
					t.Errorf("%s: a test may not change anything: %v", name, rule)
				}
			}
		}
		for _, args := range []string{"component=core", "component=application-connector,test.enabled=false", "component=application-connector,jobs.eventservice-verify.enabled=false"} {
			if chain := render(t, h, "--set", args).chain(t, "test"); len(chain) > 0 {
				t.Errorf("%s: helm test runs %q", args, chain)
			}
		}
	})
}
