package main

import (
	"fmt"

	osb "github.com/kubernetes-sigs/go-open-service-broker-client/v2"
	"github.com/kubernetes-sigs/service-catalog/cmd/controller-manager/app/options"
	"github.com/kubernetes-sigs/service-catalog/pkg/apis/servicecatalog/v1beta1"
	"github.com/kubernetes-sigs/service-catalog/pkg/client/clientset_generated/clientset"
	informers "github.com/kubernetes-sigs/service-catalog/pkg/client/informers_generated/externalversions"
	"github.com/kubernetes-sigs/service-catalog/pkg/controller"
	"github.com/kubernetes-sigs/service-catalog/pkg/metrics/osbclientproxy"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog"
)

// askAt213 makes the client of a broker. It asks for version 2.13 of the API, the only one
// that Kyma's application-broker answers: this Service Catalog asks for 2.14, whatever
// --osb-api-preferred-version says.
func askAt213(config *osb.ClientConfiguration) (osb.Client, error) {
	own := *config // the controller compares what it has given
	own.APIVersion = osb.Version2_13()
	return osbclientproxy.NewClient(&own)
}

// userAgent is the stock binary's, of controllers and events.
const userAgent = "service-catalog-controller-manager"

// runControllerManager does what cmd/controller-manager/app does in StartControllers, with the
// defaults of its flags, but for the version at which brokers are asked.
func runControllerManager(config *rest.Config) error {
	defaults := options.NewControllerManagerServer()
	core, err := kubernetes.NewForConfig(named(config, userAgent))
	if err != nil {
		return err
	}
	catalog, err := clientset.NewForConfig(named(config, userAgent))
	if err != nil {
		return err
	}
	watching, err := clientset.NewForConfig(named(config, "shared-informers"))
	if err != nil {
		return err
	}

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	broadcaster := record.NewBroadcaster()
	broadcaster.StartLogging(klog.Infof)
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: core.CoreV1().Events("")})

	factory := informers.NewSharedInformerFactory(watching, defaults.ResyncInterval)
	kinds := factory.Servicecatalog().V1beta1()
	c, err := controller.NewController(
		core,
		catalog.ServicecatalogV1beta1(),
		kinds.ClusterServiceBrokers(),
		kinds.ServiceBrokers(),
		kinds.ClusterServiceClasses(),
		kinds.ServiceClasses(),
		kinds.ServiceInstances(),
		kinds.ServiceBindings(),
		kinds.ClusterServicePlans(),
		kinds.ServicePlans(),
		askAt213,
		defaults.ServiceBrokerRelistInterval,
		defaults.OSBAPIPreferredVersion,
		broadcaster.NewRecorder(scheme, corev1.EventSource{Component: userAgent}),
		defaults.ReconciliationRetryDuration,
		defaults.OperationPollingMaximumBackoffDuration,
		controller.DefaultClusterIDConfigMapName,
		controller.DefaultClusterIDConfigMapNamespace,
		defaults.OSBAPITimeOut,
	)
	if err != nil {
		return err
	}
	factory.Start(wait.NeverStop)
	factory.WaitForCacheSync(wait.NeverStop)
	fmt.Println("ready")
	c.Run(defaults.ConcurrentSyncs, wait.NeverStop)
	return fmt.Errorf("the controllers ended")
}
