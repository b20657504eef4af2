package k8sobject

import (
	"slices"
	"strings"
)

// Tools that deploy objects find what is theirs by labels and annotations. Most of them delete
// what carries theirs and is not, or not any more, in their source: Argo CD, kapp and Fleet
// prune, and so do the tools that copy objects between namespaces and clusters. An object that
// a program of this project makes from somebody else's must not inherit them.
var (
	// claimedKeys are keys that a tool claims.
	claimedKeys = []string{
		"app.kubernetes.io/instance",      // Argo CD that tracks by label: its default before 3.0
		"app.kubernetes.io/managed-by",    // Helm adopts, others prune what says so
		"addonmanager.kubernetes.io/mode", // the addon manager of Kubernetes: it prunes
		"kubernetes.io/cluster-service",   // its older label
		"heritage",                        // charts of Helm 2
		"hnc.x-k8s.io/inherited-from",     // the Hierarchical Namespace Controller: copies without an original are deleted
	}
	// claimedDomains are those of tools: all keys in them, and in their subdomains.
	claimedDomains = []string{
		"argoproj.io",            // Argo CD: argocd.argoproj.io/instance, tracking-id, sync-options
		"fluxcd.io",              // Flux: kustomize.toolkit., helm.toolkit., and those of Flux 1
		"fluxcd.controlplane.io", // the Flux operator's sets
		"helm.sh",                // Helm: helm.sh/chart, meta.helm.sh/release-name
		"k14s.io", "carvel.dev",  // kapp
		"cattle.io",                              // Rancher's Fleet, and k3s: objectset.rio.cattle.io/hash
		"kubectl.kubernetes.io",                  // kubectl apply
		"applyset.kubernetes.io",                 // kubectl apply --prune
		"config.k8s.io", "cli-utils.sigs.k8s.io", // kpt, the GitLab agent
		"kpt.dev", "app.gitlab.com",
		"configmanagement.gke.io", "configsync.gke.io", // Config Sync
		"deploy.cloud.google.com",            // Google Cloud Deploy
		"addon.kops.k8s.io", "addons.k8s.io", // kOps
		"open-cluster-management.io", // Advanced Cluster Management
		"karmada.io", "kubefed.io",   // copies in member clusters
		"projectsveltos.io",                    // Sveltos
		"kluctl.io",                            // it prunes by kluctl.io/discriminator
		"tanka.dev",                            // it prunes by tanka.dev/environment
		"timoni.sh", "kustomize.config.k8s.io", // Timoni, Kustomize
		"ksonnet.io",                            // ksonnet, kubecfg
		"werf.io",                               // werf
		"okteto.com",                            // okteto destroy deletes by dev.okteto.com/deployed-by
		"garden.io", "tilt.dev", "skaffold.dev", // tools of developers
		"jenkins-x.io",                           // it prunes by gitops.jenkins-x.io/pipeline
		"spinnaker.io", "harness.io", "razee.io", // tools of delivery
		"oam.dev",                     // KubeVela
		"crossplane.io", "pulumi.com", // infrastructure
		"kots.io", "shopify.io", // KOTS, krane
		"operators.coreos.com",  // the Operator Lifecycle Manager
		"kyverno.io",            // what its policies generate goes with them
		"clastix.io", "loft.sh", // copies by Capsule and vcluster
		"resources.gardener.cloud",                               // Gardener's resource manager
		"operator.kyma-project.io", "reconciler.kyma-project.io", // Kyma's own installers
	}
	// claimedPrefixes are beginnings of keys without a domain.
	claimedPrefixes = []string{
		"olm.",     // the Operator Lifecycle Manager: olm.owner
		"Octopus.", // Octopus Deploy: Octopus.Deployment.Id
	}
)

// IsClaimed says whether the key of a label or an annotation belongs to a tool that deploys
// objects. Whatever is made from an object of somebody else, by a job or by eventing, does not
// get it.
func IsClaimed(key string) bool {
	domain, _, qualified := strings.Cut(key, "/")
	return slices.Contains(claimedKeys, key) ||
		qualified && slices.ContainsFunc(claimedDomains, func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) }) ||
		!qualified && slices.ContainsFunc(claimedPrefixes, func(p string) bool { return strings.HasPrefix(key, p) })
}
