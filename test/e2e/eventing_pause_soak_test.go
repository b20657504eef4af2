//go:build e2e && soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/fence"
	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
	"github.com/kyma-project/eventmesh-migration/test/measure"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestSoakPausedOperator pauses the operator that leads while a write of a switch is under way.
// Another operator finishes the switch. Then the write reaches the API server, and the paused
// operator wakes up: neither may delete anything, and the operator ends.
func TestSoakPausedOperator(t *testing.T) {
	rounds := measure.Number(t, "EVENTING_SOAK_PAUSES", 10)
	o := startOutside(t)
	o.accepted(t, 500)
	for i := range rounds {
		to := []string{"EventMesh", "NATS"}[i%2]
		n := 3 + 4*i // in the end, deletions
		o.prober.Step(fmt.Sprintf("to %s, paused at write %d", to, n))
		o.paused(t, to, n)
		o.only(t, to)
		o.accepted(t, 200)
	}
	o.nothingLost(t)
}

func (o *outside) paused(t *testing.T, to string, n int) {
	t.Helper()
	o.released(t)
	nats := o.cut(t, 0)
	defer nats.Close()
	proxy, kubeconfig := o.proxy(t)
	defer proxy.Close()
	writes := 0 // Hold asks for one request at a time
	hold := proxy.Hold(func(r faultproxy.Request) bool {
		if r.Writes() && acts(r) {
			writes++
		}
		return r.Writes() && writes >= n
	})
	o.want(t, to)
	leader := o.operator(t, kubeconfig, nats)
	var at faultproxy.Request
	poll.Until(t, 5*time.Minute, fmt.Sprintf("the operator makes write %d, or all is done", n), func(ctx context.Context) error {
		select {
		case <-hold.Arrived():
			at = hold.Requests()[0]
			return nil
		default:
			return o.isSwitched(ctx, to)
		}
	})
	if at.Write == 0 {
		leader.Kill()
		t.Logf("to %s: done before write %d", to, n)
		return
	}
	leader.Signal(syscall.SIGSTOP)
	began := time.Now()
	plain, kubeconfig := o.proxy(t)
	defer plain.Close()
	second := o.supervise(t, kubeconfig, nats)
	defer second.Kill()
	o.switched(t, to, 5*time.Minute)
	took := time.Since(began)
	if took < fence.LeaseDuration {
		t.Errorf("the second operator took over after %s, before the Lease ended", took)
	}
	hold.Release()
	late := 0
	if err := proxy.Wait(t.Context(), func(all []faultproxy.Entry) bool {
		i := slices.IndexFunc(all, func(e faultproxy.Entry) bool { return e.Write == at.Write })
		late = all[i].Forwarded
		return all[i].Done
	}); err != nil {
		t.Fatal(err)
	}
	leader.Signal(syscall.SIGCONT)
	if code := leader.Wait(); code != 1 {
		t.Errorf("an operator that another one has replaced ends with %d", code)
	}
	t.Logf("to %s: paused at write %d, %s: switched in %.0f s; then the API server answered %d", to, n, at, took.Seconds(), late)
	if err := poll.For(t.Context(), 30*time.Second, "the Eventing is as the second operator left it", func(ctx context.Context) error { return o.isSwitched(ctx, to) }); err != nil {
		t.Error(err)
	}
	if at.Verb == "delete" && late < http.StatusBadRequest {
		t.Errorf("what was deleted late is %s", at)
	}
}

// TestSoakLateChange pauses the operator while its change that closes the stream is under way to
// NATS, which has no versions. The spec is changed back, and another operator goes back to NATS.
// Then the change arrives: the other operator opens the stream again, and no event is lost.
func TestSoakLateChange(t *testing.T) {
	const changes = 400 // bytes: a request that changes the stream has more, and one that reads it has fewer
	o := startOutside(t)
	o.accepted(t, 500)
	o.released(t)
	nats, err := faultproxy.StartCutAt(o.nats, func(_ int64, size int) bool { return size > changes && o.log.count(`"close stream`) > 0 })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nats.Close)
	_, kubeconfig := o.proxy(t)
	leader := o.operator(t, kubeconfig, nats)
	o.prober.Step("to EventMesh, paused while the stream is closed")
	o.want(t, "EventMesh")
	poll.Until(t, 5*time.Minute, "the operator closes the stream", func(context.Context) error {
		select {
		case <-nats.Held():
			return nil
		default:
			return fmt.Errorf("it has sent %d pieces of data", nats.Sent())
		}
	})
	leader.Signal(syscall.SIGSTOP)
	o.prober.Step("back to NATS")
	o.want(t, "NATS")
	straight := o.cut(t, 0)
	_, kubeconfig = o.proxy(t)
	second := o.supervise(t, kubeconfig, straight)
	defer second.Kill()
	o.switched(t, "NATS", 5*time.Minute)
	o.accepted(t, 200)

	o.prober.Step("the change arrives")
	opened := o.log.count(`"open stream`)
	began := time.Now()
	nats.Release()
	poll.Until(t, time.Minute, "the second operator opens the stream that was closed late", func(context.Context) error {
		if o.log.count(`"open stream`) == opened {
			return errors.New("it has not")
		}
		return nil
	})
	t.Logf("opened again after %.1f s", time.Since(began).Seconds())
	leader.Signal(syscall.SIGCONT)
	if code := leader.Wait(); code != 1 {
		t.Errorf("an operator that another one has replaced ends with %d", code)
	}
	o.accepted(t, 500)
	if err := o.isSwitched(t.Context(), "NATS"); err != nil {
		t.Error(err)
	}
	o.only(t, "NATS")
	o.nothingLost(t)
}

// TestSoakPausedController pauses the process of the controller that leads, in switches to both
// backends, for longer than its Lease is valid.
func TestSoakPausedController(t *testing.T) {
	s := startSwitching(t, light)
	s.moreVolumes(t, 5)
	s.accepted(t, 500)
	for i, to := range []string{"EventMesh", "NATS", "EventMesh", "NATS"} {
		s.prober.Step("the controller is paused, to " + to)
		began := time.Now()
		s.want(t, to)
		select { // in each switch a bit later
		case <-time.After(time.Duration(1+8*i) * time.Second):
		case <-t.Context().Done():
		}
		pid, pod := s.leadingController(t)
		signal := func(what syscall.Signal) {
			if err := syscall.Kill(pid, what); err != nil {
				t.Fatal(err)
			}
		}
		signal(syscall.SIGSTOP)
		select {
		case <-time.After(fence.LeaseDuration + 5*time.Second):
		case <-t.Context().Done():
		}
		signal(syscall.SIGCONT)
		s.switched(t, to, 5*time.Minute)
		t.Logf("to %s in %.0f s, with %s paused", to, time.Since(began).Seconds(), pod)
		s.podsReady(t, "controller", 2)
		s.accepted(t, 500)
	}
	s.nothingLost(t)
}

// leadingController is the process of the controller that holds the Lease. The processes of pods
// are those of this machine.
func (s *switching) leadingController(t *testing.T) (pid int, pod string) {
	t.Helper()
	poll.Until(t, time.Minute, "a controller leads, and its process runs", func(ctx context.Context) error {
		lease, err := s.client.CoordinationV1().Leases(eventingNamespace).Get(ctx, backend.Names(backend.DefaultPrefix).ControllerLease(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		pod, _, _ = strings.Cut(*lease.Spec.HolderIdentity, "_")
		pid, err = processOf(pod, "/eventing-controller")
		return err
	})
	return pid, pod
}

// processOf is the process of a program in a pod: the name of the pod is that of its host.
func processOf(pod, program string) (int, error) {
	return findProcess(program+" in Pod "+pod, func(proc string, command []string) bool {
		if !strings.HasSuffix(command[0], program) {
			return false
		}
		environment, err := os.ReadFile(filepath.Join(proc, "environ"))
		return err == nil && slices.Contains(strings.Split(string(environment), "\x00"), "HOSTNAME="+pod)
	})
}

// findProcess looks for a process of this machine, by its directory in /proc and its command.
func findProcess(what string, is func(proc string, command []string) bool) (int, error) {
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	for _, path := range commands {
		command, err := os.ReadFile(path)
		if err == nil && is(filepath.Dir(path), strings.Split(string(command), "\x00")) {
			return strconv.Atoi(filepath.Base(filepath.Dir(path)))
		}
	}
	return 0, fmt.Errorf("no process of this machine is %s", what)
}
