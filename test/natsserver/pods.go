package natsserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/kyma-project/eventmesh-migration/test/node"
)

// The ports of the chart. Routes between servers are not played: a StatefulSet has one server.
const (
	clientPort  = 4222
	monitorPort = 8222
)

// Pods runs nats-server in pods of a node.Node. Each pod has ports of this machine that it has
// again when it is restarted, or when another pod of its name takes its place.
type Pods struct {
	binary string
	mu     sync.Mutex
	ports  map[string][2]int
}

// NewPods builds the server, which takes a minute once.
func NewPods(ctx context.Context) (*Pods, error) {
	binary, err := build(ctx)
	return &Pods{binary: binary, ports: map[string][2]int{}}, err
}

// URL is where clients connect to the server of a pod, also before the pod is there:
// tls://127.0.0.1:<port>. The certificate names the Service, not this address.
func (p *Pods) URL(namespace, name string) (string, error) {
	ports, err := p.of(namespace, name)
	return fmt.Sprintf("tls://127.0.0.1:%d", ports[0]), err
}

// Monitor is the base of the monitoring endpoint of a pod.
func (p *Pods) Monitor(namespace, name string) (string, error) {
	ports, err := p.of(namespace, name)
	return fmt.Sprintf("http://127.0.0.1:%d", ports[1]), err
}

func (p *Pods) of(namespace, name string) ([2]int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := namespace + "/" + name
	if ports, ok := p.ports[key]; ok {
		return ports, nil
	}
	var ports [2]int
	for i := range ports {
		// The port is free now and then, while a server is restarted. It is none of those that the
		// kernel gives to connections.
		var l net.Listener
		err := errors.New("no port is free")
		for try := 0; err != nil && try < 100; try++ {
			ports[i] = 20000 + rand.IntN(12000) //nolint:gosec // nobody has to be kept from guessing it
			l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", ports[i]))
		}
		if err != nil {
			return ports, err
		}
		defer l.Close() // after the other one listens, so that they differ
	}
	p.ports[key] = ports
	return ports, nil
}

// Run starts the server of a pod, with the arguments, the environment and the volumes of the pod.
func (p *Pods) Run(_ context.Context, pod *corev1.Pod, mounts node.Mounts) (node.Container, error) {
	ports, err := p.of(pod.Namespace, pod.Name)
	if err != nil {
		return nil, err
	}
	args := append(mounts.All(pod.Spec.Containers[0].Args), "--addr", "127.0.0.1", "--port", strconv.Itoa(ports[0]), "--http_port", strconv.Itoa(ports[1]))
	process, err := node.StartProcess(p.binary, node.Env(pod), args)
	if err != nil {
		return nil, err
	}
	return &podServer{process, p.binary, ports, mounts}, nil
}

type podServer struct {
	*node.Process
	binary string
	ports  [2]int
	mounts node.Mounts
}

// Address implements node.Container.
func (s *podServer) Address() string { return fmt.Sprintf("tls://127.0.0.1:%d", s.ports[0]) }

// At implements node.Listener.
func (s *podServer) At(port int32) string {
	switch port {
	case clientPort:
		return fmt.Sprintf("127.0.0.1:%d", s.ports[0])
	case monitorPort:
		return fmt.Sprintf("127.0.0.1:%d", s.ports[1])
	}
	return ""
}

// Exec implements node.Execer, for the program itself: /nats-server -sl=ldm=<file> asks the server
// to hand over.
func (s *podServer) Exec(ctx context.Context, command []string) error {
	if len(command) == 0 || filepath.Base(command[0]) != "nats-server" {
		return fmt.Errorf("the image has no program %q", command)
	}
	if out, err := exec.CommandContext(ctx, s.binary, s.mounts.All(command[1:])...).CombinedOutput(); err != nil {
		return fmt.Errorf("%q: %w\n%s", command, err, out)
	}
	return nil
}
