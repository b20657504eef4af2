package k8sobject

import "testing"

// TestIsClaimed: on f3299ef a Trigger lacked the labels of Argo CD alone.
func TestIsClaimed(t *testing.T) {
	for _, tc := range []struct {
		reason, key string
		want        bool
	}{
		{"Argo CD, by label", "app.kubernetes.io/instance", true},
		{"Argo CD", "argocd.argoproj.io/instance", true},
		{"Flux", "kustomize.toolkit.fluxcd.io/name", true},
		{"Flux", "helm.toolkit.fluxcd.io/namespace", true},
		{"Flux 1 collects garbage by it", "fluxcd.io/sync-gc-mark", true},
		{"Helm", "app.kubernetes.io/managed-by", true},
		{"Helm", "helm.sh/chart", true},
		{"Helm, its annotations", "meta.helm.sh/release-name", true},
		{"kapp", "kapp.k14s.io/app", true},
		{"kapp", "kapp.k14s.io/association", true},
		{"Fleet", "objectset.rio.cattle.io/hash", true},
		{"kubectl apply --prune", "applyset.kubernetes.io/part-of", true},
		{"what kubectl applied was another object", "kubectl.kubernetes.io/last-applied-configuration", true},
		{"the addon manager", "addonmanager.kubernetes.io/mode", true},
		{"Octopus", "Octopus.Deployment.Id", true},
		{"a label of a user", "team", false},
		{"a label of a user's domain", "example.com/team", false},
		{"the end of a domain is not another domain", "nothelm.sh/x", false},
		{"a name is no domain", "helm.sh", false},
		{"what describes an application claims nothing", "app.kubernetes.io/name", false},
		{"and so", "app.kubernetes.io/part-of", false},
		{"a key of Kyma", "application-name", false},
	} {
		if got := IsClaimed(tc.key); got != tc.want {
			t.Errorf("%s: %s: got %t", tc.reason, tc.key, got)
		}
	}
}
