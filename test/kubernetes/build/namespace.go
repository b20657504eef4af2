package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The commands by which the program runs itself inside the node's namespaces.
const (
	cmdNodeInit = "node-init"
	cmdNodeUp   = "node-up"
)

// endGrace is what a cluster has to end by itself.
const endGrace = 8 * time.Second

// link numbers the pair of virtual interfaces between the machine and the node's namespaces, 0 to
// 255, plus 1 so that zero means none. The addresses are private ones: registries at such are
// spoken to in plain HTTP.
type link int

func (l link) host() string   { return fmt.Sprintf("10.199.%d.1", int(l)-1) }
func (l link) node() string   { return fmt.Sprintf("10.199.%d.2", int(l)-1) }
func (l link) device() string { return fmt.Sprintf("evmesh%d", int(l)-1) }
func (l link) cgroup() string { return "/" + l.device() }
func (l link) String() string { return strconv.Itoa(int(l)) }
func (l *link) Set(s string) error {
	n, err := strconv.Atoi(s)
	*l = link(n)
	return err
}

// upNode runs the cluster in namespaces of its own and cleans up what the kernel does not. What
// needs the machine's network and file system is done before.
func upNode(ctx context.Context, o upOptions, stdin io.Reader, stdout, stderr io.Writer) error {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	o.dir = dir
	if _, err := os.Stat(filepath.Join(dir, "etcd")); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot start a node in %s: it holds the data of another cluster, whose addresses were others", dir)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel(errStdinClosed)
	}()
	restart := make(chan os.Signal, 1)
	signal.Notify(restart, syscall.SIGHUP)
	defer signal.Stop(restart)

	if _, err := prepare(ctx, o, stderr); err != nil {
		return ended(ctx, err, stderr)
	}

	// The init process waits at one pipe until its network is there, and its child ends when the
	// other does.
	connected, connect, err := os.Pipe()
	if err != nil {
		return err
	}
	defer connect.Close()
	cmd := exec.Command("/proc/self/exe", cmdNodeInit, "--dir", dir, "--controllers", o.controllers,
		fmt.Sprintf("--node=%t", o.node), fmt.Sprintf("--knative=%t", o.knative), fmt.Sprintf("--former-knative=%t", o.formerKnative))
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.ExtraFiles = []*os.File{connected}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC,
		Setpgid:    true,
		Pdeathsig:  syscall.SIGKILL,
	}
	alive, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer alive.Close()
	err = cmd.Start()
	_ = connected.Close()
	if err != nil {
		return fmt.Errorf("cannot make namespaces: %w", err)
	}
	exited := make(chan struct{})
	var waited error
	go func() {
		defer close(exited)
		waited = cmd.Wait()
	}()
	end := func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-exited:
			return waited
		case <-time.After(endGrace):
			// The whole of its PID namespace dies with it.
			_ = cmd.Process.Kill()
			<-exited
			return errors.New("the cluster did not end by itself")
		}
	}

	l, err := plug(ctx, cmd.Process.Pid)
	if err != nil {
		_ = cmd.Process.Kill()
		<-exited
		return ended(ctx, err, stderr)
	}
	defer unplug(l, stderr)
	if _, err := fmt.Fprintln(connect, l); err != nil {
		return errors.Join(fmt.Errorf("cannot start the cluster: %w", err), end())
	}
	for {
		select {
		case <-exited:
			if waited != nil {
				// It has said why.
				return fmt.Errorf("the cluster ended: %w", waited)
			}
			return nil
		case <-restart:
			_ = cmd.Process.Signal(syscall.SIGHUP)
		case <-ctx.Done():
			return end()
		}
	}
}

// checkNode installs what is missing, and says what cannot be had here.
func checkNode(ctx context.Context, stderr io.Writer) error {
	if err := installPackages(ctx, stderr); err != nil {
		return err
	}
	// Inside of most containers root is not allowed to do that.
	cmd := exec.CommandContext(ctx, "ip", "link", "add", "probe", "type", "veth", "peer", "name", "eborp")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot run a node: namespaces and interfaces in them cannot be made: %w %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// plug connects the network namespace of a process with the machine's.
func plug(ctx context.Context, pid int) (link, error) {
	for l := link(1); l <= 256; l++ {
		_, err := ip(ctx, "link", "add", l.device(), "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(pid))
		if err != nil {
			// Who made the interface has the number.
			if strings.Contains(err.Error(), "File exists") {
				continue
			}
			return 0, fmt.Errorf("cannot connect the node: %w", err)
		}
		// What a cluster left here that was killed with its launcher: nobody else can have the
		// number.
		if err := removeCgroups(ctx, l); err != nil {
			return 0, err
		}
		for _, args := range [][]string{
			{"address", "add", l.host() + "/30", "dev", l.device()},
			{"link", "set", l.device(), "up"},
		} {
			if _, err := ip(ctx, args...); err != nil {
				return 0, fmt.Errorf("cannot connect the node: %w", err)
			}
		}
		return l, eachCgroup(l, func(path string) error { return os.MkdirAll(path, 0o755) })
	}
	return 0, errors.New("cannot connect the node: there are 256 already")
}

// unplug removes what outlives the namespaces. The kernel removes the interfaces too, but a moment
// later.
func unplug(l link, stderr io.Writer) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := ip(ctx, "link", "delete", l.device()); err != nil && !strings.Contains(err.Error(), "Cannot find device") {
		fmt.Fprintf(stderr, "cluster: cannot remove the node's network: %v\n", err)
	}
	if err := removeCgroups(ctx, l); err != nil {
		fmt.Fprintf(stderr, "cluster: %v\n", err)
	}
}

func ip(ctx context.Context, args ...string) (string, error) {
	return output(ctx, "", "ip", args...)
}

// eachCgroup calls do with the cluster's directory in every hierarchy.
func eachCgroup(l link, do func(path string) error) error {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("cannot find the cgroups: %w", err)
	}
	defer mounts.Close()
	for scanner := bufio.NewScanner(mounts); scanner.Scan(); {
		// "36 35 0:30 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup none rw,cpu"
		fields := strings.Fields(scanner.Text())
		i := slices.Index(fields, "-")
		if i < 5 || i+1 >= len(fields) || fields[i+1] != "cgroup" && fields[i+1] != "cgroup2" {
			continue
		}
		if err := do(fields[4] + l.cgroup()); err != nil {
			return fmt.Errorf("cannot use the cgroups: %w", err)
		}
	}
	return nil
}

// removeCgroups removes the cluster's cgroups, the innermost first. The kernel counts a process as
// a member for a moment after its end.
func removeCgroups(ctx context.Context, l link) error {
	for {
		err := eachCgroup(l, func(path string) error {
			var dirs []string
			err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, path)
				}
				return err
			})
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			for _, dir := range slices.Backward(dirs) {
				if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("rmdir %s: %w", dir, err)
				}
			}
			return nil
		})
		if !errors.Is(err, syscall.EBUSY) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// nodeInit is the first process of the node's PID namespace. It gives the namespaces their content,
// starts the cluster and adopts and buries what the cluster's processes leave behind: a container's
// shim outlives the process that started it.
func nodeInit(args []string) error {
	var l link
	if _, err := fmt.Fscanln(os.NewFile(3, "connected"), &l); err != nil {
		// The launcher gave up, and has said why.
		return fmt.Errorf("no network: %w", err)
	}
	ctx := context.Background()
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"address", "add", l.node() + "/30", "dev", "eth0"},
		{"link", "set", "eth0", "up"},
		// The kubelet wants a default route, and what a pod asks of the outside is to fail, not to
		// hang.
		{"route", "add", "default", "via", l.host()},
	} {
		if _, err := ip(ctx, args...); err != nil {
			return fmt.Errorf("cannot connect the node: %w", err)
		}
	}
	var dir string
	if i := slices.Index(args, "--dir"); i >= 0 && i+1 < len(args) {
		dir = args[i+1]
	}
	if err := mountNode(dir); err != nil {
		return err
	}

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	child, err := syscall.ForkExec("/proc/self/exe", slices.Concat([]string{"cluster", cmdNodeUp, "--link", l.String()}, args), &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return fmt.Errorf("cannot start the cluster: %w", err)
	}
	go func() {
		for s := range signals {
			_ = syscall.Kill(child, s.(syscall.Signal))
		}
	}()
	for {
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, 0, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return fmt.Errorf("cannot wait for the cluster: %w", err)
		case pid == child && status.Signaled():
			os.Exit(128 + int(status.Signal()))
		case pid == child:
			os.Exit(status.ExitStatus())
		}
	}
}

// tunables are what the kubelet wants of the machine's kernel. In the node's mount namespace they
// are files that say so already: these settings are in no namespace, and the machine is not ours to
// tune.
var tunables = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// mountNode hides what the node's programs would share with the machine's, at paths that cannot be
// configured.
func mountNode(dir string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot make mounts private: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("cannot mount /proc: %w", err)
	}
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("cannot mount /run: %w", err)
	}
	for path, name := range map[string]string{"/var/lib/kubelet": "kubelet", "/var/lib/cni": "cni", "/var/log": "log"} {
		source := filepath.Join(dir, name)
		for _, dir := range []string{path, source} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("cannot mount %s: %w", path, err)
			}
		}
		if err := syscall.Mount(source, path, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("cannot mount %s: %w", path, err)
		}
	}
	for name, value := range tunables {
		source := filepath.Join(dir, "sys-"+filepath.Base(name))
		if err := os.WriteFile(source, []byte(value+"\n"), 0o644); err != nil {
			return fmt.Errorf("cannot write %s: %w", source, err)
		}
		if err := syscall.Mount(source, "/proc/sys/"+name, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("cannot mount /proc/sys/%s: %w", name, err)
		}
	}
	return nil
}
