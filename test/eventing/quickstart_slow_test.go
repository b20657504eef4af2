//go:build slow

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

const quickStart = "../../docs/eventing/quick-start.md"

var (
	fenced = regexp.MustCompile("(?s)```(bash|text)\n(.*?)```\n")
	// notHere are commands that need Docker, or pods with a log.
	notHere = regexp.MustCompile(`^(kind |make images |kubectl .*\b(port-forward|logs|rollout status) ?|kubectl create namespace kyma-system$)`)
)

// laptop is where the sink runs: in the place of its pod.
type laptop struct {
	t      *testing.T
	s      *show
	script string
	sink   *process.Process
	// printed is the file of what the sinks have printed, one after the other.
	printed *os.File
}

// TestQuickStart runs the commands of the tutorial that need neither Docker nor the log of a pod.
// The program of the sink runs while its Deployment wants a pod, and prints what the page shows.
func TestQuickStart(t *testing.T) {
	needsKubectl(t)
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed, and the sink needs it")
	}
	if l, err := net.Listen("tcp", "localhost:8080"); err != nil {
		t.Skipf("the sink needs port 8080: %v", err)
	} else {
		_ = l.Close()
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	h, err := helm.New(t.Context(), root, 4)
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(h.Binary(), filepath.Join(bin, "helm")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	var screen bytes.Buffer
	s := &show{options: options{dir: t.TempDir(), processes: true, out: &screen}}
	s.sinks = newSinks(s.say)
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(quickStart)
	if err != nil {
		t.Fatal(err)
	}
	printed, err := os.Create(filepath.Join(t.TempDir(), "printed"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = printed.Close() })
	l := &laptop{t: t, s: s, script: sinkScript(t), printed: printed}
	began, run := time.Now(), 0
	for _, block := range fenced.FindAllStringSubmatch(string(page), -1) {
		if block[1] == "text" {
			l.sees(block[2])
			continue
		}
		for line := range strings.Lines(block[2]) {
			if line = strings.TrimSpace(line); notHere.MatchString(line) {
				t.Logf("not run: %s", line)
				continue
			}
			l.types(line)
			run++
		}
	}
	if took := time.Since(began); run < 12 || took > 3*time.Minute {
		t.Errorf("%d commands took %s", run, took)
	}
}

// sinkScript is the program of the sink.
func sinkScript(t *testing.T) string {
	t.Helper()
	file, err := os.Open("../../charts/eventing-manager/samples/sink.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var d appsv1.Deployment
	if err := utilyaml.NewYAMLOrJSONDecoder(file, 4096).Decode(&d); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	command := d.Spec.Template.Spec.Containers[0].Command
	if len(command) != 4 || command[0] != "python3" {
		t.Fatalf("the command of the sink is %q", command)
	}
	return command[3]
}

// types runs a command, and the sink as it is wanted then.
func (l *laptop) types(command string) {
	l.t.Helper()
	out, err := l.s.shell(l.t.Context(), strings.ReplaceAll(command, "http://localhost:8888", l.s.publisher))
	l.t.Logf("$ %s\n%s", command, out)
	if err != nil {
		l.t.Fatal(err)
	}
	if strings.HasPrefix(command, "curl ") && !strings.Contains(out, " 204 ") {
		l.t.Errorf("the publisher answers %s", out)
	}
	if strings.HasSuffix(command, " get subscriptions.eventing.kyma-project.io") && !strings.Contains(out, "False") {
		l.t.Errorf("the sink is down, and the Subscription is %s", out)
	}
	d, err := l.s.cluster.Core.AppsV1().Deployments(namespace).Get(l.t.Context(), "orders", metav1.GetOptions{})
	wanted := err == nil && (d.Spec.Replicas == nil || *d.Spec.Replicas > 0)
	switch {
	case wanted && l.sink == nil:
		l.sink = process.Start(l.t, process.Program{Binary: "python3", Args: []string{"-u", "-c", l.script}, Env: os.Environ(), Stdout: l.printed, Limit: 5 * time.Minute})
	case !wanted && l.sink != nil:
		l.sink.Kill()
		l.sink.Wait()
		l.sink = nil
	}
}

// sees waits until the sink has printed a text.
func (l *laptop) sees(text string) {
	l.t.Helper()
	poll.Until(l.t, time.Minute, fmt.Sprintf("the sink has printed %q", text), func(context.Context) error {
		printed, err := os.ReadFile(l.printed.Name())
		if err == nil && !strings.Contains(string(printed), text) {
			err = fmt.Errorf("it has printed %q", printed)
		}
		return err
	})
}
