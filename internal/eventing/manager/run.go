package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	eventingchart "github.com/kyma-project/eventmesh-migration/charts/eventing"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/chart"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/decide"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/dependency"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/drift"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/fence"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/identity"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stored"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// The bound of requests to the API server a second. A look at everything takes about 40 of them,
// and an installation about 10 looks.
const requests, burst = 100, 200

// Options are those of the operator.
type Options struct {
	// Namespace is where everything is created; "kyma-system" by default.
	Namespace string
	// Prefix begins all names; "eventing" by default.
	Prefix string
	// The images of the programs that it installs. They have no defaults.
	NATSImage, PublisherImage, ControllerImage string
	// PullSecrets are names of Secrets in Namespace with which these images are pulled.
	PullSecrets []string
	// NATSURL is where the operator connects to NATS, NATSClientURL where the publisher and the
	// controller do; its Service by default.
	NATSURL, NATSClientURL string
	// Version is written to labels and to the status.
	Version string
	// MetricsAddress and ProbeAddress are <host>:<port>; "0" is none.
	MetricsAddress, ProbeAddress string
	// PageAddress is that of the page for people, <host>:<port>; "" or "0" is none.
	PageAddress string
	// DependencyTimeout is how long a missing API is awaited before that is an error.
	DependencyTimeout time.Duration
	// BackendTimeout is how long a backend may take to start before that is an error.
	BackendTimeout time.Duration
	// DrainDelay and DrainWatch decide when a closed stream is empty permanently, if no barrier can
	// show it: how long after its close it is looked at, and how long it has to stay empty then.
	DrainDelay, DrainWatch time.Duration
	// MeshDelay is how long events may be on their way in Channels that acknowledge before they
	// deliver.
	MeshDelay time.Duration
}

// Validate is nil if the options can be used. All that is wrong is in the error.
func (o Options) Validate() error {
	var errs []error
	for name, value := range map[string]string{"--namespace": o.Namespace, "--resource-prefix": o.Prefix} {
		if problems := validation.IsDNS1123Label(value); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("%s %q: %s", name, value, strings.Join(problems, "; ")))
		}
	}
	// The longest name is that of a pod with its revision: <prefix>-publisher-proxy-<10>-<5>. Names
	// of Services have 63 characters.
	if len(o.Prefix) > 30 {
		errs = append(errs, fmt.Errorf("--resource-prefix %q has more than 30 characters", o.Prefix))
	}
	for _, image := range []struct{ flag, value string }{
		{"--nats-image", o.NATSImage}, {"--publisher-image", o.PublisherImage}, {"--controller-image", o.ControllerImage},
	} {
		if image.value == "" {
			errs = append(errs, fmt.Errorf("%s is missing", image.flag))
		}
	}
	return errors.Join(errs...)
}

// Run runs the operator until the context ends, or until another one leads.
func Run(ctx context.Context, cfg *rest.Config, o Options, log *zap.Logger) error {
	if err := o.Validate(); err != nil {
		return err
	}
	libraries := zapr.NewLogger(log)
	ctrl.SetLogger(libraries)
	klog.SetLogger(libraries)
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = requests, burst
	loaded, err := chart.Load(eventingchart.Chart, ".")
	if err != nil {
		return err
	}
	names := backend.Names(o.Prefix)
	service := fmt.Sprintf("tls://%s.%s.svc:4222", names.NATS(), o.Namespace)
	o.NATSURL = cmp.Or(o.NATSURL, service)
	d := &decide.Rules{
		Identities: identity.Identities{Names: names, Namespace: o.Namespace}, Chart: loaded, Version: o.Version, NATSImage: o.NATSImage, PublisherImage: o.PublisherImage, ControllerImage: o.ControllerImage,
		PullSecrets:       o.PullSecrets,
		NATSURL:           cmp.Or(o.NATSClientURL, service),
		DependencyTimeout: o.DependencyTimeout, BackendTimeout: o.BackendTimeout, DrainDelay: o.DrainDelay, DrainWatch: o.DrainWatch, MeshDelay: o.MeshDelay,
	}
	api, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	lock, err := fence.New(cfg, o.Namespace, names.ManagerLease(), host, fence.RenewDeadline)
	if err != nil {
		return err
	}
	options := managerOptions(o, lock)
	unfenced, err := client.New(cfg, client.Options{Scheme: options.Scheme})
	if err != nil {
		return err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(lock.Guard) // the Lease itself has a client of its own
	mgr, err := ctrl.NewManager(cfg, options)
	if err != nil {
		return err
	}
	if err := mgr.Add(&waiting{client: unfenced, cached: mgr.GetClient(), lock: lock, elected: mgr.Elected(), log: log}); err != nil {
		return err
	}
	if o.PageAddress != "" && o.PageAddress != "0" {
		shown, err := newPage(cfg, mgr.GetClient(), mgr.GetAPIReader(), o, host, log)
		if err != nil {
			return err
		}
		if err := mgr.Add(shown); err != nil {
			return err
		}
	}
	return start(ctx, mgr, api, d, lock, o, log)
}

func managerOptions(o Options, lock *fence.Fence) manager.Options {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, stored.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // schemes that are compiled in
		}
	}
	mine := cache.ByObject{Namespaces: map[string]cache.Config{o.Namespace: {LabelSelector: planes()}}}
	by := map[client.Object]cache.ByObject{}
	for _, object := range watched() {
		by[object] = mine
	}
	// The manifest has them, without our labels.
	by[&corev1.ServiceAccount{}] = cache.ByObject{Namespaces: map[string]cache.Config{o.Namespace: {}}}
	lease, renew, retry, grace := fence.LeaseDuration, fence.RenewDeadline, fence.RetryPeriod, 20*time.Second
	return manager.Options{
		Scheme: scheme,
		// Objects are only watched, most by their metadata: what is decided is read live.
		Cache:                               cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: by},
		Metrics:                             metricsserver.Options{BindAddress: o.MetricsAddress},
		HealthProbeBindAddress:              o.ProbeAddress,
		LeaderElection:                      true,
		LeaderElectionID:                    backend.Names(o.Prefix).ManagerLease(), // for the metric leader_election_master_status alone
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &lease,
		RenewDeadline:                       &renew,
		RetryPeriod:                         &retry,
		GracefulShutdownTimeout:             &grace,
	}
}

// watched are the kinds in the operator's namespace that are always served.
func watched() []client.Object {
	return []client.Object{
		&appsv1.StatefulSet{}, &appsv1.Deployment{}, &autoscalingv2.HorizontalPodAutoscaler{}, &corev1.Service{}, &corev1.ConfigMap{}, &corev1.Secret{}, &policyv1.PodDisruptionBudget{},
		&corev1.PersistentVolumeClaim{}, &corev1.Pod{},
	}
}

func metadataOf(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(kind)
	return m
}

// planes selects what operators have created. Which of them, Names.Ours tells: an earlier version
// wrote that to another label.
func planes() labels.Selector {
	plane, err := labels.NewRequirement(backend.PlaneLabel, selection.In, []string{string(backend.PlaneNATS), string(backend.PlaneMesh), string(backend.PlaneShared)})
	if err != nil {
		panic(err) // constants
	}
	return labels.NewSelector().Add(*plane)
}

func start(ctx context.Context, mgr manager.Manager, api discovery.DiscoveryInterface, d *decide.Rules, lock *fence.Fence, o Options, log *zap.Logger) error {
	woken := make(chan event.GenericEvent, 1)
	wake := func() {
		select {
		case woken <- event.GenericEvent{Object: &stored.Eventing{}}:
		default: // it is about to look anyway
		}
	}
	nats := &connection{url: o.NATSURL, changed: wake}
	defer nats.close()
	go nats.watch(ctx)
	reader := patient{mgr.GetAPIReader()}
	watching, err := dynamic.NewForConfig(mgr.GetConfig())
	if err != nil {
		return err
	}
	lists, err := k8sutil.NewLister(mgr.GetConfig(), watching)
	if err != nil {
		return err
	}
	kept := drift.Kept{}
	r := &reconciler{
		Rules: d, client: mgr.GetClient(),
		observer: &observer{Rules: d, reader: reader, all: lists.Source(eventingv1alpha2.GroupVersion.WithResource("subscriptions"), ""), needs: &dependency.Observer{Reader: reader, Discovery: api}, nats: nats, kept: kept},
		actor:    &actor{Rules: d, client: mgr.GetClient(), reader: reader, nats: nats, recorder: mgr.GetEventRecorder(backend.Operator), fence: lock, kept: kept},
	}
	everything := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		var all stored.EventingList
		if err := mgr.GetClient().List(ctx, &all); err != nil {
			log.Error("cannot list Eventings in the cache", zap.Error(err))
			return nil
		}
		var requests []reconcile.Request
		for i := range all.Items {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
		return requests
	})
	asked := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{})
	b := ctrl.NewControllerManagedBy(mgr).
		For(&stored.Eventing{}, builder.WithPredicates(asked)).
		// The others are told when the one that is served changes or goes.
		Watches(&stored.Eventing{}, everything, builder.WithPredicates(asked)).
		WatchesMetadata(&apiextensionsv1.CustomResourceDefinition{}, everything, builder.WithPredicates(predicate.NewPredicateFuncs(known))).
		WatchesMetadata(&storagev1.StorageClass{}, everything).
		WatchesMetadata(&corev1.ServiceAccount{}, everything, builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(event.UpdateEvent) bool { return false }, DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		WatchesRawSource(source.Channel(woken, everything)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 1,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](200*time.Millisecond, 30*time.Second),
		}).
		WithLogConstructor(func(request *reconcile.Request) logr.Logger { return requestLog(mgr.GetLogger(), request) })
	for _, object := range watched() {
		if _, scales := object.(*autoscalingv2.HorizontalPodAutoscaler); scales {
			b = b.Watches(object, everything, builder.WithPredicates(predicate.Funcs{UpdateFunc: rescales}))
			continue
		}
		b = b.WatchesMetadata(object, everything)
	}
	c, err := b.Build(r)
	if err != nil {
		return err
	}
	// Kinds that may not be served cannot be named in the options of the manager's own cache.
	optional, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), DefaultTransform: cache.TransformStripManagedFields(),
		DefaultNamespaces: map[string]cache.Config{o.Namespace: {}}, DefaultLabelSelector: planes(),
	})
	if err != nil {
		return err
	}
	if err := mgr.Add(optional); err != nil {
		return err
	}
	r.watches = &watches{all: mgr.GetCache(), own: optional, controller: c, handler: everything}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("api", readiness(mgr, api)); err != nil {
		return err
	}
	log.Info("starting", zap.String("version", o.Version), zap.String("namespace", o.Namespace), zap.String("resourcePrefix", o.Prefix), zap.String("nats", o.NATSURL))
	return mgr.Start(ctx)
}

// requestLog has the names that the log of Kyma's operator has.
func requestLog(log logr.Logger, request *reconcile.Request) logr.Logger {
	gvk := operatorv1alpha1.GroupVersion.WithKind("Eventing")
	log = log.WithValues("controller", "eventing", "controllerGroup", gvk.Group, "controllerKind", gvk.Kind)
	if request == nil {
		return log
	}
	return log.WithValues("eventing", map[string]string{"name": request.Name, "namespace": request.Namespace}, "namespace", request.Namespace, "name", request.Name)
}

// rescales says whether more of an autoscaler has changed than what it measures. That is written
// each 15 seconds (--horizontal-pod-autoscaler-sync-period of kube-controller-manager), and is no
// reason to look at everything. It has no generation that would tell.
func rescales(e event.UpdateEvent) bool {
	return !equality.Semantic.DeepEqual(unmeasured(e.ObjectOld), unmeasured(e.ObjectNew))
}

// unmeasured is what the operator decides by: the spec, the metadata, and whether it can scale.
func unmeasured(object client.Object) *autoscalingv2.HorizontalPodAutoscaler {
	is := object.(*autoscalingv2.HorizontalPodAutoscaler) // the predicate is on this kind alone
	decisive := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: *is.ObjectMeta.DeepCopy(), Spec: is.Spec}
	decisive.ResourceVersion, decisive.ManagedFields = "", nil
	for _, c := range is.Status.Conditions {
		c.Message, c.LastTransitionTime = "", metav1.Time{}
		decisive.Status.Conditions = append(decisive.Status.Conditions, c)
	}
	return decisive
}

// known are the definitions that eventing depends on.
func known(object client.Object) bool {
	return slices.ContainsFunc(dependency.Requirements, func(r dependency.Requirement) bool { return r.CRD() == object.GetName() })
}

// readiness tells whether the operator can work: its watches have begun, and the API server
// answers. The state of eventing is in the status of the Eventing.
func readiness(mgr manager.Manager, api discovery.DiscoveryInterface) healthz.Checker {
	return func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), 2*time.Second)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the watches have not begun yet")
		}
		if err := api.RESTClient().Get().AbsPath("/version").Do(ctx).Error(); err != nil {
			return fmt.Errorf("the API server does not answer: %w", err)
		}
		return nil
	}
}

// watches are those of kinds that come and go with their definitions.
type watches struct {
	// all has Subscriptions of all namespaces, own the optional kinds of the operator's.
	all, own   cache.Cache
	controller controller.Controller
	handler    handler.EventHandler

	mu sync.Mutex
	on map[schema.GroupVersionKind]bool
}

// follow watches the kinds that are served, and ends the watch of those that are not any more.
func (w *watches) follow(ctx context.Context, world *observed.World) error {
	dependencies := world.Dependencies
	if world.Has(dependency.Broker.Kind) || len(world.Triggers) > 0 { // also when the mesh is left
		dependencies = append(slices.Clone(dependencies), dependency.Dependency{Kind: dependency.Broker}, dependency.Dependency{Kind: dependency.Trigger})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on == nil {
		w.on = map[schema.GroupVersionKind]bool{}
	}
	for _, dep := range dependencies {
		from := w.own
		switch {
		case dep.Kind.Kind == "Subscription":
			from = w.all
		case dep.Feature == "" && dep.Kind != dependency.Broker && dep.Kind != dependency.Trigger:
			continue // an object, not a kind
		}
		switch served := dep.Presence == dependency.Served; {
		case served && !w.on[dep.Kind]:
			if err := w.controller.Watch(source.Kind[client.Object](from, metadataOf(dep.Kind), w.handler)); err != nil {
				return fmt.Errorf("cannot watch %s: %w", dep.Kind.Kind, err)
			}
			w.on[dep.Kind] = true
		case !served && w.on[dep.Kind]:
			if err := from.RemoveInformer(ctx, metadataOf(dep.Kind)); err != nil {
				return fmt.Errorf("cannot end the watch of %s: %w", dep.Kind.Kind, err)
			}
			delete(w.on, dep.Kind)
		}
	}
	return nil
}
