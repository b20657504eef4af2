package main

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/inspect"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/remote"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
)

// operatorNamespace is where the operator is, unless the Eventing can be read, which says it.
const operatorNamespace = "kyma-system"

// pageFlags say how the page is shown, and how the operator is reached.
type pageFlags struct {
	port      int
	noBrowser bool
	namespace string
	// operator and certificate replace the port-forward, for tests.
	operator, certificate string
}

func pageCommand(a *app) *cobra.Command {
	f := &pageFlags{}
	cmd := &cobra.Command{
		Use: "page", Short: "Show a live page of eventing in a browser", Args: frame.NoArguments,
		Long: `Show a live page of eventing in a browser. It has the state, the Subscriptions in
trouble, and the flows from sources to sinks. It is there until Ctrl-C.

The operator has the page if its chart was installed with page.enabled=true. It is
reached through a port-forward, for which you need the Role eventing-kubectl in
eventing's namespace. You see the Subscriptions of the namespaces in which you may list
them, and the Eventing if you may get it. Nothing can be changed there, and what is in
events is not there.

The page is at a port of this machine alone. Its address has a secret: give it to nobody.`,
		Example: "  {name} page\n  {name} page --no-browser --port 8000",
		RunE: func(*cobra.Command, []string) error {
			a.stays = true
			return a.reach(nil, func(ctx context.Context, c *connection) error { return a.showPage(ctx, c, f) })
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&f.noBrowser, "no-browser", false, "print the address, and open no browser. None is opened either if the output is no terminal.")
	fs.IntVar(&f.port, "port", 0, "`port` on this machine; 0: a free one.")
	bindHome(cmd, &f.namespace)
	fs.StringVar(&f.operator, "operator", "", "`URL` of the operator's page, instead of a port-forward.")
	fs.StringVar(&f.certificate, "operator-certificate", "", "`SHA-256` of the certificate of --operator.")
	_ = fs.MarkHidden("operator")             // the flag exists
	_ = fs.MarkHidden("operator-certificate") // the flag exists
	a.common.Checks.Add(cmd, func() (bad []string) {
		if f.port < 0 || f.port > 65535 {
			bad = append(bad, fmt.Sprintf("--port %d: must be a number from 0 to 65535", f.port))
		}
		return bad
	})
	a.flags(cmd, nil, true)
	return cmd
}

func (a *app) showPage(ctx context.Context, c *connection, f *pageFlags) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(f.port)))
	if err != nil {
		return fmt.Errorf("cannot listen on this machine: %w. Choose another --port", err)
	}
	page := remote.NewPage(listener.Addr().String(), func(context.Context) (*remote.PageClient, error) {
		return f.connect(ctx, c) // the way stays when the request that has opened it ends
	})
	// Missing parts are reported here, before the browser opens.
	if err := page.Check(ctx); err != nil {
		return errors.Join(err, listener.Close())
	}
	server := &http.Server{Handler: page, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	ended := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer ended()
	if err := a.write(c, "Eventing of "+c.name()+", as you may see it:", "", "  "+page.URL(), "", "The address is yours alone. Ctrl-C ends the page."); err != nil {
		return err
	}
	if !f.noBrowser && a.isTerminal(a.Stdout) {
		forget, err := browse(ctx, page.URL())
		defer forget()
		if err != nil {
			fmt.Fprintf(a.Stderr, "%s: no browser was opened (%v). Open the address yourself\n", program, err)
		}
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil // a person has ended it, as is meant
}

// bindHome adds the flag that names where the programs are.
func bindHome(cmd *cobra.Command, namespace *string) {
	if cmd.Flags().Lookup("operator-namespace") == nil { // two parts of a command may need it
		cmd.Flags().StringVar(namespace, "operator-namespace", "", "`namespace` of the operator. Default: the one that the Eventing names, or "+operatorNamespace+" if you may not list Eventings.")
	}
}

// homeOf is where the programs are: in the namespace that somebody has named, or that the Eventing
// names. Who has rights in a few namespaces may not list Eventings; for them it is the usual one.
func homeOf(ctx context.Context, c *connection, named string) (inspect.Home, error) {
	if named != "" {
		return homeIn(named), nil
	}
	_, home, err := c.Eventings(ctx)
	if apierrors.IsForbidden(err) {
		return homeIn(operatorNamespace), nil
	}
	return home, err
}

// homeIn is a namespace in which the programs have their usual names.
func homeIn(namespace string) inspect.Home {
	return inspect.Home{Namespace: namespace, Names: backend.DefaultPrefix}
}

// connect finds the pod that shows the page, and opens a way there.
func (f *pageFlags) connect(ctx context.Context, c *connection) (*remote.PageClient, error) {
	if f.operator != "" {
		return remote.NewPageClient(c.way.Config, f.operator, f.certificate, func() {})
	}
	home, err := homeOf(ctx, c, f.namespace)
	if err != nil { // without an Eventing, the operator has a page, too
		home = homeIn(operatorNamespace)
	}
	pod, certificate, err := inspect.PageOf(ctx, c.Cluster, home)
	if err != nil {
		return nil, err
	}
	way, end := context.WithCancel(ctx)
	address, err := remote.Forward(way, c.way.Config, home.Namespace, pod, backend.PagePort)
	if err != nil {
		end()
		return nil, err
	}
	client, err := remote.NewPageClient(c.way.Config, "https://"+address, certificate, end)
	if err != nil {
		end()
	}
	return client, err
}

// browse opens an address in the browser of the person. Everybody on this machine sees the command
// line of a process, so the address is in a file that nobody else may read, as Jupyter does it.
func browse(ctx context.Context, address string) (forget func(), err error) {
	dir, err := os.MkdirTemp("", "kubectl-eventing-") // for its owner alone
	if err != nil {
		return func() {}, err
	}
	forget = func() { _ = os.RemoveAll(dir) }
	file := filepath.Join(dir, "open.html")
	quoted := html.EscapeString(address)
	text := fmt.Sprintf("<!DOCTYPE html><meta name=\"referrer\" content=\"no-referrer\"><meta http-equiv=\"refresh\" content=\"0; url=%s\"><a href=\"%s\">Eventing</a>\n", quoted, quoted)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return forget, err
	}
	words := []string{"xdg-open", file}
	switch runtime.GOOS {
	case "darwin":
		words = []string{"open", file}
	case "windows":
		words = []string{"rundll32", "url.dll,FileProtocolHandler", file}
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), words[0], words[1:]...) //nolint:gosec // the words are ours
	if err := cmd.Start(); err != nil {
		return forget, err
	}
	go func() { _ = cmd.Wait() }() // some browsers stay
	return forget, nil
}
