package charts

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/kyma-project/eventmesh-migration/internal/migration/verify"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/helm"
)

// The order itself is that of the guide: internal/migration/registry has a test of it.
func TestEachComponentRunsTheChainOfTheRegistry(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		for _, component := range components {
			chain := chainOf(t, component)
			want := map[string][]string{"pre-upgrade": lines(chain.Pre), "post-upgrade": lines(chain.Post), "pre-rollback": lines(chain.Rollback)}
			r := render(t, h, "--set", "component="+component)
			got := map[string][]string{}
			for event := range want {
				got[event] = r.chain(t, event)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", component, diff)
			}
		}
	})
}

// The settings of a job say which flags it has.
func TestEachJobGetsTheFlagsItHas(t *testing.T) {
	values := map[string]string{"integration-namespace": "in", "event-bus-namespace": "eb", "tiller-namespace": "ti"}
	wanted := map[string][]string{}
	for _, e := range chartJobs() {
		for _, s := range e.Job.(migration.Configurable).Settings() {
			if value, ok := values[s.Name]; ok {
				wanted[e.Name()] = append(wanted[e.Name()], "--"+s.Name+"="+value)
			}
		}
		slices.Sort(wanted[e.Name()])
	}
	each(t, func(t *testing.T, h *helm.Helm) {
		for _, component := range components {
			r := render(t, h, "--set", "namespaces.integration=in,namespaces.eventBus=eb,namespaces.tiller=ti,component="+component)
			for _, job := range of[*batchv1.Job](r) {
				c := pod(job).Containers[0]
				if c.Name == stateNamespace {
					continue // has those of another job
				}
				var got []string
				for _, arg := range c.Args {
					if name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "="); values[name] != "" {
						got = append(got, arg)
					}
				}
				slices.Sort(got)
				if diff := cmp.Diff(wanted[c.Name], got); diff != "" {
					t.Errorf("%s, Job %s (-want +got):\n%s", component, job.Name, diff)
				}
			}
		}
	})
}

// Helm 2 knows no schema.
func TestAComponentWithoutHooksIsRefused(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		if h.Major == 2 {
			refused(t, h, "component is event-bus, whose chart has no hooks", "--set", "component=event-bus")
		}
	})
}

func TestTheHooksRunAtInstallationOnlyInAReleaseOfTheirOwn(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		if got := render(t, h).chain(t, "pre-install"); !slices.Equal(got, lines(chainOf(t, "core").Pre)) {
			t.Errorf("a release of their own runs %q at installation", got)
		}
		kyma := overlaid(t, "core", "1.11")
		out, err := h.Template(t.Context(), "core", kyma, "--namespace", systemNS)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out, "pre-install") {
			t.Error("within Kyma's chart they run at installation: there is nothing to migrate, and nobody to wait for")
		}
	})
}

func TestAnOverlayAloneIsRefusedUnlessItIsToBeAReleaseOfItsOwn(t *testing.T) {
	const sentence = "this chart holds only hooks; upgrading a Kyma release with it would delete the release's objects"
	each(t, func(t *testing.T, h *helm.Helm) {
		for chart, alone := range map[string]string{
			hooksChart:                       "standalone=true,image.allowDevel=true",
			"charts/core":                    "eventmesh-migration.standalone=true,eventmesh-migration.image.allowDevel=true",
			"charts/application-connector":   "eventmesh-migration.standalone=true,eventmesh-migration.image.allowDevel=true",
			"charts/cluster-essentials/1.12": "eventmesh-migration.standalone=true,eventmesh-migration.image.allowDevel=true",
		} {
			// Whatever image it is.
			if _, err := h.Template(t.Context(), "core", chart, "--set", strings.ReplaceAll(alone, "standalone=true", "standalone=false")); err == nil || !strings.Contains(err.Error(), sentence) {
				t.Errorf("%s alone: %v", chart, err)
			}
			out, err := h.Template(t.Context(), "core", chart, "--set", alone, "--namespace", systemNS)
			if err != nil {
				t.Errorf("%s with %s: %v", chart, alone, err)
				continue
			}
			if len(of[*batchv1.Job](read(t, out))) == 0 {
				t.Errorf("%s with %s renders no Job", chart, alone)
			}
		}
	})
}

const (
	stays = "before-hook-creation"
	goes  = "before-hook-creation,hook-succeeded"
)

// Fails on the commit before: RBAC was hook-succeeded, which Helm 3.18 and later delete as soon as
// another hook fails or runs out of time, while its Job still runs.
func TestAccountsOutliveAFailedHookAndGoAfterTheLastJob(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		for _, component := range components {
			r := render(t, h, "--set", "component="+component)
			var jobs []object
			grants, removals := map[string]object{}, map[string]object{}
			for _, o := range r.all(t) {
				policy := o.GetAnnotations()[policy]
				switch {
				case o.GetAnnotations()[release] == "":
					t.Errorf("%s: %s is no hook: it would become a part of the release", component, o.key())
				case o.job():
					jobs = append(jobs, o)
					if policy != goes {
						t.Errorf("%s: %s has the delete policy %q: a failed Job must stay, and its log", component, o.key(), policy)
					}
				case policy == stays:
					if _, twice := grants[o.key()]; twice {
						t.Errorf("%s: %s is granted twice", component, o.key())
					}
					grants[o.key()] = o
				case policy == goes:
					if _, twice := removals[o.key()]; twice {
						t.Errorf("%s: %s is removed twice", component, o.key())
					}
					removals[o.key()] = o
				default:
					t.Errorf("%s: %s has the delete policy %q", component, o.key(), policy)
				}
			}
			if len(grants) == 0 {
				t.Fatalf("%s: no account outlives a failed hook", component)
			}
			if diff := cmp.Diff(sortedKeys(grants), sortedKeys(removals)); diff != "" {
				t.Errorf("%s: not everything that is granted is removed (-granted +removed):\n%s", component, diff)
			}
			for key, grant := range grants {
				removal := removals[key]
				if removal.Object == nil {
					continue
				}
				if removal.power() {
					t.Errorf("%s: what removes %s gives power", component, key)
				}
				if diff := cmp.Diff(grant.GetLabels(), removal.GetLabels()) + cmp.Diff(grant.events(), removal.events()); diff != "" {
					t.Errorf("%s: %s (-granted +removed):\n%s", component, key, diff)
				}
				for _, job := range jobs {
					if !grant.sharesEvent(job) {
						continue // "helm test" is another time
					}
					// The Job that creates the state namespace, and its account, come before all
					// others.
					first := grant.first()
					if own := job.first(); own != first {
						if own && weightOf(job) >= weightOf(grant) {
							t.Errorf("%s: %s has the weight %d, %s has %d", component, key, weightOf(grant), job.key(), weightOf(job))
						}
						continue
					}
					if weightOf(grant) >= weightOf(job) || weightOf(job) >= weightOf(removal) {
						t.Errorf("%s: %s has the weights %d and %d, %s has %d", component, key, weightOf(grant), weightOf(removal), job.key(), weightOf(job))
					}
				}
			}
		}
	})
}

// Fails on the commit before: all had one weight, so that Helm created cluster-wide power before it
// came to a namespace that does not exist.
func TestPowerIsGivenLastAndTheAccountIsReplacedFirst(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		all := render(t, h, "--set", "component=application-connector").all(t)
		for _, event := range []string{"pre-upgrade", "test"} { // the accounts of one have nothing to do with those of the other
			at := map[string][]int{}
			removed := map[bool][]int{}
			for _, o := range all {
				switch {
				case o.job(), o.first(), slices.Contains(o.events(), "test") != (event == "test"):
				case o.GetAnnotations()[policy] == stays:
					at[o.kind] = append(at[o.kind], weightOf(o))
				default:
					removed[o.kind == "ServiceAccount"] = append(removed[o.kind == "ServiceAccount"], weightOf(o))
				}
			}
			order := []string{"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
			if diff := cmp.Diff(slices.Sorted(slices.Values(order)), sortedKeys(at)); diff != "" {
				t.Fatalf("%s: kinds (-want +got):\n%s", event, diff)
			}
			for i, kind := range order[1:] {
				if before := order[i]; slices.Max(at[before]) >= slices.Min(at[kind]) {
					t.Errorf("%s: a %s has the weight %d, and a %s %d", event, before, slices.Max(at[before]), kind, slices.Min(at[kind]))
				}
			}
			if slices.Max(removed[true]) >= slices.Min(removed[false]) {
				t.Errorf("%s: a ServiceAccount is removed at %d, and its power at %d", event, slices.Max(removed[true]), slices.Min(removed[false]))
			}
		}
	})
}

// Argo CD keeps only the last of two objects of one name. Fails on the commit before: there was no
// such value.
func TestAccountsCanBeRenderedOnce(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		twice, once := render(t, h), render(t, h, "--set", "hooks.accountsOnce=true")
		keys := map[string]bool{}
		for _, o := range once.all(t) {
			if keys[o.key()] {
				t.Errorf("%s is rendered twice", o.key())
			}
			keys[o.key()] = true
			if got := o.GetAnnotations()[policy]; got != goes {
				t.Errorf("%s has the delete policy %q: nothing else deletes it", o.key(), got)
			}
		}
		if diff := cmp.Diff(rules(twice), rules(once)); diff != "" {
			t.Errorf("Roles (-twice +once):\n%s", diff)
		}
		for _, o := range twice.all(t) {
			if !keys[o.key()] {
				t.Errorf("%s is missing", o.key())
			}
		}
	})
}

// The command of the documents deletes all that any form of the chart may leave behind. Fails on
// the commit before: there was no such command, and hooks had no label of their job and phase.
func TestOneCommandDeletesWhatIsLeftBehind(t *testing.T) {
	_, after, _ := strings.Cut(verify.CleanUp, "delete ")
	kinds, after, _ := strings.Cut(after, " ")
	_, selector, _ := strings.Cut(after, "-l ")
	label, value, _ := strings.Cut(selector, "=")
	each(t, func(t *testing.T, h *helm.Helm) {
		for _, args := range []string{"component=core", "component=application-connector", "component=cluster-essentials", "hooks.enabled=false,phase=pre", "hooks.accountsOnce=true"} {
			for _, o := range render(t, h, "--set", args).all(t) {
				if !o.job() && !slices.Contains(strings.Split(kinds, ","), strings.ToLower(o.kind)+"s") {
					t.Errorf("%s: %q does not delete %s", args, verify.CleanUp, o.key())
				}
				labels := o.GetLabels()
				if labels[label] != value || labels["app.kubernetes.io/instance"] != "core" || labels["eventmesh-migration.kyma-project.io/phase"] == "" {
					t.Errorf("%s: %s has the labels %v", args, o.key(), labels)
				}
				job := labels["eventmesh-migration.kyma-project.io/job"]
				if hook := o.GetAnnotations()[release] != ""; hook != (job != "" && strings.Contains(o.GetName(), "-"+job)) {
					t.Errorf("%s: %s has the job %q", args, o.key(), job)
				}
			}
		}
	})
	for _, path := range []string{
		"docs/migration/README.md", "docs/migration/migration-guide-1.11.md", "docs/migration/runbook.md", "charts/eventmesh-migration/README.md", "charts/eventmesh-migration/templates/NOTES.txt",
	} {
		raw, err := os.ReadFile(filepath.Join("..", "..", "..", path))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(raw), verify.CleanUp) {
			t.Errorf("%s does not name the command %q", path, verify.CleanUp)
		}
	}
}

func TestHelm2WaitsForJobsToBeGoneAndForNothingElse(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		for _, obj := range render(t, h).objects {
			m, err := meta.Accessor(obj)
			if err != nil {
				t.Fatal(err)
			}
			want := "0"
			if _, job := obj.(*batchv1.Job); job {
				want = "" // a minute
			}
			if got := m.GetAnnotations()[deleteTimeout]; got != want {
				t.Errorf("%T %s has the delete timeout %q, want %q", obj, m.GetName(), got, want)
			}
		}
	})
}

func TestAnAccountExistsAtEachEventAtWhichItsJobRuns(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		for _, component := range components {
			r := render(t, h, "--set", "component="+component)
			events := map[string][]string{}
			for _, account := range of[*corev1.ServiceAccount](r) {
				if account.Annotations[policy] == stays { // what removes it comes too late
					events[account.Name] = strings.Split(account.Annotations[release], ",")
				}
			}
			for _, job := range of[*batchv1.Job](r) {
				for event := range strings.SplitSeq(job.Annotations[release], ",") {
					if !slices.Contains(events[pod(job).ServiceAccountName], event) {
						t.Errorf("%s: Job %s runs at %s without its ServiceAccount %s", component, job.Name, event, pod(job).ServiceAccountName)
					}
				}
			}
		}
	})
}

func TestPodsMeetTheRestrictedPodSecurityStandard(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		for _, args := range [][]string{nil, {"--set", "hooks.enabled=false,phase=pre"}} {
			for _, job := range of[*batchv1.Job](render(t, h, args...)) {
				s := pod(job).SecurityContext
				if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 || s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
					t.Errorf("Job %s: pod security context %v", job.Name, s)
				}
				for _, c := range append(pod(job).InitContainers, pod(job).Containers...) {
					s := c.SecurityContext
					if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
						s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
						t.Errorf("Job %s, container %s: security context %v", job.Name, c.Name, s)
					}
				}
			}
		}
	})
}

func TestAFailedJobIsNotTriedAgainByKubernetes(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		for _, job := range of[*batchv1.Job](render(t, h)) {
			if job.Spec.BackoffLimit == nil || *job.Spec.BackoffLimit != 0 || pod(job).RestartPolicy != corev1.RestartPolicyNever {
				t.Errorf("Job %s: backoffLimit %v, restartPolicy %s", job.Name, job.Spec.BackoffLimit, pod(job).RestartPolicy)
			}
			if job.Annotations[outputLog] != "hook-failed" {
				t.Errorf("Job %s: Helm does not show the log of a failed hook", job.Name)
			}
		}
	})
}

func TestAnEvictionIsNoFailureAndWhatTheJobDecidedIs(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		for _, args := range [][]string{nil, {"--set", "hooks.enabled=false,phase=pre"}} {
			for _, job := range of[*batchv1.Job](render(t, h, args...)) {
				want := &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
					Action:          batchv1.PodFailurePolicyActionIgnore,
					OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
				}, {
					Action: batchv1.PodFailurePolicyActionFailJob,
					// Those of the contract that are no success and no signal.
					OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
						Operator: batchv1.PodFailurePolicyOnExitCodesOpIn,
						Values: []int32{
							migration.ExitFailed, migration.ExitUsage, migration.ExitPartlyRestored, migration.ExitRefused, migration.ExitLocked, migration.ExitTimedOut,
						},
					},
				}}}
				if diff := cmp.Diff(want, job.Spec.PodFailurePolicy); diff != "" {
					t.Errorf("Job %s (-want +got):\n%s", job.Name, diff)
				}
			}
		}
	})
}

func TestAPodThatIsToldToEndHasTimeToWriteItsJournal(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		for want, args := range map[int64][]string{60: nil, 90: {"--set", "terminationGracePeriodSeconds=90"}} {
			for _, job := range of[*batchv1.Job](render(t, h, args...)) {
				if got := pod(job).TerminationGracePeriodSeconds; got == nil || *got != want {
					t.Errorf("Job %s: terminationGracePeriodSeconds %v, want %d", job.Name, got, want)
				}
			}
		}
	})
}

func TestIstioPutsNoSidecarIntoAJob(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		for _, job := range of[*batchv1.Job](render(t, h)) {
			template := job.Spec.Template
			if template.Annotations["sidecar.istio.io/inject"] != "false" || template.Labels["sidecar.istio.io/inject"] != "false" {
				t.Errorf("Job %s: a sidecar never ends, and the Job never would", job.Name)
			}
		}
	})
}

func TestFieldsNewerThanTheClusterAreLeftOut(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		for _, tc := range []struct {
			version                string
			seccomp, failurePolicy bool
		}{
			{"1.16.3", false, false},
			{"v1.16.15-gke.7800", false, false},
			{"1.18.20", false, false},
			{"1.19.0", true, false},
			{"1.25.16", true, false},
			{"1.26.0", true, true},
			{"1.36.3", true, true},
		} {
			job := render(t, h, "--kube-version", tc.version).job(t, "core-pre-httpsource-sync")
			if got := pod(job).SecurityContext.SeccompProfile != nil; got != tc.seccomp {
				t.Errorf("Kubernetes %s: seccompProfile %t", tc.version, got)
			}
			if got := job.Spec.Template.Annotations["seccomp.security.alpha.kubernetes.io/pod"] != ""; got == tc.seccomp {
				t.Errorf("Kubernetes %s: the annotation that came before seccompProfile: %t", tc.version, got)
			}
			if got := job.Spec.PodFailurePolicy != nil; got != tc.failurePolicy {
				t.Errorf("Kubernetes %s: podFailurePolicy %t", tc.version, got)
			}
		}
	})
}

func TestADeadlineCoversLockWorkRollbackAndImagePull(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		job := render(t, h, "--set", "lockWaitSeconds=70,jobs.trigger-sync.timeoutSeconds=1000,jobs.trigger-sync.rollbackTimeoutSeconds=200,image.pullReserveSeconds=30").job(t, "core-pre-trigger-sync")
		if got := *job.Spec.ActiveDeadlineSeconds; got != 1300 {
			t.Errorf("activeDeadlineSeconds is %d", got)
		}
		for _, arg := range []string{"--timeout=1000s", "--rollback-timeout=200s", "--lock-wait=70s", "--permission-wait=10s", fmt.Sprintf("--helm-timeout=%ds", *job.Spec.ActiveDeadlineSeconds+60)} {
			if !slices.Contains(pod(job).Containers[0].Args, arg) {
				t.Errorf("no %s in %q", arg, pod(job).Containers[0].Args)
			}
		}
	})
}

// No template can see --atomic, so that the documents must forbid it: it would undo the
// switch, and not the deletions that the switch allowed.
func TestDocumentsForbidAtomic(t *testing.T) {
	for _, path := range []string{"docs/migration/migration-guide-1.11.md", "charts/eventmesh-migration/README.md", "charts/eventmesh-migration/templates/NOTES.txt"} {
		raw, err := os.ReadFile(filepath.Join("..", "..", "..", path))
		if err != nil {
			t.Fatal(err)
		}
		if text := string(raw); !strings.Contains(text, "--atomic") || !strings.Contains(text, "--rollback-on-failure") {
			t.Errorf("%s does not say that helm upgrade --atomic is not for application-connector", path)
		}
	}
}

func TestADeadlineThatHelmWouldNotWaitForIsRefused(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		refused(t, h, "httpsource-sync may take 1620 seconds", "--set", "hooks.timeoutSeconds=1500")
		refused(t, h, "eventservice-verify may take 7621 seconds", "--set", "component=application-connector,jobs.eventservice-verify.timeoutSeconds=7200")
		render(t, h, "--set", "component=application-connector,jobs.eventservice-verify.timeoutSeconds=7200,hooks.timeoutSeconds=7700")
		// The grace period of the pod counts: 60 + 600 + 1 + 300 + 60 seconds.
		refused(t, h, "eventbus-purge may take 1021 seconds", "--set", "component=cluster-essentials,hooks.timeoutSeconds=1020")
		job := render(t, h, "--set", "component=cluster-essentials,hooks.timeoutSeconds=1021").job(t, "core-pre-eventbus-purge")
		if args := pod(job).Containers[0].Args; !slices.Contains(args, "--helm-timeout=1021s") {
			t.Errorf("chart and log name two numbers: %q", args)
		}
		refused(t, h, "lockWaitSeconds 20 is less than leaseSeconds 30", "--set", "lockWaitSeconds=20")
	})
}

func TestValuesThatDoNotExistAreRefused(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		if h.Major == 2 {
			t.Skip("Helm 2 knows no schema")
		}
		for _, value := range []string{"componnent=core", "component=event-bus", "jobs.trigger-sync.timeoutSeconds=soon", "jobs.eventbus-purge.enabled=false", "phase=both"} {
			if out, err := template(t, h, "--set", "standalone=true", "--set", value); err == nil {
				t.Errorf("%s renders:\n%.300s", value, out)
			}
		}
	})
}

func TestWithoutHooksThereIsOneJobForAPhaseNamedAfterItsSpec(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		refused(t, h, "phase=pre before the upgrade, phase=post after it", "--set", "hooks.enabled=false")
		refused(t, h, "phase is for hooks.enabled=false", "--set", "phase=pre")
		names := map[string]bool{}
		for _, args := range []string{"phase=pre", "phase=post", "phase=pre,jobs.trigger-sync.timeoutSeconds=100"} {
			r := render(t, h, "--set", "component=application-connector,hooks.enabled=false,"+args)
			jobs := of[*batchv1.Job](r)
			if len(jobs) != 1 {
				t.Fatalf("%s: %d Jobs", args, len(jobs))
			}
			names[jobs[0].Name] = true
			var chain []string
			for _, c := range append(pod(jobs[0]).InitContainers, pod(jobs[0]).Containers...) {
				chain = append(chain, c.Name)
				if !strings.Contains(c.Image, "/eventmesh-migrate:") || !slices.Equal(c.Args[:3], []string{"job", c.Name, "run"}) {
					t.Errorf("%s: one image is to do for all, but %s runs %s with %q", args, c.Name, c.Image, c.Args)
				}
			}
			want := jobsOf(chainOf(t, "application-connector").Pre)
			if strings.HasPrefix(args, "phase=post") {
				want = jobsOf(chainOf(t, "application-connector").Post)
			}
			if diff := cmp.Diff(want, chain); diff != "" {
				t.Errorf("%s (-want +got):\n%s", args, diff)
			}
			if strings.Contains(r.text, release) {
				t.Errorf("%s: there is a hook, which kubectl would apply as if it were none", args)
			}
		}
		if len(names) != 3 {
			t.Errorf("another spec must be another Job: %q", sortedKeys(names))
		}
	})
}

func TestNoRoleHasAWildcard(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		for _, component := range components {
			for name, list := range rules(render(t, h, "--set", "component="+component)) {
				for _, rule := range list {
					if slices.Contains(slices.Concat(rule.Verbs, rule.Resources, rule.APIGroups, rule.NonResourceURLs), "*") {
						t.Errorf("%s: %v", name, rule)
					}
				}
			}
		}
	})
}

func TestTheStateIsReachedThroughARoleInTheStateNamespaceOnly(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		r := render(t, h, "--set", "namespaces.state=migration-state")
		seen := false
		for name, list := range rules(r) {
			for _, rule := range list {
				state := slices.Contains(rule.Resources, "leases") || slices.Contains(rule.Resources, "secrets") && slices.Contains(rule.Verbs, "create")
				if state && !strings.HasPrefix(name, "Role migration-state/") {
					t.Errorf("%s: %v", name, rule)
				}
				seen = seen || state
			}
		}
		if !seen {
			t.Error("no Role reaches the state")
		}
	})
}

func TestClusterScopedNamesContainTheReleaseName(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		releases := map[string]string{}
		for _, name := range []string{"core", "a-release-with-a-name-that-is-rather-long-one", "a-release-with-a-name-that-is-rather-long-two"} {
			out, err := h.Template(t.Context(), name, hooksChart, "--set", "standalone=true,image.allowDevel=true", "--namespace", systemNS)
			if err != nil {
				t.Fatal(err)
			}
			for _, role := range of[*rbacv1.ClusterRole](read(t, out)) {
				if len(role.Rules) == 0 {
					continue // removes another one
				}
				if other := releases[role.Name]; !strings.HasPrefix(role.Name, name[:min(len(name), 18)]) || other != "" && other != name {
					t.Errorf("ClusterRole %s of release %s", role.Name, name)
				}
				releases[role.Name] = name
			}
			for _, obj := range read(t, out).objects {
				if m, err := meta.Accessor(obj); err != nil || len(m.GetName()) > 63 {
					t.Errorf("%s is too long a name: %v", m.GetName(), err)
				}
			}
		}
	})
}

func TestOnlyTheVersionOfKnativeThatIsServedGetsPermissions(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		deletesAccounts := func(r *rendering) bool {
			for _, list := range rules(r) {
				for _, rule := range list {
					if slices.Contains(rule.Resources, "serviceaccounts") {
						return true
					}
				}
			}
			return false
		}
		if !deletesAccounts(render(t, h)) {
			t.Error("at v1alpha1 Knative makes ServiceAccounts, which a rollback removes")
		}
		if deletesAccounts(render(t, h, "--api-versions", "eventing.knative.dev/v1")) {
			t.Error("at v1 nothing needs permissions on ServiceAccounts")
		}
	})
}

func TestWithoutNATSStreamingThereIsNoRoleInItsNamespace(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		for natss, want := range map[string]bool{"natss": true, "": false} {
			r := render(t, h, "--set-string", "namespaces.nats="+natss)
			found := slices.ContainsFunc(of[*rbacv1.Role](r), func(role *rbacv1.Role) bool { return role.Namespace == "natss" })
			if found != want {
				t.Errorf("namespaces.nats=%q: %t", natss, found)
			}
			for _, role := range of[*rbacv1.ClusterRole](r) {
				for _, rule := range role.Rules {
					if slices.Contains(rule.Resources, "pods/proxy") {
						t.Errorf("namespaces.nats=%q: %s reaches all pods", natss, role.Name)
					}
				}
			}
		}
	})
}

func TestValuesReachThePod(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		job := render(t, h, "--set", "image.repository=r.example/em,image.tag=t,image.pullSecrets[0]=s,priorityClassName=p,nodeSelector.a=b,"+
			"tolerations[0].operator=Exists,resources.limits.memory=1Gi,podLabels.x=y,podAnnotations.z=w,jobs.trigger-sync.args[0]=--legacy-traffic=ignore,"+
			"namespaces.exclude[0]=one,namespaces.exclude[1]=two").job(t, "core-pre-trigger-sync")
		spec := pod(job)
		got := map[string]any{
			"image": spec.Containers[0].Image, "secrets": spec.ImagePullSecrets, "priority": spec.PriorityClassName, "nodes": spec.NodeSelector,
			"tolerations": spec.Tolerations, "memory": spec.Containers[0].Resources.Limits.Memory().String(), "label": job.Spec.Template.Labels["x"],
			"annotation": job.Spec.Template.Annotations["z"],
			"args":       slices.Contains(spec.Containers[0].Args, "--legacy-traffic=ignore") && slices.Contains(spec.Containers[0].Args, "--exclude-namespaces=one,two"),
		}
		want := map[string]any{
			"image": "r.example/em/trigger-sync:t", "secrets": []corev1.LocalObjectReference{{Name: "s"}}, "priority": "p", "nodes": map[string]string{"a": "b"},
			"tolerations": []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, "memory": "1Gi", "label": "y", "annotation": "w", "args": true,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestAJobCanBeLeftOutOfEveryChain(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		r := render(t, h, "--set", without("serviceinstance-recreate"))
		want := slices.DeleteFunc(lines(chainOf(t, "core").Pre), func(line string) bool { return line == "serviceinstance-recreate run" })
		if diff := cmp.Diff(want, r.chain(t, "pre-upgrade")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if strings.Contains(r.text, "serviceinstance-recreate") {
			t.Error("its account is still there")
		}
	})
}

func TestTheChartsPassHelmLint(t *testing.T) {
	each(t, func(t *testing.T, h *helm.Helm) {
		for chart, alone := range map[string]string{
			hooksChart:                       "standalone=true,image.allowDevel=true",
			"charts/core":                    "eventmesh-migration.standalone=true,eventmesh-migration.image.allowDevel=true",
			"charts/application-connector":   "eventmesh-migration.standalone=true,eventmesh-migration.image.allowDevel=true",
			"charts/cluster-essentials/1.12": "eventmesh-migration.standalone=true,eventmesh-migration.image.allowDevel=true",
		} {
			if chart == "charts/cluster-essentials/1.12" {
				// Helm 2 wants a folder of the chart's name.
				root, err := filepath.Abs("../../..")
				if err != nil {
					t.Fatal(err)
				}
				named := filepath.Join(t.TempDir(), "cluster-essentials")
				if err := os.Symlink(filepath.Join(root, chart), named); err != nil {
					t.Fatal(err)
				}
				chart = named
			}
			if out, err := h.Run(t.Context(), "lint", "--strict", chart, "--set", alone); err != nil {
				t.Errorf("%s: %v\n%s", chart, err, out)
			}
		}
	})
}

// What a newer Helm has and 2.16.3 lacks: functions of Sprig 3, of Helm 3, and
// what text/template learned after Go 1.13.
func TestTemplatesUseNothingThatHelm2Lacks(t *testing.T) {
	newer := []string{"lookup", "dig ", "mustToJson", "mustRegex", "fromJsonArray", "fromYamlArray", "toYamlPretty", "mustToYaml", "get ", "break", "continue", ".Capabilities.HelmVersion", ".Chart.IsRoot", "else with", "chunk ", "tpl "}
	files, err := filepath.Glob("../../../charts/*/templates/*")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d templates: %v", len(files), err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(string(raw), "\n") {
			// Actions only: words in comments and in YAML are free.
			for rest := line; ; {
				_, after, ok := strings.Cut(rest, "{{")
				if !ok {
					break
				}
				action, next, _ := strings.Cut(after, "}}")
				for _, word := range newer {
					if !strings.Contains(action, "/*") && !strings.Contains(action, `"`+word) && strings.Contains(" "+action, " "+word) {
						t.Errorf("%s: %q in {{%s}}", file, word, action)
					}
				}
				rest = next
			}
		}
	}
	for _, chart := range []string{"eventmesh-migration", "core", "application-connector", "cluster-essentials/1.12"} {
		raw, err := os.ReadFile(filepath.Join("../../../charts", chart, "Chart.yaml"))
		if err != nil || !strings.Contains(string(raw), "apiVersion: v1\n") {
			t.Errorf("%s is not of apiVersion v1, the only one that Helm 2 knows: %v", chart, err)
		}
	}
}

// overlaid is a stand-in for Kyma's chart with the overlay on it.
func overlaid(t *testing.T, component, version string) string {
	t.Helper()
	chart := filepath.Join(t.TempDir(), component)
	if err := kymasChart(chart, component); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time changes nothing
		overlay(t, "-chart", chart, "-kyma", version, "-repository", "registry.example/em", "-tag", "v1")
	}
	return chart
}

// kymasChart writes a stand-in for a chart of Kyma's.
func kymasChart(chart, component string) error {
	files := map[string]string{
		"Chart.yaml":               fmt.Sprintf("apiVersion: v1\nname: %s\nversion: 1.0.0\n", component),
		"values.yaml":              "of: kyma\n",
		"requirements.yaml":        "dependencies:\n  - name: other\n    version: 1.0.0\n",
		"templates/configmap.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kymas\ndata:\n  of: {{ .Values.of }}\n",
		"charts/other/Chart.yaml":  "apiVersion: v1\nname: other\nversion: 1.0.0\n",
	}
	if component == "cluster-essentials" {
		files["templates/eventing-subscription.crd.yaml"] = "apiVersion: apiextensions.k8s.io/v1beta1\nkind: CustomResourceDefinition\nmetadata:\n  name: subscriptions.eventing.kyma-project.io\nspec: {}\n"
	}
	return helm.WriteChart(chart, files)
}
