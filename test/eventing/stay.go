package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/test/eventingcluster"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// temporary is how the directory of a cluster that stays begins.
const temporary = "eventmesh-eventing-"

// running is what -stop has to know. It is in a file, since the process may have crashed.
type running struct {
	PID int `json:"pid"`
	// Started tells the process from another one that has its number later.
	Started string `json:"started"`
	// Dir has all files of the cluster. It is TMPDIR of each process.
	Dir string `json:"dir"`
}

func (o options) state() string { return filepath.Join(o.dir, "running.json") }

// stay installs eventing, says what to try, and waits until somebody ends it.
func stay(ctx context.Context, o options) (err error) {
	if err := o.note(); err != nil {
		return err
	}
	s := &show{options: o}
	s.sinks = newSinks(s.say)
	defer func() {
		switch {
		case ctx.Err() != nil: // Ctrl-C is how it ends, at any time
			err = nil
		case err != nil:
			s.explain(ctx)
		}
		err = errors.Join(err, s.close(), o.forget())
	}()
	if err := s.install(ctx, "Retain"); err != nil {
		return err
	}
	if err := s.write("subscription.yaml", s.subscription("orders", "order.created.v1")); err != nil {
		return err
	}
	third := "# 3. Change the backend to Knative Eventing. With NATS in the place of EventMesh, it is changed back.\n" + s.switchTo(operatorv1alpha1.EventMesh)
	if s.processes {
		third = "# 3. See the state. The switch of the backend needs a machine with a node.\nkubectl -n " + eventingcluster.Namespace + " get " + eventings + ",pods"
	}
	s.say(`
Eventing is ready. Paste these lines into another terminal:

export KUBECONFIG=%s

# 1. Subscribe to orders. The sink prints what it gets on this screen.
kubectl apply -f %s && kubectl -n %s wait --for=jsonpath='{.status.ready}'=true --timeout=60s %s/orders

# 2. Publish an order.
%s

%s

Ctrl-C ends the cluster. So does "make stop" in another terminal.`,
		s.kubeconfig(), filepath.Join(s.dir, "subscription.yaml"), namespace, subscriptions, s.curl(), third)
	<-ctx.Done()
	return nil
}

// note writes down that this process runs, and lets all files of the cluster be in one directory.
func (o options) note() error {
	if r, err := o.read(); err != nil {
		return err
	} else if r != nil && r.alive() {
		return fmt.Errorf("it runs already, as process %d. End it first: make stop", r.PID)
	}
	// In the usual place, not in o.dir: the paths of sockets may not be long.
	dir, err := os.MkdirTemp("", temporary)
	if err != nil {
		return err
	}
	r := running{PID: os.Getpid(), Dir: dir}
	if r.Started, err = startOf(r.PID); err != nil {
		return err
	}
	raw, err := json.Marshal(r)
	if err == nil {
		err = os.MkdirAll(o.dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(o.state(), raw, 0o600)
	}
	if err != nil {
		return err
	}
	return os.Setenv("TMPDIR", dir)
}

// forget removes what is left when nothing runs any more.
func (o options) forget() error {
	r, err := o.read()
	if err != nil || r == nil {
		return err
	}
	if strings.HasPrefix(filepath.Base(r.Dir), temporary) { // nobody has edited the file
		err = os.RemoveAll(r.Dir)
	}
	for _, name := range []string{"kubeconfig", "eventing-manager.yaml", "eventing.yaml", "sinks.yaml", "subscription.yaml", filepath.Base(o.state())} {
		if failed := os.Remove(filepath.Join(o.dir, name)); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// read is nil if nothing has been left.
func (o options) read() (*running, error) {
	raw, err := os.ReadFile(o.state())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	r := &running{}
	if err == nil {
		err = json.Unmarshal(raw, r)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s, which says what runs: %w", o.state(), err)
	}
	return r, nil
}

// end ends what stay has started, and removes what it has left.
func end(ctx context.Context, o options) error {
	r, err := o.read()
	if err != nil {
		return err
	}
	if r == nil {
		fmt.Fprintln(o.out, "Nothing runs.")
		return nil
	}
	if r.alive() {
		if err := syscall.Kill(r.PID, syscall.SIGTERM); err != nil {
			return fmt.Errorf("cannot end process %d: %w", r.PID, err)
		}
		if err := poll.For(ctx, time.Minute, fmt.Sprintf("process %d has ended", r.PID), func(context.Context) error {
			if r.alive() {
				return errors.New("it runs")
			}
			return nil
		}); err != nil && ctx.Err() != nil {
			return err
		}
		if r.alive() {
			_ = syscall.Kill(r.PID, syscall.SIGKILL)
		}
	}
	// The processes that it started end with it, after a moment.
	gone := func(context.Context) error {
		if left := r.left(); len(left) > 0 {
			return fmt.Errorf("processes %v run", left)
		}
		return nil
	}
	if err := poll.For(ctx, 30*time.Second, "all processes have ended", gone); err != nil {
		for _, pid := range r.left() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err := poll.For(ctx, 30*time.Second, "all processes are killed", gone); err != nil {
			return err
		}
	}
	if err := o.forget(); err != nil {
		return err
	}
	fmt.Fprintln(o.out, "The cluster is stopped, and its files are removed.")
	return nil
}

// alive says whether the process runs, and is the same one.
func (r *running) alive() bool {
	started, err := startOf(r.PID)
	return err == nil && started == r.Started
}

// startOf is when a process was started. A process that is over and was not waited for counts as
// gone.
func startOf(pid int) (string, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The name of the program, in parentheses, may have spaces in it.
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return "", fs.ErrNotExist
	}
	return fields[19], nil
}

// left are the processes of the cluster: those with its directory in their arguments or in their
// environment.
func (r *running) left() (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		for _, file := range []string{"cmdline", "environ"} {
			raw, err := os.ReadFile(filepath.Join("/proc", entry.Name(), file))
			if err == nil && bytes.Contains(raw, []byte(r.Dir)) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}
