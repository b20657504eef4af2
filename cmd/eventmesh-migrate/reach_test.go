package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestOneMessageWithoutACluster: before any job begins, one message names why the cluster cannot be
// used, and what to do. Nothing is asked a second time.
func TestOneMessageWithoutACluster(t *testing.T) {
	var asked atomic.Int32
	answer := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			w.WriteHeader(code)
		}
	}
	expired := httptest.NewServer(answer(http.StatusUnauthorized))
	t.Cleanup(expired.Close)
	foreign := httptest.NewUnstartedServer(answer(http.StatusOK))
	foreign.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that do not trust it
	foreign.StartTLS()
	t.Cleanup(foreign.Close)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := closed.Addr().String()
	_ = closed.Close() // nobody listens there any more
	for name, tc := range map[string]struct {
		server, hint string
		asked        int32
	}{
		"refused":          {"http://" + refused, "Check that the cluster runs: kubectl cluster-info", 0},
		"unknown host":     {"http://nowhere.invalid", "Correct the server in the kubeconfig, or check the VPN", 0},
		"certificate":      {foreign.URL, "Check the server and its certificate authority in the kubeconfig", 0},
		"credentials: 401": {expired.URL, "Log in again, or use another --context", 1},
	} {
		for _, command := range []string{"check", "jobs", "plan", "run -y", "undo trigger-sync -y", "status", "verify", "map"} {
			t.Run(name+"/"+command, func(t *testing.T) {
				asked.Store(0)
				code, stdout, stderr := against(t, tc.server, strings.Fields(command)...)
				want, lines := migration.ExitNotChecked, 1
				if verb, _, _ := strings.Cut(command, " "); slices.Contains([]string{"plan", "run", "undo"}, verb) {
					want, lines = migration.ExitFailed, 2 // the second says that nothing was changed
				}
				if code != want || stdout != "" {
					t.Errorf("exit code %d, want %d; stdout %q", code, want, stdout)
				}
				if strings.Count(stderr, "\n") != lines || !strings.Contains(stderr, "cannot reach the API server "+tc.server) || !strings.Contains(stderr, tc.hint) {
					t.Errorf("not %d lines with the server and the hint %q:\n%s", lines, tc.hint, stderr)
				}
				if got := asked.Load(); got != tc.asked {
					t.Errorf("the server was asked %d times, want %d", got, tc.asked)
				}
			})
		}
	}
}

// against runs the program in this process, with a kubeconfig of a server.
func against(t *testing.T, server string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"clusters":[{"name":"c","cluster":{"server":%q}}],"users":[{"name":"u","user":{"token":"t"}}],`+
		`"contexts":[{"name":"prod","context":{"cluster":"c","user":"u"}}],"current-context":"prod"}`, server)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, err bytes.Buffer
	code = execute(program, cli.IO{
		Args: slices.Concat(args, []string{"--kubeconfig=" + kubeconfig}), Stdout: &out, Stderr: &err,
		Env: func(string) string { return "" },
	}, strings.NewReader(""))
	return code, out.String(), err.String()
}

// denial is one of the first two requests that are refused: the map sends them at the same time.
var denial = regexp.MustCompile(`User "u" cannot read|cannot discover the served kinds: 403 Forbidden`)

// TestForbiddenIsNamed: an account that may not even read the lock is told so, once, by every
// command.
func TestForbiddenIsNamed(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			_, _ = w.Write([]byte(`{"gitVersion":"v1.16.15"}`))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"User \"u\" cannot read %s"}`, r.URL.Path)
	}))
	t.Cleanup(s.Close)
	for command, want := range map[string]int{
		"check": migration.ExitNotChecked, "jobs": migration.ExitNotChecked, "status": migration.ExitNotChecked, "verify": migration.ExitNotChecked,
		"map": migration.ExitNotChecked, "plan": migration.ExitRefused, "run -y": migration.ExitRefused, "undo trigger-sync -y": migration.ExitRefused,
	} {
		code, stdout, stderr := against(t, s.URL, append(strings.Fields(command), "--log-level=error")...)
		told := strings.Join(strings.Fields(stdout+stderr), " ")
		if code != want || len(denial.FindAllString(told, -1)) != 1 {
			t.Errorf("%s: exit code %d, want %d, and %s once:\n%s%s", command, code, want, denial, stdout, stderr)
		}
		// A report on stdout is not repeated on stderr.
		message, advice, _ := strings.Cut(stderr, "\n")
		if strings.Contains(advice, program+":") || message != "" && stdout != "" {
			t.Errorf("%s: more than one message:\n%s", command, stderr)
		}
		// How to get the permission is said where the answer alone would be. No Role of ours has
		// that to discover.
		wants := stdout == "" && command != "check" && strings.Contains(message, "cannot read")
		if role := strings.Contains(advice, program+" check --role --kubeconfig="); role != wants {
			t.Errorf("%s: the way out:\n%s", command, advice)
		}
	}
}
