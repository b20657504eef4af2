package helm

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
)

// StartTiller starts the server that Helm 2 upgrades through, with the power of the
// kubeconfig, until stop, and lets each command of h talk to it. It stores releases
// in ConfigMaps of the namespace, as in Kyma.
func (h *Helm) StartTiller(ctx context.Context, kubeconfig, namespace string) (stop func(), err error) {
	binary, err := build(ctx, h.Root, "test/helm/v2", "k8s.io/helm/cmd/tiller")
	if err != nil {
		return nil, err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot start Tiller: %w", err)
	}
	cmd := exec.Command(binary, "--listen", address, "--probe-listen", "127.0.0.1:0", "--storage", "configmap")
	cmd.Env = []string{"KUBECONFIG=" + kubeconfig, "TILLER_NAMESPACE=" + namespace, "HOME=" + os.TempDir()}
	// It ends with this process, also if that is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start Tiller: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
		cancel() // nobody answers any more
	}()
	stop = func() {
		_ = cmd.Process.Kill()
		<-ended
	}
	h.Env = append(h.Env, "HELM_HOST="+address)
	// Helm tries until Tiller answers.
	if _, err := h.Run(ctx, "version", "--server", "--tiller-connection-timeout", "60"); err != nil {
		stop()
		return nil, fmt.Errorf("cannot start Tiller: %w\n%s", err, &log)
	}
	return stop, nil
}

// freeAddress is one that nobody listens on.
func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
