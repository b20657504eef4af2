// Command server is the controller manager or the webhook server of Service Catalog, as its module
// has them, without the two things that keep the stock binary from a cluster of today: its probe
// asks for its CustomResourceDefinitions at apiextensions v1beta1, which is served no more, and
// ends the process for want of an answer; and it opens ports for health and metrics that nobody
// here asks.
//
//	server controller-manager --kubeconfig FILE [--feature-gates CascadingDeletion=true] [--qps N]
//	server webhook --kubeconfig FILE --port N --cert-dir DIR
//
// Everything else is as shipped: intervals, back-off, client limits, feature gates. "ready" on
// stdout means that it works. It ends with the end of stdin, so that a parent that dies takes it
// down.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog"

	// Registers the feature gates.
	_ "github.com/kubernetes-sigs/service-catalog/pkg/features"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "service-catalog:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: server controller-manager|webhook --kubeconfig FILE …")
	}
	flags := pflag.NewFlagSet("service-catalog "+args[0], pflag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "the cluster")
	qps := flags.Float32("qps", 0, "client limit; 0: as shipped")
	port := flags.Int("port", 0, "where the webhook server listens")
	certDir := flags.String("cert-dir", "", "holds tls.crt and tls.key of the webhook server")
	utilfeature.DefaultMutableFeatureGate.AddFlag(flags)
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	verbosity := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(verbosity)
	// What the chart sets.
	if err := verbosity.Set("v", "4"); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("cannot load kubeconfig: %w", err)
	}
	if *qps > 0 {
		config.QPS, config.Burst = *qps, int(2**qps)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	switch args[0] {
	case "controller-manager":
		return runControllerManager(config)
	case "webhook":
		return runWebhook(config, *port, *certDir)
	}
	return fmt.Errorf("unknown command %q", args[0])
}

func named(config *rest.Config, userAgent string) *rest.Config {
	return rest.AddUserAgent(rest.CopyConfig(config), userAgent)
}
