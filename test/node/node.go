// Package node stands in for the node of a cluster: for scheduler and kubelet, for its volumes, and
// for what its pods run. What plays the controllers of Kyma is in test/standin.
package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// UserAgent tells the requests of stand-ins from others in the audit log.
const UserAgent = "kyma-stand-in"

// Node stands in for scheduler and kubelet of a cluster's only node, without root:
// what runs in a pod is a process of this machine, or part of the test. It starts
// what is to run, says so in the pod's status, starts again what ended, unless the
// pod is a Job's, and ends it with SIGTERM, and SIGKILL after the grace period,
// when the pod is deleted. Each pod has one container. Its probes are made if the
// container is a Listener; any other one is ready once it has started. Volumes are
// directories, if Options.Directory is set; else there are none.
type Node struct {
	client  clientset.Interface
	run     func(context.Context, *corev1.Pod, Mounts) (Container, error)
	log     func(format string, args ...any)
	volumes *volumes

	mu       sync.Mutex
	pods     map[types.UID]*nodePod
	cordoned bool

	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
}

// Container is what runs in a pod.
type Container interface {
	// Address is the URL at which it serves, if it does.
	Address() string
	// Terminate asks it to end, Kill ends it; Exited is closed when it has ended.
	Terminate()
	Kill()
	Exited() <-chan struct{}
	// Ended is asked when it has: for the exit code, and its last output.
	Ended() (code int32, message string)
}

// Listener is a Container that listens at the ports of its pod, or at others in their
// place.
type Listener interface {
	// At is where it listens for a port of the container, as host:port; "" if it
	// does not.
	At(port int32) string
}

// Execer is a Container that runs the preStop command of its pod.
type Execer interface {
	Exec(ctx context.Context, command []string) error
}

// Options of Start.
type Options struct {
	// Run starts what runs in a pod. The mounts are empty without Directory.
	Run func(context.Context, *corev1.Pod, Mounts) (Container, error)
	// Directory is where volumes are made, and the claims of the classes of
	// Provisioner. The cluster needs kubernetes.Workloads. "": pods have no volumes.
	Directory string
	// Log gets what went wrong and is tried again; nil: nobody.
	Log func(format string, args ...any)
}

type nodePod struct {
	pod *corev1.Pod
	// deleted is closed when somebody wants the pod to go.
	deleted chan struct{}
	once    sync.Once
	// container is what runs now, nil between two starts.
	container Container
	// waits is why it does not start, as its status says.
	waits string
}

const (
	nodeName = "node"
	// RestartDelay is what a kubelet waits before it starts again what ended; it is
	// longer each time with the real one.
	RestartDelay = 300 * time.Millisecond
)

// Start runs the pods of all namespaces until Stop or the end of ctx.
func Start(ctx context.Context, cfg *rest.Config, o Options) (*Node, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent, cfg.QPS = UserAgent, -1
	client, err := clientset.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	n := &Node{client: client, run: o.Run, log: o.Log, pods: map[types.UID]*nodePod{}}
	if n.log == nil {
		n.log = func(string, ...any) {}
	}
	n.ctx, n.stop = context.WithCancel(ctx)
	if o.Directory != "" {
		if n.volumes, err = startVolumes(n, o.Directory); err != nil {
			n.Stop()
			return nil, err
		}
	}
	pods := client.CoreV1().Pods("")
	informer := cache.NewSharedIndexInformer(kubernetes.ListWatch(pods.List, pods.Watch), &corev1.Pod{}, 0, cache.Indexers{})
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { n.see(obj, false) },
		UpdateFunc: func(_, obj any) { n.see(obj, false) },
		DeleteFunc: func(obj any) { n.see(obj, true) },
	}); err != nil {
		return nil, fmt.Errorf("cannot watch pods: %w", err)
	}
	n.running.Go(func() { informer.RunWithContext(n.ctx) })
	return n, nil
}

// Stop kills what runs, and returns when it has ended.
func (n *Node) Stop() {
	n.stop()
	n.running.Wait()
}

// Address is that of what runs in a pod, "" if nothing serves there.
func (n *Node) Address(pod types.UID) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.pods[pod]; p != nil && p.container != nil {
		return p.container.Address()
	}
	return ""
}

// Kill kills what runs in the pods that match, and returns how many they are.
func (n *Node) Kill(match func(*corev1.Pod) bool) int {
	n.mu.Lock()
	var containers []Container
	for _, p := range n.pods {
		if p.container != nil && match(p.pod) {
			containers = append(containers, p.container)
		}
	}
	n.mu.Unlock()
	for _, c := range containers {
		c.Kill()
	}
	return len(containers)
}

// Cordon keeps new pods off the node, as "kubectl cordon" does, or lets them come again. Pods that
// run stay.
func (n *Node) Cordon(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cordoned = on
}

func (n *Node) see(obj any, gone bool) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.pods[pod.UID]
	if p == nil {
		if gone || n.ctx.Err() != nil {
			return
		}
		p = &nodePod{pod: pod, deleted: make(chan struct{})}
		n.pods[pod.UID] = p
		n.running.Go(func() {
			n.live(p)
			n.mu.Lock()
			defer n.mu.Unlock()
			delete(n.pods, pod.UID)
		})
	}
	if gone || pod.DeletionTimestamp != nil {
		p.once.Do(func() { close(p.deleted) })
	}
}

// live is the life of a pod.
func (n *Node) live(p *nodePod) {
	if n.volumes != nil {
		defer n.volumes.unmount(p.pod.UID)
	}
	if !n.schedule(p) {
		return
	}
	// Once it is on a node, the API server leaves the end of a pod to the kubelet.
	err := n.client.CoreV1().Pods(p.pod.Namespace).Bind(n.ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: p.pod.Name, Namespace: p.pod.Namespace, UID: p.pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: nodeName},
	}, metav1.CreateOptions{})
	if err != nil {
		if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			n.log("Pod %s/%s: %v", p.pod.Namespace, p.pod.Name, err)
		}
		return
	}
	for restarts := int32(0); n.once(p, &restarts); {
		if !n.wait(p) {
			if n.ctx.Err() == nil {
				n.remove(p)
			}
			return
		}
	}
}

// wait waits a moment, and says whether the pod is still wanted.
func (n *Node) wait(p *nodePod) bool {
	delay := time.NewTimer(RestartDelay)
	defer delay.Stop()
	select {
	case <-delay.C:
		return true
	case <-p.deleted:
	case <-n.ctx.Done():
	}
	return false
}

// schedule waits until the node takes pods and the claims of the pod are bound, and
// says whether the pod is still wanted.
func (n *Node) schedule(p *nodePod) bool {
	for said := ""; ; {
		err := n.schedulable(p.pod)
		if err == nil {
			return true
		}
		if why := "0/1 nodes are available: " + err.Error(); why != said {
			said = why
			n.setStatus(p, &corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: why, LastTransitionTime: metav1.Now(),
			}}})
		}
		if !n.wait(p) {
			return false
		}
	}
}

func (n *Node) schedulable(pod *corev1.Pod) error {
	n.mu.Lock()
	cordoned := n.cordoned
	n.mu.Unlock()
	switch {
	case cordoned:
		return errors.New("1 node(s) were unschedulable")
	case n.volumes == nil:
		return nil
	}
	return n.volumes.schedulable(n.ctx, pod)
}

// once runs a container to its end, and says whether there is to be another one.
func (n *Node) once(p *nodePod, restarts *int32) bool {
	select {
	case <-p.deleted:
		n.remove(p)
		return false
	default:
	}
	mounts := Mounts{}
	if n.volumes != nil {
		var err error
		if mounts, err = n.volumes.mount(p.pod); err != nil {
			n.waiting(p, *restarts, "ContainerCreating", err)
			return n.ctx.Err() == nil
		}
	}
	c, err := n.run(n.ctx, p.pod, mounts)
	if err != nil {
		n.log("Pod %s/%s: %v", p.pod.Namespace, p.pod.Name, err)
		return n.ctx.Err() == nil
	}
	began := metav1.Now()
	n.hold(p, c)
	defer n.hold(p, nil)
	stopProbes := n.startProbes(p, c, *restarts, began)
	defer stopProbes()
	select {
	case <-c.Exited():
	case <-n.ctx.Done():
		c.Kill()
		<-c.Exited()
		return false
	case <-p.deleted:
		n.end(p, c)
		stopProbes()
		n.remove(p)
		return false
	}
	stopProbes()
	code, message := c.Ended()
	ended := corev1.ContainerStateTerminated{ExitCode: code, Message: message, Reason: "Error", StartedAt: began, FinishedAt: metav1.Now()}
	status := StatusOf(p.pod, NeverReady)
	status.ContainerStatuses[0].RestartCount = *restarts
	if code == 0 {
		ended.Reason = "Completed"
	}
	if p.pod.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
		status.ContainerStatuses[0].LastTerminationState = corev1.ContainerState{Terminated: &ended}
		n.setStatus(p, &status)
		*restarts++
		return true
	}
	status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &ended}
	status.Phase = corev1.PodSucceeded
	if code != 0 {
		status.Phase = corev1.PodFailed
	}
	n.setStatus(p, &status)
	select {
	case <-p.deleted:
		n.remove(p)
	case <-n.ctx.Done():
	}
	return false
}

// end gives a container its grace period.
func (n *Node) end(p *nodePod, c Container) {
	grace := 30 * time.Second
	if s := p.pod.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	// The grace period begins with the command that runs before SIGTERM.
	if e, ok := c.(Execer); ok && len(p.pod.Spec.Containers) > 0 {
		if hooks := p.pod.Spec.Containers[0].Lifecycle; hooks != nil && hooks.PreStop != nil && hooks.PreStop.Exec != nil {
			ctx, cancel := context.WithTimeout(n.ctx, grace)
			if err := e.Exec(ctx, hooks.PreStop.Exec.Command); err != nil {
				n.log("Pod %s/%s: preStop: %v", p.pod.Namespace, p.pod.Name, err)
			}
			cancel()
		}
	}
	c.Terminate()
	select {
	case <-c.Exited():
	case <-timer.C:
	case <-n.ctx.Done():
	}
	c.Kill()
	<-c.Exited()
}

func (n *Node) hold(p *nodePod, c Container) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p.container = c
}

// waiting says why a container has not started.
func (n *Node) waiting(p *nodePod, restarts int32, reason string, err error) {
	status := StatusOf(p.pod, Unpullable)
	status.ContainerStatuses[0].RestartCount = restarts
	status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: err.Error()}
	if p.waits != err.Error() {
		n.setStatus(p, &status)
	}
	p.waits = err.Error()
}

// setStatus writes to this pod, and not to another one of its name.
func (n *Node) setStatus(p *nodePod, status *corev1.PodStatus) {
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.pod.UID}, "status": status})
	if err != nil {
		panic(err) // it is our own
	}
	_, err = n.client.CoreV1().Pods(p.pod.Namespace).Patch(n.ctx, p.pod.Name, types.MergePatchType, raw, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && n.ctx.Err() == nil {
		n.log("Pod %s/%s: cannot set its status: %v", p.pod.Namespace, p.pod.Name, err)
	}
}

// remove is what a kubelet does when everything of a pod has ended.
func (n *Node) remove(p *nodePod) {
	if n.volumes != nil {
		n.volumes.unmount(p.pod.UID)
	}
	err := n.client.CoreV1().Pods(p.pod.Namespace).Delete(n.ctx, p.pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &p.pod.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && n.ctx.Err() == nil {
		n.log("Pod %s/%s: cannot remove it: %v", p.pod.Namespace, p.pod.Name, err)
	}
}

// Program is the name of a pod's program: the last part of its image.
func Program(pod *corev1.Pod) string {
	name := pod.Spec.Containers[0].Image
	name, _, _ = strings.Cut(name[strings.LastIndex(name, "/")+1:], "@")
	name, _, _ = strings.Cut(name, ":")
	return name
}

// Env are the environment variables of a pod's container: values, and names of the pod.
func Env(pod *corev1.Pod) []string {
	var env []string
	for _, v := range pod.Spec.Containers[0].Env {
		value := v.Value
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil {
			switch v.ValueFrom.FieldRef.FieldPath {
			case "metadata.name":
				value = pod.Name
			case "metadata.namespace":
				value = pod.Namespace
			case "metadata.uid":
				value = string(pod.UID)
			}
		}
		env = append(env, v.Name+"="+value)
	}
	return env
}

// Still is a container that does nothing until it is ended.
type Still struct {
	exited chan struct{}
	once   sync.Once
	code   int32
}

// NewStill makes one.
func NewStill() *Still { return &Still{exited: make(chan struct{})} }

func (s *Still) end(code int32) {
	s.once.Do(func() {
		s.code = code
		close(s.exited)
	})
}

// Address implements Container.
func (s *Still) Address() string { return "" }

// Terminate implements Container.
func (s *Still) Terminate() { s.end(0) }

// Kill implements Container.
func (s *Still) Kill() { s.end(killed) }

// Exited implements Container.
func (s *Still) Exited() <-chan struct{} { return s.exited }

// Ended implements Container.
func (s *Still) Ended() (int32, string) { return s.code, "" }

// killed is the exit code of what SIGKILL ended.
const killed = 128 + int32(syscall.SIGKILL)

// Process is a container that is a process, and ends by itself.
type Process struct {
	cmd    *exec.Cmd
	out    bytes.Buffer
	exited chan struct{}
}

// StartProcess starts a program; env is all that it gets of an environment.
func StartProcess(binary string, env, args []string) (*Process, error) {
	p := &Process{cmd: exec.Command(binary, args...), exited: make(chan struct{})}
	p.cmd.Env = slices.Concat([]string{"HOME=/nonexistent", "GORACE=atexit_sleep_ms=0"}, env)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	// If the test process is killed, this one must not stay.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", binary, err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait()
	}()
	return p, nil
}

// Address implements Container.
func (p *Process) Address() string { return "" }

// Terminate implements Container.
func (p *Process) Terminate() { _ = p.cmd.Process.Signal(syscall.SIGTERM) }

// Kill implements Container.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }

// Exited implements Container.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Output is all that the process has written, once it has ended.
func (p *Process) Output() string { return p.out.String() }

// Ended implements Container. Its last output are those that fit into a status.
func (p *Process) Ended() (int32, string) {
	said := p.out.String()
	if most := 4096; len(said) > most {
		said = strings.ToValidUTF8(said[len(said)-most:], "")
	}
	if code := p.cmd.ProcessState.ExitCode(); code >= 0 {
		return int32(code), said //nolint:gosec // exit codes are bytes
	}
	return killed, said
}
