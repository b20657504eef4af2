// Package kymaeventing stands in for Kyma's own eventing, with its eventing-manager and its
// publisher, over a real API server and a real NATS. Nothing is imported from the product: an error
// there must not be an error here, too. README.md has the source of each fact.
package kymaeventing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Images of pods that this package runs.
const (
	ManagerImage   = "kyma-eventing-manager"
	PublisherImage = "kyma-publisher"
)

const (
	namespace      = "kyma-system"
	eventing       = "eventing"
	publisher      = "eventing-publisher-proxy"
	managerName    = "eventing-manager"
	natsName       = "eventing-nats"
	stream         = "sap"
	finalizer      = "eventing.operator.kyma-project.io/finalizer"
	subFinalizer   = "eventing.kyma-project.io"
	maxDeliver     = 100
	ackWait        = 30 * time.Second
	maxAckPending  = 10
	heartbeat      = time.Minute
	publishTimeout = 5 * time.Second
)

var (
	eventings     = schema.GroupVersionResource{Group: "operator.kyma-project.io", Version: "v1alpha1", Resource: "eventings"}
	subscriptions = schema.GroupVersionResource{Group: "eventing.kyma-project.io", Version: "v1alpha2", Resource: "subscriptions"}
	definitions   = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	services      = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	clusterRoles  = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}

	clusterBindings = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}
)

// Options of New.
type Options struct {
	Config *rest.Config
	// NATS is the URL of their NATS.
	NATS string
	// NakDelay is how long an event waits that a sink has refused; 30s with Kyma's.
	NakDelay time.Duration
	Log      func(format string, args ...any)
}

// Kyma is the stand-in. Its Manager and its Publisher are what runs in pods.
type Kyma struct {
	options  Options
	core     clientset.Interface
	refusals refusals
	mu       sync.Mutex
	running  int
}

// New returns one.
func New(o Options) (*Kyma, error) {
	if o.NakDelay == 0 {
		o.NakDelay = 30 * time.Second
	}
	core, err := clientset.NewForConfig(o.Config)
	return &Kyma{options: o, core: core}, err
}

// Running is how many operators run now.
func (k *Kyma) Running() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.running
}

func (k *Kyma) count(by int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running += by
}

// container is something of this process that runs in a pod.
type container struct {
	stop   context.CancelFunc
	exited chan struct{}
	at     map[int32]string
}

func (c *container) Address() string           { return "" }
func (c *container) Terminate()                { c.stop() }
func (c *container) Kill()                     { c.stop() }
func (c *container) Exited() <-chan struct{}   { return c.exited }
func (c *container) Ended() (int32, string)    { return 0, "" }
func (c *container) At(port int32) string      { return c.at[port] }
func (k *Kyma) log(format string, args ...any) { k.options.Log("kyma: "+format, args...) }

// Container is what runs in a pod of Kyma's; it is a node.Container and a node.Listener.
type Container interface {
	Address() string
	Terminate()
	Kill()
	Exited() <-chan struct{}
	Ended() (code int32, message string)
	At(port int32) string
}

// Manager runs the operator until it is ended, with the account of its pod.
func (k *Kyma) Manager(ctx context.Context, pod *corev1.Pod) (Container, error) {
	client, err := k.as(ctx, pod, eventings)
	if err != nil {
		return nil, err
	}
	o := &operator{Kyma: k, client: client, delivered: map[string]*nats.Subscription{}, refused: map[string]string{}}
	return k.loop(managerName, o.reconcile, func() { k.count(1) }, func() {
		o.close()
		k.count(-1)
	}), nil
}

// loop reconciles again and again until it is ended.
func (k *Kyma) loop(program string, reconcile func(context.Context) error, begins, ended func()) *container {
	ctx, stop := context.WithCancel(context.Background())
	c := &container{stop: stop, exited: make(chan struct{})}
	go func() {
		defer close(c.exited)
		begins()
		defer ended()
		for ctx.Err() == nil {
			if err := reconcile(ctx); err != nil && ctx.Err() == nil {
				k.log("%s: %v", program, err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	return c
}

// Publisher runs the publisher until it is ended, with the account of its pod. What it has read is
// answered before.
func (k *Kyma) Publisher(ctx context.Context, pod *corev1.Pod) (Container, error) {
	if _, err := k.as(ctx, pod, subscriptions); err != nil {
		return nil, err
	}
	conn, err := nats.Connect(k.options.NATS, nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true), nats.ReconnectWait(time.Second))
	if err != nil {
		return nil, err
	}
	js, err := conn.JetStream(nats.MaxWait(publishTimeout))
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ended, stop := context.WithCancel(context.Background())
	c := &container{stop: stop, exited: make(chan struct{}), at: map[int32]string{8080: l.Addr().String()}}
	server := &http.Server{Handler: publishing(js, conn), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }()
	go func() {
		defer close(c.exited)
		defer conn.Close()
		<-ended.Done()
		end, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = server.Shutdown(end)
	}()
	return c, nil
}

var (
	cleanSource = regexp.MustCompile(`[\s.>*/\\]`)
	cleanType   = regexp.MustCompile(`[\s>*/\\]`)
)

// subjectOf is where events of a source and a type are published.
func subjectOf(source, eventType string) string {
	return "kyma." + cleanSource.ReplaceAllString(source, "") + "." + cleanType.ReplaceAllString(eventType, "")
}

// consumerOf is the name of the consumer of a Subscription for a subject.
func consumerOf(namespace, name, subject string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + name + "/" + subject))
	return hex.EncodeToString(sum[:])[:32]
}

// asks are the subjects of a Subscription, by its types.
func asks(sub *unstructured.Unstructured) (types, clean, subjects []string) {
	source, _, _ := unstructured.NestedString(sub.Object, "spec", "source")
	matching, _, _ := unstructured.NestedString(sub.Object, "spec", "typeMatching")
	types, _, _ = unstructured.NestedStringSlice(sub.Object, "spec", "types")
	for _, t := range types {
		if matching == "exact" {
			clean, subjects = append(clean, t), append(subjects, "kyma."+t)
			continue
		}
		clean, subjects = append(clean, cleanType.ReplaceAllString(t, "")), append(subjects, subjectOf(source, t))
	}
	return types, clean, subjects
}

// labels are those of the publisher, its pods and its Services.
func labels() map[string]any {
	return map[string]any{
		"app.kubernetes.io/component": managerName, "app.kubernetes.io/created-by": managerName, "app.kubernetes.io/instance": eventing,
		"app.kubernetes.io/managed-by": managerName, "app.kubernetes.io/name": publisher, "app.kubernetes.io/part-of": managerName,
		"eventing.kyma-project.io/backend": "NATS", "kyma-project.io/dashboard": eventing,
	}
}

// NATSKind is the definition of the kind of nats-manager.
const NATSKind = "nats.operator.kyma-project.io"

// NATSDefinition is that definition, with no schema.
const NATSDefinition = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: ` + NATSKind + `},
 spec: {group: operator.kyma-project.io, scope: Namespaced, names: {kind: NATS, plural: nats, singular: nats},
  versions: [{name: v1alpha1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`

// Manifest are the objects that lifecycle-manager has made, before an operator has done anything:
// accounts and Deployments of both, the NATS and the Eventing.
func Manifest(eventingSpec string) []string {
	return slices.Concat(natsManifest(), []string{NATS}, eventingManifest(), []string{eventingObject(eventingSpec)})
}

// eventingManifest are the objects of the module eventing, without its definitions.
func eventingManifest() []string {
	return append(account(managerName, managerName, managerName, managerRules),
		`{apiVersion: apps/v1, kind: Deployment, metadata: {name: eventing-manager, namespace: kyma-system, labels: {control-plane: eventing-manager, app.kubernetes.io/name: eventing-manager, app.kubernetes.io/instance: eventing-manager, app.kubernetes.io/component: eventing-manager}},
 spec: {replicas: 1, selector: {matchLabels: {control-plane: eventing-manager}}, template: {metadata: {labels: {control-plane: eventing-manager}}, spec: {serviceAccountName: eventing-manager, terminationGracePeriodSeconds: 10, containers: [{name: manager, image: "`+ManagerImage+`:1"}]}}}}`,
	)
}

// eventingObject is the default object of the module eventing.
func eventingObject(spec string) string {
	return strings.TrimSpace(fmt.Sprintf(`{apiVersion: operator.kyma-project.io/v1alpha1, kind: Eventing, metadata: {name: eventing, namespace: kyma-system}, spec: %s}`, spec))
}
