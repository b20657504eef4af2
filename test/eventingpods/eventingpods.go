// Package eventingpods runs the programs of eventing in pods that are processes: the operator, the
// publisher, the controller and NATS, each with the arguments, the volumes and the ServiceAccount
// of its pod.
package eventingpods

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/natsserver"
	"github.com/kyma-project/eventmesh-migration/test/node"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// The names of the programs, which are those of their images.
const (
	Manager    = "eventing-manager"
	Publisher  = "eventing-publisher-proxy"
	Controller = "eventing-controller"
)

// ports are those of each program, and the flag that sets each.
var ports = map[string]map[int32]string{
	Manager:    {8080: "--metrics-bind-address", 8081: "--health-probe-bind-address"},
	Publisher:  {8080: "--port", 9090: "--metrics-port"},
	Controller: {8080: "--metrics-address", 8081: "--health-address", 8082: "--deliver-address"},
}

// Pods runs pods of a node.Node: its Run is that of node.Options.
type Pods struct {
	// NATS are the servers.
	NATS *natsserver.Pods
	// More are arguments of a program in addition to those of its pod.
	More map[string][]string
	// Env is the environment of a program in addition to that of its pod, and Binaries are the
	// programs. Both can be changed before pods run.
	Env      map[string][]string
	Binaries map[string]string

	core       clientset.Interface
	kubeconfig string
	dir        string

	mu      sync.Mutex
	running map[*container]bool
	logs    []*container
}

// New is Build for a test. What the programs wrote is in the log of a test that fails.
func New(t testing.TB, cluster *kubernetes.ControlPlane) *Pods {
	t.Helper()
	p, err := Build(t.Context(), cluster, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range p.logs {
			c.Kill()
			<-c.Exited()
			t.Logf("Pod %s wrote:\n%s", c.pod, c.Output())
		}
	})
	return p
}

// Version adds the programs of another version, which are in a folder: those of images with its
// tag.
func (p *Pods) Version(tag, dir string) {
	for program := range ports {
		p.Binaries[program+":"+tag] = filepath.Join(dir, program)
	}
}

// Build builds the programs. Files of their pods are in the directory.
func Build(ctx context.Context, cluster *kubernetes.ControlPlane, dir string) (*Pods, error) {
	servers, err := natsserver.NewPods(ctx)
	if err != nil {
		return nil, err
	}
	core, err := clientset.NewForConfig(cluster.Config())
	if err != nil {
		return nil, err
	}
	p := &Pods{
		NATS: servers, More: map[string][]string{}, Env: map[string][]string{}, Binaries: map[string]string{},
		core: core, kubeconfig: cluster.Kubeconfig, dir: dir, running: map[*container]bool{},
	}
	for program := range ports {
		// Its own tests run it with the race detector.
		if p.Binaries[program], err = process.BuildUnraced(ctx, "./cmd/"+program); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// container is one run of a program.
type container struct {
	*node.Process
	pod, program string
	ports        map[int32]string // addresses, by the port of the pod
}

// At implements node.Listener.
func (c *container) At(port int32) string { return c.ports[port] }

// Run starts the program of a pod, which the last part of its image names.
func (p *Pods) Run(ctx context.Context, pod *corev1.Pod, mounts node.Mounts) (node.Container, error) {
	program := node.Program(pod)
	if program == "nats-server" {
		return p.NATS.Run(ctx, pod, mounts)
	}
	binary := p.Binaries[path.Base(pod.Spec.Containers[0].Image)]
	if binary == "" {
		binary = p.Binaries[program]
	}
	if binary == "" {
		return nil, fmt.Errorf("no image has the program %q", program)
	}
	kubeconfig, err := p.account(ctx, pod)
	if err != nil {
		return nil, err
	}
	c := &container{pod: pod.Namespace + "/" + pod.Name, program: program, ports: map[int32]string{}}
	args := mounts.All(pod.Spec.Containers[0].Args)
	if program == Controller { // the files of its seed and of the authority are where the program looks by default
		args = append(args, mounts.All([]string{"--nats-seed-file=/etc/eventing/nats-user/controller", "--nats-ca-file=/etc/eventing/nats-ca/ca.crt"})...)
	}
	free, err := process.FreePorts(len(ports[program]))
	if err != nil {
		return nil, err
	}
	for i, port := range slices.Sorted(maps.Keys(ports[program])) {
		address := fmt.Sprintf("127.0.0.1:%d", free[i])
		c.ports[port] = address
		if program == Publisher {
			address = fmt.Sprint(free[i])
		}
		args = append(args, ports[program][port]+"="+address)
	}
	args = append(args, p.More[program]...)
	if c.Process, err = node.StartProcess(binary, slices.Concat(node.Env(pod), []string{"KUBECONFIG=" + kubeconfig}, p.Env[program]), args); err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.running[c] = true
	p.logs = append(p.logs, c)
	p.mu.Unlock()
	go func() {
		<-c.Exited()
		p.mu.Lock()
		delete(p.running, c)
		p.mu.Unlock()
	}()
	return c, nil
}

// account is a kubeconfig with the ServiceAccount of a pod.
func (p *Pods) account(ctx context.Context, pod *corev1.Pod) (string, error) {
	if pod.Spec.AutomountServiceAccountToken == nil || !*pod.Spec.AutomountServiceAccountToken {
		return "", errors.New("the pod mounts no token, so that its program cannot reach the API server")
	}
	token, err := p.core.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	config, err := clientcmd.LoadFromFile(p.kubeconfig)
	if err != nil {
		return "", err
	}
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	file := filepath.Join(p.dir, string(pod.UID))
	return file, clientcmd.WriteToFile(*config, file)
}

// At are the addresses of a port of all running pods of a program, sorted: what a Service has.
func (p *Pods) At(program string, port int32) (addresses []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.running {
		if c.program == program {
			addresses = append(addresses, c.ports[port])
		}
	}
	slices.Sort(addresses)
	return addresses
}

// Service sends each request to one of the running pods of a program, as a Service does. The host
// of a request does not matter.
func (p *Pods) Service(program string, port int32) http.RoundTripper {
	return &service{pods: p, program: program, port: port, inner: http.Transport{MaxIdleConnsPerHost: 100}}
}

type service struct {
	pods    *Pods
	program string
	port    int32
	inner   http.Transport
}

// RoundTrip implements http.RoundTripper.
func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	addresses := s.pods.At(s.program, s.port)
	if len(addresses) == 0 {
		return nil, fmt.Errorf("no pod of %s runs", s.program)
	}
	r = r.Clone(r.Context())
	r.URL.Host = addresses[rand.IntN(len(addresses))] //nolint:gosec // nobody has to be kept from guessing it
	return s.inner.RoundTrip(r)
}
