package main

import (
	"fmt"

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

// osbVersion is the one at which Kyma's application-broker answers. Service Catalog of
// this version would ask for 2.14.
const osbVersion = "2.13"

// userAgent is the stock binary's, of controllers and events.
const userAgent = "service-catalog-controller-manager"

// runControllerManager does what cmd/controller-manager/app does in StartControllers, with the defaults of its flags but
// for --osb-api-preferred-version.
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
		osbclientproxy.NewClient,
		defaults.ServiceBrokerRelistInterval,
		osbVersion,
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
