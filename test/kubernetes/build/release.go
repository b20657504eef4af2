package main

import (
	"fmt"
	"strings"
)

// kubernetesEnv names the variable that chooses the release of those who do not give --kubernetes:
// tests and the demo are run on another one without a word of it in them.
const kubernetesEnv = "EVENTMESH_TEST_KUBERNETES"

// release is a Kubernetes that "up" can run, and what is different about it.
type release struct {
	// apiserver and controllerManager are the names of its components.
	apiserver, controllerManager string
	// apiserverArgs and controllerManagerArgs are what it alone needs.
	apiserverArgs, controllerManagerArgs []string
	// controllers are its names of controllers that have others today.
	controllers map[string]string
}

// newest is what runs unless another release is asked for.
const newest = ""

var releases = map[string]release{
	newest: {apiserver: "kube-apiserver", controllerManager: "kube-controller-manager"},
	// Kyma 1.10 ran on 1.14 to 1.16.
	"1.16": {
		apiserver: "kube-apiserver-1.16", controllerManager: "kube-controller-manager-1.16",
		// Each would listen without TLS, too, on a port that is always the same: two clusters on a
		// machine would meet.
		apiserverArgs: []string{"--insecure-port=0"}, controllerManagerArgs: []string{"--port=0"},
		controllers: map[string]string{
			"clusterrole-aggregation-controller":          "clusterrole-aggregation",
			"daemonset-controller":                        "daemonset",
			"deployment-controller":                       "deployment",
			"disruption-controller":                       "disruption",
			"endpoints-controller":                        "endpoint",
			"endpointslice-controller":                    "endpointslice",
			"garbage-collector-controller":                "garbagecollector",
			"horizontal-pod-autoscaler-controller":        "horizontalpodautoscaling",
			"job-controller":                              "job",
			"namespace-controller":                        "namespace",
			"persistentvolume-binder-controller":          "persistentvolume-binder",
			"persistentvolume-expander-controller":        "persistentvolume-expander",
			"persistentvolume-protection-controller":      "pv-protection",
			"persistentvolumeclaim-protection-controller": "pvc-protection",
			"replicaset-controller":                       "replicaset",
			"root-ca-certificate-publisher-controller":    "root-ca-cert-publisher",
			// A ServiceAccount without a Secret that has its token lets no pod begin.
			"serviceaccount-controller":       "serviceaccount,serviceaccount-token",
			"serviceaccount-token-controller": "serviceaccount-token",
			"statefulset-controller":          "statefulset",
			"ttl-after-finished-controller":   "ttl-after-finished",
		},
	},
}

// releaseOf finds a release by its name.
func releaseOf(name string, node bool) (release, error) {
	r, known := releases[name]
	switch {
	case !known:
		return r, fmt.Errorf("unknown release %q of Kubernetes: --kubernetes, or %s, is \"1.16\" or nothing", name, kubernetesEnv)
	case node && name != newest:
		return r, fmt.Errorf("a node of Kubernetes %s cannot be run: leave out --node and --knative, or --kubernetes and %s", name, kubernetesEnv)
	}
	return r, nil
}

// named gives controllers the names that they have in this release.
func (r release) named(controllers string) string {
	names := strings.Split(controllers, ",")
	for i, name := range names {
		if other := r.controllers[name]; other != "" {
			names[i] = other
		}
	}
	return strings.Join(names, ",")
}
