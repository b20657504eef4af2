// Package natsserver runs the program of the image nats-server as a process on loopback.
package natsserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// build returns the program of the image. Go builds and caches it, without the race detector:
// nearly all of it is not ours.
func build(ctx context.Context) (string, error) {
	return process.BuildUnraced(ctx, "./cmd/internal/nats-server")
}

// Server is a process.
type Server struct {
	// URL is where clients connect: tls://127.0.0.1:<port>.
	URL string
	// Monitor is the base of the monitoring endpoint.
	Monitor string

	dir    string
	name   string
	cmd    *exec.Cmd
	exited chan struct{}
	output bytes.Buffer
	t      testing.TB
}

// Start starts a server with a configuration as the chart renders it, and with the certificate of a
// server. Paths of the image become those of a directory of the test. It is killed at the end of
// the test.
func Start(t testing.TB, config string, tls map[string][]byte) *Server {
	t.Helper()
	return StartOn(t, 0, config, tls)
}

// StartOn is Start with a volume of a size, in bytes; 0 is a directory. A test that may not mount
// one is skipped.
func StartOn(t testing.TB, size int64, config string, tls map[string][]byte) *Server {
	t.Helper()
	s := prepare(t, "nats-0", config, tls, func(s *Server) { s.mount(size) })
	s.Launch()
	return s
}

// StartOnDisk is StartOn with a volume that can fail or hang: see FailDisk and HangDisk.
func StartOnDisk(t testing.TB, size int64, config string, tls map[string][]byte) *Server {
	t.Helper()
	s := prepare(t, "nats-0", config, tls, func(s *Server) { s.format(size) })
	s.Launch()
	return s
}

// StartCluster starts n servers with the configuration of a cluster, as the chart renders it, each
// as StartOn does. They reach each other as localhost, which the certificate has to name.
func StartCluster(t testing.TB, n int, size int64, config string, tls map[string][]byte) []*Server {
	t.Helper()
	return startCluster(t, n, config, tls, func(s *Server) { s.mount(size) })
}

// StartClusterOnDisks is StartCluster with volumes that can fail or hang, as StartOnDisk has one.
func StartClusterOnDisks(t testing.TB, n int, size int64, config string, tls map[string][]byte) []*Server {
	t.Helper()
	return startCluster(t, n, config, tls, func(s *Server) { s.format(size) })
}

func startCluster(t testing.TB, n int, config string, tls map[string][]byte, volume func(*Server)) []*Server {
	t.Helper()
	ports, err := process.FreePorts(n)
	if err != nil {
		t.Fatal(err)
	}
	config = route.ReplaceAllStringFunc(config, func(text string) string {
		i, err := strconv.Atoi(route.FindStringSubmatch(text)[1])
		if err != nil || i >= n {
			t.Fatalf("the configuration has the route %s, and there are %d servers", text, n)
		}
		return fmt.Sprintf("tls://localhost:%d", ports[i])
	})
	var all []*Server
	for i := range n {
		own := strings.Replace(config, "port: 6222", fmt.Sprintf("host: 127.0.0.1\n  port: %d", ports[i]), 1)
		all = append(all, prepare(t, fmt.Sprintf("nats-%d", i), own, tls, volume))
	}
	for _, s := range all {
		s.Launch()
	}
	return all
}

// route is one of a cluster, with the number of its server.
var route = regexp.MustCompile(`tls://\S+-(\d+)\.\S+:6222`)

// prepare makes the files of a server. volume is to make its volume: it goes after the process.
func prepare(t testing.TB, name, config string, tls map[string][]byte, volume func(*Server)) *Server {
	t.Helper()
	s := &Server{dir: t.TempDir(), name: name, t: t}
	for _, dir := range []string{"tls", "run", "data"} {
		if err := os.Mkdir(filepath.Join(s.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	volume(s)
	s.Files(tls)
	s.Configure(config)
	t.Cleanup(s.Kill)
	return s
}

// Name is the server's, as NATS says it.
func (s *Server) Name() string { return s.name }

// Data is the directory of the events.
func (s *Server) Data() string { return filepath.Join(s.dir, "data") }

// Free is what the volume has left, in bytes.
func (s *Server) Free() int64 {
	s.t.Helper()
	var volume syscall.Statfs_t
	if err := syscall.Statfs(s.Data(), &volume); err != nil {
		s.t.Fatal(err)
	}
	return int64(volume.Bavail) * volume.Bsize //nolint:gosec // less than 2^63
}

// Inodes is how many the volume has in use: of files and directories.
func (s *Server) Inodes() uint64 {
	s.t.Helper()
	var volume syscall.Statfs_t
	if err := syscall.Statfs(s.Data(), &volume); err != nil {
		s.t.Fatal(err)
	}
	return volume.Files - volume.Ffree
}

// Exited is closed when the process has ended.
func (s *Server) Exited() <-chan struct{} { return s.exited }

// Files writes the certificate, its key and that of the authority.
func (s *Server) Files(tls map[string][]byte) {
	s.t.Helper()
	for name, content := range tls {
		if err := os.WriteFile(filepath.Join(s.dir, "tls", name), content, 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
}

// Configure writes the configuration. A running server reads it at a reload.
func (s *Server) Configure(config string) {
	s.t.Helper()
	config = strings.NewReplacer("/etc/nats/tls", s.dir+"/tls", "/run/nats", s.dir+"/run", "store_dir: /data", "store_dir: "+s.dir+"/data").Replace(config)
	if err := os.WriteFile(filepath.Join(s.dir, "nats.conf"), []byte(config), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// Launch starts the process, again after Kill, with the same data. The ports are the same, too.
func (s *Server) Launch() {
	s.t.Helper()
	binary, err := build(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	port, monitor := "-1", "-1"
	if s.URL != "" {
		port, monitor = portOf(s.URL), portOf(s.Monitor)
	}
	s.cmd = exec.Command(binary, "--config", filepath.Join(s.dir, "nats.conf"), "--addr", "127.0.0.1", "--port", port, "--http_port", monitor, "--ports_file_dir", s.dir)
	s.cmd.Env = append(os.Environ(), "POD_NAME="+s.name)
	s.cmd.Stdout, s.cmd.Stderr = &s.output, &s.output
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.exited = make(chan struct{})
	go func() {
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	var ports struct{ Nats, Monitoring []string }
	poll.Until(s.t, time.Minute, "nats-server listens", func(context.Context) error {
		select {
		case <-s.exited:
			return poll.Stop(errors.New("nats-server has ended"))
		default:
		}
		raw, err := os.ReadFile(filepath.Join(s.dir, fmt.Sprintf("%s_%d.ports", filepath.Base(binary), s.cmd.Process.Pid)))
		if err == nil {
			err = json.Unmarshal(raw, &ports)
		}
		if err == nil && (len(ports.Nats) == 0 || len(ports.Monitoring) == 0) {
			err = fmt.Errorf("%s", raw)
		}
		return err
	})
	s.URL, s.Monitor = "tls://127.0.0.1:"+portOf(ports.Nats[0]), "http://127.0.0.1:"+portOf(ports.Monitoring[0])
}

func portOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Port()
}

// Connect connects to a server without certificates, as anybody, until the end of the test.
func (s *Server) Connect(t testing.TB, options ...nats.Option) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect(strings.Replace(s.URL, "tls://", "nats://", 1), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// Kill ends the process at once.
func (s *Server) Kill() {
	if s.exited != nil {
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
	if s.t.Failed() {
		s.t.Logf("nats-server wrote:\n%s", &s.output)
	}
}
