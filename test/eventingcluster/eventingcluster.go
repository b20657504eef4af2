// Package eventingcluster starts a cluster on this machine that the eventing operator can be
// installed on: with a real node and Knative Eventing, or, without root, with a control plane whose
// pods are processes. It is for tests, and for make eventing.
package eventingcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/test/eventingpods"
	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/node"
	"github.com/kyma-project/eventmesh-migration/test/relay"
	"github.com/kyma-project/eventmesh-migration/test/sinks"
)

const (
	// Namespace is that of the operator and of what it installs.
	Namespace = "kyma-system"
	// Servers is how many servers of NATS an Eventing can have, beside one Eventing with a single
	// server.
	Servers = 3
	// SinkPort is that of the Services of sinks, on a cluster with a node.
	SinkPort = 8080

	natsServer = "./cmd/internal/nats-server"
	// formerNATSServer is what a version without a program of its own had.
	formerNATSServer = "github.com/nats-io/nats-server/v2"
	tag              = "e2e"
)

// Cluster is the cluster, and the way into it.
type Cluster struct {
	*kubernetes.ControlPlane
	Core    clientset.Interface
	Dynamic dynamic.Interface
	// Manifest installs the operator: it is for kubectl apply.
	Manifest string
	// Values are more values of the operator's chart, for --set, with which Images makes Manifest.
	Values string
	// Repository is where Images has pushed the images of the operator and of what it installs.
	Repository string

	volumes int                // those that were made
	pods    *eventingpods.Pods // nil with a node
	stop    []func()
}

// Eventing is an Eventing with one server. The retention is what happens to the volume of the
// server.
func Eventing(retention string) string {
	return fmt.Sprintf(`apiVersion: operator.kyma-project.io/v1alpha1
kind: Eventing
metadata: {name: eventing, namespace: %s}
spec:
  backend:
    type: NATS
    config: {natsStreamReplicas: 1, natsStorage: {retention: %s}}
`, Namespace, retention)
}

// StartNode starts a cluster with a real node, with volumes on it, and with the namespace of the
// operator, which is restricted.
func StartNode(ctx context.Context, with ...kubernetes.Option) (_ *Cluster, err error) {
	c, err := start(ctx, with...)
	if err != nil {
		return nil, err
	}
	if err := c.storage(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// StartProcesses starts a cluster without a node: its pods are processes of this machine. It needs
// no root. NATS has one server, and there is no Knative.
func StartProcesses(ctx context.Context) (_ *Cluster, err error) {
	c, err := start(ctx, kubernetes.Workloads())
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if _, err := c.Core.StorageV1().StorageClasses().Create(ctx, node.Class("standard", true, storagev1.VolumeBindingWaitForFirstConsumer), metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("cannot create StorageClass standard: %w", err)
	}
	volumes, tokens := filepath.Join(c.Dir, "node"), filepath.Join(c.Dir, "tokens")
	for _, dir := range []string{volumes, tokens} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if c.pods, err = eventingpods.Build(ctx, c.ControlPlane, tokens); err != nil {
		return nil, err
	}
	dns, stop, err := sinks.ServeDNS()
	if err != nil {
		return nil, err
	}
	c.stop = append(c.stop, stop)
	nats, err := c.pods.NATS.URL(Namespace, "eventing-nats-0")
	if err != nil {
		return nil, err
	}
	nats = strings.Replace(nats, "127.0.0.1", "localhost", 1) // which the certificate names
	c.pods.More[eventingpods.Manager] = []string{"--drain-delay=1s", "--drain-watch=1s", "--nats-url=" + nats, "--nats-client-url=" + nats}
	c.pods.More[eventingpods.Controller] = []string{"--dns-server=" + dns}
	// The processes end with Close, and not before: a deletion needs the operator.
	run, err := node.Start(context.WithoutCancel(ctx), c.Config(), node.Options{Run: c.pods.Run, Directory: volumes})
	if err != nil {
		return nil, err
	}
	c.stop = append(c.stop, run.Stop)
	c.Manifest, err = c.render(ctx, "", "local", tag)
	return c, err
}

func start(ctx context.Context, with ...kubernetes.Option) (_ *Cluster, err error) {
	plane, err := kubernetes.Start(ctx, with...)
	if err != nil {
		return nil, err
	}
	c := &Cluster{ControlPlane: plane}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.Core, err = clientset.NewForConfig(c.Config()); err != nil {
		return nil, err
	}
	if c.Dynamic, err = dynamic.NewForConfig(c.Config()); err != nil {
		return nil, err
	}
	if _, err := c.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: Namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("cannot create namespace %s: %w", Namespace, err)
	}
	return c, nil
}

// Close ends what was started, the last one first, and removes its files.
func (c *Cluster) Close() error {
	for _, stop := range slices.Backward(c.stop) {
		stop()
	}
	c.stop = nil
	return c.Stop()
}

// Config is that of the administrator, without what the API server has to say about names that are
// Kyma's.
func (c *Cluster) Config() *rest.Config {
	config := c.ControlPlane.Config()
	config.WarningHandler = rest.NoWarnings{}
	return config
}

// Images builds the images of a cluster with a node, and the manifest that names them.
func (c *Cluster) Images(ctx context.Context) error {
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		return err
	}
	return c.ImagesOf(ctx, root, tag)
}

// ImagesOf is Images for the checkout in a folder, which may be one of another version. The images
// have a tag.
func (c *Cluster) ImagesOf(ctx context.Context, root, tag string) error {
	server := natsServer
	if _, err := os.Stat(filepath.Join(root, server)); err != nil {
		server = formerNATSServer
	}
	manager, err := c.PushFrom(ctx, root, "eventmesh/eventing-manager:"+tag, "./cmd/eventing-manager")
	if err != nil {
		return err
	}
	for name, pkg := range map[string]string{"nats-server": server, "eventing-publisher-proxy": "./cmd/eventing-publisher-proxy", "eventing-controller": "./cmd/eventing-controller"} {
		if _, err := c.PushFrom(ctx, root, "eventmesh/"+name+":"+tag, pkg); err != nil {
			return err
		}
	}
	c.Repository = strings.TrimSuffix(manager, "/eventing-manager:"+tag)
	c.Manifest, err = c.render(ctx, root, c.Repository, tag)
	return err
}

// render renders the chart of the checkout in a folder; "" is this one.
func (c *Cluster) render(ctx context.Context, checkout, repository, tag string) (string, error) {
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		return "", err
	}
	h, err := helm.New(ctx, root, 4)
	if err != nil {
		return "", err
	}
	return h.Template(ctx, "eventing-manager", filepath.Join(checkout, "charts/eventing-manager"), "--namespace", Namespace, "--include-crds", "--kube-version", fmt.Sprintf("1.%d.0", c.Minor),
		"--set", strings.Trim("image.tag="+tag+",image.repository="+repository+","+c.Values, ","))
}

// Knative installs Knative Eventing, without the kind of Kyma 1.10 that has the name of our
// Subscription.
func (c *Cluster) Knative(ctx context.Context) error {
	if err := c.InstallKnative(ctx); err != nil {
		return err
	}
	return c.RemoveCRD(ctx, "subscriptions.eventing.kyma-project.io")
}

// storage makes the default class, in which no provisioner has a part, and volumes.
func (c *Cluster) storage(ctx context.Context) error {
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	if _, err := c.Core.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: "local", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &mode,
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("cannot create StorageClass local: %w", err)
	}
	// One for the single server, and one for each of the others.
	for range 1 + Servers {
		if err := c.Volume(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Volume makes one more volume on the node. The kubelet lets the group of a pod write to it, as it
// does for volumes of real clusters.
func (c *Cluster) Volume(ctx context.Context) error {
	nodes, err := c.Core.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("cannot list nodes: %w", err)
	}
	if len(nodes.Items) != 1 {
		return fmt.Errorf("cannot make a volume: there are %d nodes, and not one", len(nodes.Items))
	}
	dir := filepath.Join(c.Dir, fmt.Sprintf("volume-%d", c.volumes))
	c.volumes++
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if _, err := c.Core.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: filepath.Base(dir)},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: "local", PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{nodes.Items[0].Name}}},
			}}}},
		},
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("cannot create PersistentVolume %s: %w", filepath.Base(dir), err)
	}
	return nil
}

// Publisher is the Service of the publisher, for clients outside of the cluster: its URL, and what
// sends requests there. On a cluster with a node that is the API server, which knows the endpoints
// of the Service.
func (c *Cluster) Publisher() (url string, through http.RoundTripper, err error) {
	if c.pods != nil {
		return "http://" + eventingpods.Publisher, c.pods.Service(eventingpods.Publisher, 8080), nil
	}
	through, err = rest.TransportFor(c.Config())
	return c.Config().Host + "/api/v1/namespaces/" + Namespace + "/services/http:eventing-publisher-proxy:80/proxy", through, err
}

// Serve starts a server that pods reach, and returns its URL. It ends with the cluster.
func (c *Cluster) Serve(h http.Handler) (string, error) {
	host := c.Host
	if c.pods != nil {
		host = "127.0.0.1"
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", fmt.Errorf("cannot listen: %w", err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }()
	c.stop = append(c.stop, func() { _ = server.Close() })
	return "http://" + l.Addr().String(), nil
}

// Sink lets a handler be the sink of Subscriptions: it returns the URL of a Service, below which
// everything is the handler's, and the objects that kubectl has to apply before.
func (c *Cluster) Sink(ctx context.Context, namespace, name string, h http.Handler) (url string, objects []any, err error) {
	here, err := c.Serve(h)
	if err != nil {
		return "", nil, err
	}
	host := "http://" + name + "." + namespace + ".svc.cluster.local"
	if c.pods != nil { // the name is that of this machine, for the controller
		_, service := relay.Relay("", namespace, name, SinkPort, "")
		return host + here[strings.LastIndex(here, ":"):], []any{service}, nil
	}
	image, err := c.Push(ctx, filepath.Base(relay.Workload), relay.Workload)
	if err != nil {
		return "", nil, err
	}
	deployment, service := relay.Relay(image, namespace, name, SinkPort, here)
	return fmt.Sprintf("%s:%d", host, SinkPort), []any{deployment, service}, nil
}
