package node

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// startProbes says that a container runs, and makes its HTTP probes as a kubelet does: first the
// startup probe until it succeeds, then readiness and liveness. A container that fails for too long
// is ended. The others are ready once they run. The returned function stops the probes, and returns
// when nothing more is written; it may be called again.
func (n *Node) startProbes(p *nodePod, c Container, restarts int32, began metav1.Time) func() {
	l, listens := c.(Listener)
	of := &p.pod.Spec.Containers[0]
	if !listens || of.StartupProbe == nil && of.ReadinessProbe == nil && of.LivenessProbe == nil {
		n.runs(p, restarts, began, true, true)
		return func() {}
	}
	started, ready := of.StartupProbe == nil, of.StartupProbe == nil && of.ReadinessProbe == nil
	n.runs(p, restarts, began, started, ready)
	ctx, cancel := context.WithCancel(n.ctx)
	var running sync.WaitGroup
	fails := func(why string) {
		n.log("Pod %s/%s: %s", p.pod.Namespace, p.pod.Name, why)
		n.running.Go(func() { n.end(p, c) })
	}
	running.Go(func() {
		if of.StartupProbe != nil {
			if !probes(ctx, of, of.StartupProbe, l, func(ok bool) bool {
				if !ok {
					fails("the startup probe failed")
				}
				return false
			}) {
				return
			}
			n.runs(p, restarts, began, true, of.ReadinessProbe == nil)
		}
		running.Go(func() {
			probes(ctx, of, of.LivenessProbe, l, func(ok bool) bool {
				if !ok {
					fails("the liveness probe failed")
				}
				return ok
			})
		})
		probes(ctx, of, of.ReadinessProbe, l, func(ok bool) bool {
			n.runs(p, restarts, began, true, ok)
			return true
		})
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// probes makes one probe until its context ends, or next returns false. next is told of the first
// result that counts, and of each change. The return value is the last result.
func probes(ctx context.Context, of *corev1.Container, probe *corev1.Probe, l Listener, next func(ok bool) bool) bool {
	if probe == nil || probe.HTTPGet == nil {
		return true
	}
	if !sleep(ctx, time.Duration(probe.InitialDelaySeconds)*time.Second) {
		return false
	}
	period := time.Duration(max(probe.PeriodSeconds, 1)) * time.Second
	var successes, failures int32
	for said, was := false, false; ; {
		if get(ctx, of, probe, l) {
			successes, failures = successes+1, 0
		} else {
			successes, failures = 0, failures+1
		}
		if ctx.Err() != nil {
			return false
		}
		ok := successes >= max(probe.SuccessThreshold, 1)
		if (ok || failures >= max(probe.FailureThreshold, 1)) && (!said || ok != was) {
			said, was = true, ok
			if !next(ok) {
				return ok
			}
		}
		if !sleep(ctx, period) {
			return was
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// get makes a probe once. A kubelet takes each status from 200 to 399 for a success.
func get(ctx context.Context, of *corev1.Container, probe *corev1.Probe, l Listener) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(probe.TimeoutSeconds, 1))*time.Second)
	defer cancel()
	port := probe.HTTPGet.Port.IntVal
	if probe.HTTPGet.Port.Type == intstr.String {
		for _, named := range of.Ports {
			if named.Name == probe.HTTPGet.Port.StrVal {
				port = named.ContainerPort
			}
		}
	}
	at := l.At(port)
	if at == "" {
		return false
	}
	url := fmt.Sprintf("http://%s/%s", at, strings.TrimPrefix(probe.HTTPGet.Path, "/"))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	request.Header.Set("User-Agent", "kube-probe/standin")
	response, err := probeClient.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode >= 200 && response.StatusCode < 400
}

// probeClient keeps no connection: the next probe may find another process at the same port.
var probeClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// runs says in the status that a container runs.
func (n *Node) runs(p *nodePod, restarts int32, began metav1.Time, started, ready bool) {
	fault := PodFault("")
	if !ready {
		fault = NeverReady
	}
	status := StatusOf(p.pod, fault)
	container := &status.ContainerStatuses[0]
	container.RestartCount, container.Started = restarts, &started
	container.State.Running.StartedAt = began
	n.setStatus(p, &status)
}
