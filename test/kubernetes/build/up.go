package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// defaultControllers are those the migration meets: what collects garbage, empties namespaces, runs
// workloads up to their pods, hands out ServiceAccounts and fills aggregated roles. The other
// thirty would only spend the machine's two cores and put requests of their own into the audit log.
var defaultControllers = strings.Join([]string{
	"clusterrole-aggregation-controller",
	"daemonset-controller",
	"deployment-controller",
	"endpointslice-controller",
	"garbage-collector-controller",
	"job-controller",
	"namespace-controller",
	"replicaset-controller",
	"root-ca-certificate-publisher-controller",
	"serviceaccount-controller",
	"serviceaccount-token-controller",
	"statefulset-controller",
	"ttl-after-finished-controller",
}, ",")

// nodeControllers are what a cluster with a node needs in addition: the node's taints go, pods of a
// node that is gone go, and Endpoints are there for programs that do not know EndpointSlices
// (Knative's channel controller).
var nodeControllers = strings.Join([]string{
	"endpoints-controller",
	"node-lifecycle-controller",
	"pod-garbage-collector-controller",
}, ",")

// workloadControllers are what programs rely on that keep data and have budgets: claims are bound
// to volumes and protected while they are used, PodDisruptionBudgets have a status, and workloads
// are scaled. A cluster with a node has them, too.
var workloadControllers = strings.Join([]string{
	"disruption-controller",
	"horizontal-pod-autoscaler-controller",
	"persistentvolume-binder-controller",
	"persistentvolume-expander-controller",
	"persistentvolume-protection-controller",
	"persistentvolumeclaim-protection-controller",
}, ",")

const (
	readyTimeout = 90 * time.Second
	portAttempts = 5
	userAgent    = "eventmesh-cluster-launcher"
)

type upOptions struct {
	dir           string
	controllers   string
	kubernetes    string
	node, knative bool
	// formerKnative: of the version before, too.
	formerKnative bool
	workloads     bool
	// link is how a cluster with a node is connected to the machine; zero without one.
	link link
}

// cluster is a running control plane, and its node if it has one.
type cluster struct {
	upOptions
	parts
	token  string
	server string
	http   *http.Client

	etcd, apiserver, controllerManager *process
	// node are the node's processes in the order of their start.
	nodeProcesses []*process
}

// parts is what a cluster is made of, all of it in the cache.
type parts struct {
	release release
	bin     binaries
	// knative are the wanted versions of Knative, the current one first.
	knative []knativeParts
}

// prepare makes sure that everything "up" needs is there.
func prepare(ctx context.Context, o upOptions, stderr io.Writer) (p parts, err error) {
	if p.release, err = releaseOf(o.kubernetes, o.node); err != nil {
		return p, err
	}
	names := []string{"etcd", p.release.apiserver, p.release.controllerManager}
	if o.node {
		if err := installPackages(ctx, stderr); err != nil {
			return p, err
		}
		names = slices.Concat(names, nodeComponents)
	}
	if p.bin, err = build(ctx, names, stderr); err != nil {
		return p, err
	}
	var wanted []knativeRelease
	if o.knative {
		wanted = append(wanted, currentKnative)
	}
	if o.formerKnative {
		wanted = append(wanted, formerKnative)
	}
	for _, of := range wanted {
		built, err := prepareKnative(ctx, of, stderr)
		if err != nil {
			return p, err
		}
		p.knative = append(p.knative, built)
	}
	return p, nil
}

func up(ctx context.Context, o upOptions, stdin io.Reader, stdout, stderr io.Writer) error {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	o.dir = dir
	if err := os.MkdirAll(filepath.Join(dir, "certs"), 0o755); err != nil {
		return fmt.Errorf("cannot create %s: %w", dir, err)
	}

	// A parent that went away must be noticed from the first moment on, a build of minutes
	// included.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel(errStdinClosed)
	}()
	restart := make(chan os.Signal, 1)
	signal.Notify(restart, syscall.SIGHUP)
	defer signal.Stop(restart)

	parts, err := prepare(ctx, o, stderr)
	if err != nil {
		return ended(ctx, err, stderr)
	}
	if o.controllers == "" {
		o.controllers = defaultControllers
		if o.node {
			o.controllers += "," + nodeControllers
		}
		if o.node || o.workloads {
			o.controllers += "," + workloadControllers
		}
	}
	c := &cluster{upOptions: o, parts: parts}
	if err := c.writeFiles(); err != nil {
		return err
	}
	defer c.stop()
	began := time.Now()
	if err := c.start(ctx); err != nil {
		return ended(ctx, err, stderr)
	}
	if o.node {
		if err := c.startNode(ctx); err != nil {
			return ended(ctx, err, stderr)
		}
	}
	died := firstDeath(c.nodeProcesses)
	fmt.Fprintf(stderr, "cluster: ready at %s after %s\n", c.server, time.Since(began).Round(10*time.Millisecond))

	for {
		if err := c.announce(stdout); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ended(ctx, ctx.Err(), stderr)
		case <-c.etcd.exited:
			return c.etcd.died()
		case <-c.apiserver.exited:
			return c.apiserver.died()
		case <-c.controllerManager.exited:
			return c.controllerManager.died()
		case p := <-died:
			return p.died()
		case <-restart:
			// Killed, not asked: controllers hold nothing that is worth a graceful end.
			c.controllerManager.stop(0)
			if err := c.startControllerManager(ctx); err != nil {
				return ended(ctx, err, stderr)
			}
		}
	}
}

var errStdinClosed = errors.New("stdin closed")

// ended tells an end that was asked for from a failure. Why it ends is said: the person who puts it
// into the background of a shell without a stdin would wonder.
func ended(ctx context.Context, err error, stderr io.Writer) error {
	if ctx.Err() != nil {
		fmt.Fprintf(stderr, "cluster: ending: %v\n", context.Cause(ctx))
		return nil
	}
	return err
}

func (c *cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.dir}, elem...)...)
}

func (c *cluster) announce(stdout io.Writer) error {
	line := map[string]string{
		"kubeconfig": c.path("kubeconfig"),
		"auditLog":   c.path("audit.log"),
		"server":     c.server,
	}
	if c.node {
		line["registry"] = c.link.node() + ":" + registryPort
		line["node"] = c.link.node()
		line["host"] = c.link.host()
	}
	for _, k := range c.parts.knative {
		line[k.announced] = k.manifests
	}
	return json.NewEncoder(stdout).Encode(line)
}

// auditPolicy records every request: a test that counts them must not depend on what somebody
// thought worth counting.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// writeFiles prepares what the components read. Keys that are there stay: the tokens signed with
// them are in use.
func (c *cluster) writeFiles() error {
	token := make([]byte, 16)
	if _, err := rand.Read(token); err != nil {
		return fmt.Errorf("cannot make a token: %w", err)
	}
	c.token = hex.EncodeToString(token)

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("cannot make the service account key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("cannot make the service account key: %w", err)
	}
	if _, err := os.Stat(c.path("certs", "sa.key")); err != nil {
		if err := os.WriteFile(c.path("certs", "sa.key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600); err != nil {
			return fmt.Errorf("cannot write the service account key: %w", err)
		}
	}
	for name, content := range map[string]string{
		"tokens.csv":        c.token + `,admin,admin,"system:masters"` + "\n",
		"audit-policy.yaml": auditPolicy,
	} {
		if err := os.WriteFile(c.path(name), []byte(content), 0o600); err != nil {
			return fmt.Errorf("cannot write %s: %w", name, err)
		}
	}
	return nil
}

// start brings the control plane up, with other ports when somebody else was quicker.
func (c *cluster) start(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		err := c.startOnce(ctx)
		if err == nil || !errors.Is(err, errPortTaken) || attempt == portAttempts {
			return err
		}
		c.stop()
	}
}

func (c *cluster) startOnce(ctx context.Context) error {
	etcdPort, err := freePort()
	if err != nil {
		return err
	}
	etcdURL := fmt.Sprintf("http://127.0.0.1:%d", etcdPort)
	c.etcd, err = start(c.dir, c.bin["etcd"],
		"--data-dir="+c.path("etcd"),
		"--listen-client-urls="+etcdURL,
		"--advertise-client-urls="+etcdURL,
		// One member has no peers to listen to, but etcd insists.
		"--listen-peer-urls=http://127.0.0.1:0",
		"--unsafe-no-fsync",
		"--quota-backend-bytes=8589934592",
		"--log-level=warn",
	)
	if err != nil {
		return err
	}
	if err := c.await(ctx, c.etcd, &http.Client{Timeout: time.Second}, etcdURL+"/health"); err != nil {
		return err
	}

	address := "127.0.0.1"
	// Endpoints may not be loopback addresses; without pods nobody misses them.
	endpoints := "none"
	if c.node {
		address, endpoints = c.link.node(), "lease"
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	c.server = fmt.Sprintf("https://%s:%d", address, port)
	c.apiserver, err = start(c.dir, c.bin[c.release.apiserver], append([]string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=" + address,
		"--advertise-address=" + address,
		"--endpoint-reconciler-type=" + endpoints,
		"--kubelet-preferred-address-types=InternalIP",
		fmt.Sprintf("--secure-port=%d", port),
		"--cert-dir=" + c.path("certs"),
		"--service-account-key-file=" + c.path("certs", "sa.key"),
		"--service-account-signing-key-file=" + c.path("certs", "sa.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--token-auth-file=" + c.path("tokens.csv"),
		"--authorization-mode=RBAC",
		"--allow-privileged",
		"--profiling=false",
		// Together these are the seats that priority and fairness shares out: enough that a test
		// meets its limits only when it means to.
		"--max-requests-inflight=1600",
		"--max-mutating-requests-inflight=800",
		"--audit-policy-file=" + c.path("audit-policy.yaml"),
		"--audit-log-path=" + c.path("audit.log"),
		// A request is in the log before its client has the answer, and the log is never rotated
		// away.
		"--audit-log-mode=blocking",
		"--audit-log-maxsize=1048576",
	}, c.release.apiserverArgs...)...)
	if err != nil {
		return err
	}
	// The certificate is made at start, so trust in it can only begin now.
	certificate := c.path("certs", "apiserver.crt")
	var ca []byte
	if err := poll(ctx, c.apiserver, func() (done bool, last error) {
		ca, last = os.ReadFile(certificate)
		return last == nil && len(ca) > 0, last
	}); err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return fmt.Errorf("no certificate in %s", certificate)
	}
	c.http = &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}},
	}
	if err := c.await(ctx, c.apiserver, c.http, c.server+"/readyz"); err != nil {
		return err
	}
	if err := c.writeKubeconfig(ca); err != nil {
		return err
	}
	if err := c.startControllerManager(ctx); err != nil {
		return err
	}
	// Another process that took a port may have answered in the place of the one that should have.
	for _, p := range []*process{c.etcd, c.apiserver} {
		select {
		case <-p.exited:
			return p.died()
		default:
		}
	}
	return nil
}

func (c *cluster) writeKubeconfig(ca []byte) error {
	content := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: eventmesh
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: admin
  user:
    token: %s
contexts:
- name: eventmesh
  context:
    cluster: eventmesh
    user: admin
current-context: eventmesh
`, c.server, base64.StdEncoding.EncodeToString(ca), c.token)
	if err := os.WriteFile(c.path("kubeconfig"), []byte(content), 0o600); err != nil {
		return fmt.Errorf("cannot write kubeconfig: %w", err)
	}
	return nil
}

func (c *cluster) startControllerManager(ctx context.Context) error {
	var err error
	c.controllerManager, err = start(c.dir, c.bin[c.release.controllerManager], append([]string{
		"--kubeconfig=" + c.path("kubeconfig"),
		"--controllers=" + c.release.named(c.controllers),
		// One identity a controller: the audit log then tells which of them did something.
		"--use-service-account-credentials",
		"--service-account-private-key-file=" + c.path("certs", "sa.key"),
		"--root-ca-file=" + c.path("certs", "apiserver.crt"),
		"--leader-elect=false",
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
		// The default is 15s, and a test waits for several looks.
		"--horizontal-pod-autoscaler-sync-period=3s",
		// Nobody scrapes it, and a port that is not used cannot be taken.
		"--secure-port=0",
		"--profiling=false",
	}, c.release.controllerManagerArgs...)...)
	if err != nil {
		return err
	}
	// The first thing it makes says that it works. After a restart that is there already, and says
	// nothing.
	return c.await(ctx, c.controllerManager, c.http, c.server+"/api/v1/namespaces/default/serviceaccounts/default")
}

// await asks the URL as the administrator until it answers 200.
func (c *cluster) await(ctx context.Context, p *process, client *http.Client, url string) error {
	return await(ctx, p, client, c.token, url)
}

// await asks the URL until it answers 200.
func await(ctx context.Context, p *process, client *http.Client, token, url string) error {
	return poll(ctx, p, func() (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false, err
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		req.Header.Set("User-Agent", userAgent)
		resp, err := client.Do(req)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, 2048))
		if err != nil {
			return false, err
		}
		return resp.StatusCode == http.StatusOK, fmt.Errorf("%s answers %s: %s", url, resp.Status, body)
	})
}

// poll tries until done; the end of the process or of the time says what was last seen.
func poll(ctx context.Context, p *process, try func() (done bool, last error)) error {
	deadline := time.Now().Add(readyTimeout)
	for {
		done, last := try()
		if done {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not ready after %s: %w; the end of %s:\n%s", p.name, readyTimeout, last, p.log, p.tail(15))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.exited:
			return p.died()
		case <-time.After(25 * time.Millisecond):
		}
	}
}

// stop ends what runs, the newest first: the other way round each would spend its last seconds
// complaining.
func (c *cluster) stop() {
	for i := len(c.nodeProcesses) - 1; i >= 0; i-- {
		// Containers need no graceful end either: the kernel ends what is left, with the namespaces
		// it is in.
		c.nodeProcesses[i].stop(0)
	}
	c.nodeProcesses = nil
	for _, s := range []struct {
		p     **process
		grace time.Duration
	}{{&c.controllerManager, 0}, {&c.apiserver, 0}, {&c.etcd, 5 * time.Second}} {
		if *s.p != nil {
			(*s.p).stop(s.grace)
			*s.p = nil
		}
	}
}
