//go:build e2e && soak

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestSoakNATSDies switches away from a NATS that holds events and is killed again and again, from
// one whose volume is away for a while, and from one whose volume does not return. What was
// accepted is lost only in the last case, by the command that the status names.
func TestSoakNATSDies(t *testing.T) {
	s := startSwitching(t, light)
	s.moreVolumes(t, 5)
	s.accepted(t, 500)

	s.backlog(t)
	s.prober.Step("NATS is killed again and again")
	killing, stop := context.WithCancel(t.Context())
	kills := make(chan int)
	go func() {
		n := 0
		defer func() { kills <- n }()
		for killing.Err() == nil {
			if s.killPod(killing, "nats") == nil {
				n++
			}
			select {
			case <-killing.Done():
			case <-time.After(4 * time.Second):
			}
		}
	}()
	s.want(t, "EventMesh")
	s.moved(t)
	s.dies("")
	s.accepted(t, 1000)
	stop()
	t.Logf("the mesh has taken over from NATS, which was killed %d times", <-kills)
	s.switched(t, "EventMesh", 5*time.Minute)
	s.to(t, "NATS")
	s.accepted(t, 500)

	disk := s.gone(t)
	if err := os.Rename(disk+".gone", disk); err != nil {
		t.Fatal(err)
	}
	s.kill(t, "nats") // the kubelet would wait longer and longer between two tries
	s.switched(t, "EventMesh", 5*time.Minute)
	s.nothingLost(t)

	s.send(t)
	s.to(t, "NATS")
	s.accepted(t, 500)
	lost := len(s.prober.Report().Missing)
	s.gone(t)
	command := s.message(t)
	if _, after, ok := strings.Cut(command, "To remove it nevertheless: "); ok {
		command = after
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", command)
	cmd.Env = []string{"KUBECONFIG=" + s.Kubeconfig, "HOME=" + t.TempDir(), "PATH=" + filepath.Dir(s.kubectl) + ":" + os.Getenv("PATH")}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	s.switched(t, "EventMesh", 5*time.Minute)
	s.accepted(t, 500)
	s.stop()
	poll.Until(t, time.Minute, "what the mesh accepted arrives", func(context.Context) error {
		for _, e := range s.prober.Report().Missing {
			if e.Step == "without NATS" {
				return fmt.Errorf("%s did not arrive", &e)
			}
		}
		return nil
	})
	r := s.prober.Report()
	t.Logf("removed by force with %d events; before, %d were on their way:\n%s", len(r.Missing), lost, r)
	if len(r.Missing) == 0 {
		t.Error("NATS held no event when it was removed by force, so the test shows nothing")
	}
	s.do(t, "", "-n", "shop", "delete", "subscriptions.eventing.kyma-project.io", "--all", "--timeout=60s")
	s.deleted(t, 0)
}

// dies makes the sink with a path refuse everything; "": none.
func (s *switching) dies(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = path
}

// backlog makes NATS hold events, of a sink that refuses them.
func (s *switching) backlog(t *testing.T) {
	t.Helper()
	s.dies("/03")
	s.prober.Step("a sink refuses")
	s.accepted(t, 500)
}

// moved waits until events go to the mesh.
func (s *switching) moved(t *testing.T) {
	t.Helper()
	poll.Until(t, 5*time.Minute, "events go to the mesh", func(ctx context.Context) error {
		u, err := s.dynamic.Resource(eventings).Namespace(s.namespace).Get(ctx, s.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if active, _, _ := unstructured.NestedString(u.Object, "status", "activeBackend"); active != "EventMesh" {
			return fmt.Errorf("%v", u.Object["status"])
		}
		return nil
	})
}

// message is what the status says about the switch.
func (s *switching) message(t *testing.T) string {
	t.Helper()
	u, err := s.dynamic.Resource(eventings).Namespace(s.namespace).Get(t.Context(), s.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	message, _, _ := unstructured.NestedString(u.Object, "status", "switch", "message")
	return message
}

// gone removes the volume of a NATS that holds events, and switches away from it: the mesh takes
// over, the status says that NATS may hold events, and nothing of NATS is removed. It returns the
// directory of the volume, which has the suffix .gone now.
func (s *switching) gone(t *testing.T) (directory string) {
	t.Helper()
	s.backlog(t)
	const name = "data-eventing-nats-0"
	claim, err := s.client.CoreV1().PersistentVolumeClaims(eventingNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	directory = filepath.Join(s.Dir, claim.Spec.VolumeName)
	if err := os.Rename(directory, directory+".gone"); err != nil {
		t.Fatal(err)
	}
	s.prober.Step("NATS dies")
	s.kill(t, "nats")
	began := time.Now()
	s.want(t, "EventMesh")
	s.moved(t)
	t.Logf("the mesh has taken over from a dead NATS in %.0f s", time.Since(began).Seconds())
	s.dies("")
	s.prober.Step("without NATS")
	s.accepted(t, 500)
	poll.Until(t, time.Minute, "the status says that NATS may hold events", func(ctx context.Context) error {
		u, err := s.dynamic.Resource(eventings).Namespace(s.namespace).Get(ctx, s.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		state, _, _ := unstructured.NestedString(u.Object, "status", "state")
		if message := s.message(t); state != "Warning" || !strings.Contains(message, "NATS may hold events") || !strings.Contains(message, "To remove it nevertheless: ") {
			return fmt.Errorf("%v", u.Object["status"])
		}
		return nil
	})
	t.Logf("the status says: %s", s.message(t))
	select {
	case <-time.After(time.Minute): // longer than what a drained NATS stays
	case <-t.Context().Done():
	}
	now, err := s.client.CoreV1().PersistentVolumeClaims(eventingNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || now.UID != claim.UID || now.DeletionTimestamp != nil {
		t.Fatalf("the volume of NATS was removed: %v, %v", now, err)
	}
	set, err := s.client.AppsV1().StatefulSets(eventingNamespace).Get(t.Context(), backend.Names(backend.DefaultPrefix).NATS(), metav1.GetOptions{})
	if err != nil || set.DeletionTimestamp != nil {
		t.Fatalf("NATS was removed: %v, %v", set, err)
	}
	return directory
}
