package helm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// StartTiller starts the server that Helm 2 upgrades through, with the power of the
// kubeconfig, until stop, and lets each command of h talk to it. It stores releases
// in ConfigMaps of the namespace, as in Kyma.
func (h *Helm) StartTiller(ctx context.Context, kubeconfig, namespace string) (stop func(), err error) {
	binary, err := build(ctx, h.Root, "test/helm2", "k8s.io/helm/cmd/tiller", "tiller")
	if err != nil {
		return nil, err
	}
	address, probes, err := twoPorts(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot start Tiller: %w", err)
	}
	cmd := exec.Command(binary, "--listen", address, "--probe-listen", probes, "--storage", "configmap")
	cmd.Env = []string{"KUBECONFIG=" + kubeconfig, "TILLER_NAMESPACE=" + namespace, "HOME=" + os.TempDir()}
	// It ends with this process, also if that is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start Tiller: %w", err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	stop = func() {
		_ = cmd.Process.Kill()
		<-ended
	}
	if err := healthy(ctx, "http://"+probes+"/readiness", ended); err != nil {
		stop()
		return nil, fmt.Errorf("cannot start Tiller: %w\n%s", err, &log)
	}
	h.Env = append(h.Env, "HELM_HOST="+address)
	return stop, nil
}

// twoPorts returns two addresses that nobody listens on.
func twoPorts(ctx context.Context) (first, second string, err error) {
	var free [2]string
	for i := range free {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return "", "", err
		}
		// Both are held until both are known: else they could be the same.
		defer l.Close()
		free[i] = l.Addr().String()
	}
	return free[0], free[1], nil
}

// healthy asks the URL until it answers with 200, at most for a minute: Tiller has
// nothing that could be watched.
func healthy(ctx context.Context, url string, ended <-chan struct{}) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		select {
		case <-ended:
			return false, errors.New("it has ended")
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, nil
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK, nil
	})
}
