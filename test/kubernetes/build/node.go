package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	nodeName     = "eventmesh"
	registryPort = "5000"
	// localRegistry begins the names of images. Programs speak plain HTTP to a registry on
	// loopback.
	localRegistry = "127.0.0.1:" + registryPort
	podCIDR       = "10.244.0.0/24"
	serviceIP     = "10.96.0.1"
	dnsIP         = "10.96.0.10"
	containerdURL = "unix:///run/containerd/containerd.sock"
)

// startNode makes pods run. Each program gets what it needs from the one before it; only containerd
// and the registry need nobody.
func (c *cluster) startNode(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		c.startRegistries,
		c.startContainerd,
		c.startDNS,
		c.startKubernetesNode,
		c.awaitNode,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// run starts one of the node's processes.
func (c *cluster) run(binary string, args ...string) (*process, error) {
	p, err := start(c.dir, binary, args...)
	if err == nil {
		c.nodeProcesses = append(c.nodeProcesses, p)
	}
	return p, err
}

// write writes a configuration file of the node.
func (c *cluster) write(name, content string) error {
	if err := os.MkdirAll(filepath.Dir(c.path(name)), 0o755); err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	if err := os.WriteFile(c.path(name), []byte(content), 0o600); err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	return nil
}

// startRegistries serves the images. What is not in them cannot be pulled: there is no way out.
func (c *cluster) startRegistries(ctx context.Context) error {
	storages := map[string]string{registryPort: c.path("registry")}
	for _, k := range c.parts.knative { // built once, and not to be mixed with what tests push
		storages[k.port] = k.images
	}
	for port, storage := range storages {
		config := "registry-" + port + ".yaml"
		if err := c.write(config, registryConfig("0.0.0.0:"+port, storage)); err != nil {
			return err
		}
		p, err := c.run(c.bin["registry"], "serve", c.path(config))
		if err != nil {
			return err
		}
		if err := c.await(ctx, p, http.DefaultClient, "http://127.0.0.1:"+port+"/v2/"); err != nil {
			return err
		}
	}
	_, err := push(ctx, c.bin, pushOptions{registry: localRegistry, image: pauseImage, binary: c.bin["pause"]})
	return err
}

func registryConfig(address, storage string) string {
	return fmt.Sprintf(`version: 0.1
log:
  level: warn
  accesslog:
    disabled: true
storage:
  filesystem:
    rootdirectory: %q
  cache:
    blobdescriptor: inmemory
http:
  addr: %s
`, storage, address)
}

const pauseImage = "pause:1"

func (c *cluster) startContainerd(ctx context.Context) error {
	// A pod is connected to the node by a pair of interfaces of its own, not by a bridge: replies
	// of Services then always pass where their addresses are restored, whether or not the kernel
	// lets a bridge's packets see netfilter.
	if err := c.write("cni.d/10-eventmesh.conflist", fmt.Sprintf(`{
  "cniVersion": "1.0.0",
  "name": "eventmesh",
  "plugins": [{
    "type": "ptp",
    "ipMasq": true,
    "ipam": {
      "type": "host-local",
      "ranges": [[{"subnet": %q}]],
      "routes": [{"dst": "0.0.0.0/0"}]
    }
  }]
}
`, podCIDR)); err != nil {
		return err
	}
	// All of it is in a mount namespace of its own: nothing here is the machine's containerd, if it
	// has one.
	if err := c.write("containerd.toml", fmt.Sprintf(`version = 2
root = %q
state = "/run/containerd"
oom_score = 0

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  # Without CAP_SYS_RESOURCE nobody may make a process less likely to be killed.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
`, c.path("containerd"), localRegistry+"/"+pauseImage, cniDir, c.path("cni.d"))); err != nil {
		return err
	}
	p, err := c.run("containerd", "--config", c.path("containerd.toml"))
	if err != nil {
		return err
	}
	return poll(ctx, p, func() (bool, error) {
		conn, err := net.Dial("unix", "/run/containerd/containerd.sock")
		if err != nil {
			return false, err
		}
		return true, conn.Close()
	})
}

// startDNS answers for Services by their names. It is a process of the node, not a pod: one image
// less to make.
func (c *cluster) startDNS(context.Context) error {
	if err := c.write("Corefile", fmt.Sprintf(`.:53 {
    bind %s
    errors
    kubernetes cluster.local in-addr.arpa {
        kubeconfig %s
        pods insecure
        ttl 5
    }
    cache 5
}
`, c.link.node(), c.path("kubeconfig"))); err != nil {
		return err
	}
	_, err := c.run(c.bin["coredns"], "-conf", c.path("Corefile"))
	return err
}

// startKubernetesNode starts what makes a node of Kubernetes out of a machine with containers.
func (c *cluster) startKubernetesNode(context.Context) error {
	for name, content := range map[string]string{
		// Pods that use the node's names get none.
		"resolv.conf":     "",
		"kubelet.yaml":    c.kubeletConfig(),
		"kube-proxy.yaml": c.kubeProxyConfig(),
	} {
		if err := c.write(name, content); err != nil {
			return err
		}
	}
	for _, command := range [][]string{
		{"kube-scheduler", "--kubeconfig=" + c.path("kubeconfig"), "--leader-elect=false", "--secure-port=0", "--profiling=false"},
		{"kube-proxy", "--config=" + c.path("kube-proxy.yaml")},
		{"kubelet", "--config=" + c.path("kubelet.yaml"), "--kubeconfig=" + c.path("kubeconfig"), "--hostname-override=" + nodeName, "--node-ip=" + c.link.node()},
	} {
		if _, err := c.run(c.bin[command[0]], command[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// kubeletConfig fits machines with cgroup v1 and without CAP_SYS_RESOURCE, which are what CI runs
// on. Who may speak to the kubelet is not asked: it is reached from the node and the machine alone.
func (c *cluster) kubeletConfig() string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[1]s
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: %[2]s
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: %[3]s
cgroupsPerQOS: false
enforceNodeAllocatable: []
localStorageCapacityIsolation: false
failSwapOn: false
oomScoreAdj: 0
clusterDNS: [%[4]s]
clusterDomain: cluster.local
resolvConf: %[5]s
maxPods: 200
# The machine's disk may be fuller than a kubelet likes, and is not its to clean.
imageGCHighThresholdPercent: 100
evictionHard: {imagefs.available: 0%%, nodefs.available: 0%%, nodefs.inodesFree: 0%%}
serializeImagePulls: false
registryPullQPS: 0
eventRecordQPS: 0
kubeAPIQPS: 500
kubeAPIBurst: 1000
`, c.link.node(), containerdURL, c.link.cgroup(), dnsIP, c.path("resolv.conf"))
}

func (c *cluster) kubeProxyConfig() string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: %s
clientConnection: {kubeconfig: %s}
clusterCIDR: %s
detectLocalMode: ClusterCIDR
# The table of connections is the machine's.
conntrack: {maxPerCore: 0, min: 0}
oomScoreAdj: 0
`, nodeName, c.path("kubeconfig"), podCIDR)
}

// awaitNode waits until a pod would run and find what pods rely on: the API at its ClusterIP, and
// names.
func (c *cluster) awaitNode(ctx context.Context) error {
	processes := map[string]*process{}
	for _, p := range c.nodeProcesses {
		processes[p.name] = p
	}
	if err := poll(ctx, processes["coredns"], func() (bool, error) {
		err := c.createDNSService(ctx)
		return err == nil, err
	}); err != nil {
		return err
	}
	if err := poll(ctx, processes["kubelet"], func() (bool, error) {
		var node struct {
			Status struct {
				Conditions []struct{ Type, Status, Message string }
			}
		}
		if err := c.request(ctx, http.MethodGet, "/api/v1/nodes/"+nodeName, nil, &node); err != nil {
			return false, err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == "Ready" {
				return condition.Status == "True", fmt.Errorf("node %s: %s", nodeName, condition.Message)
			}
		}
		return false, fmt.Errorf("node %s says nothing of its state", nodeName)
	}); err != nil {
		return err
	}
	if err := poll(ctx, processes["kube-proxy"], func() (bool, error) {
		conn, err := net.DialTimeout("tcp", serviceIP+":443", time.Second)
		if err != nil {
			return false, err
		}
		return true, conn.Close()
	}); err != nil {
		return err
	}
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, dnsIP+":53")
	}}
	return poll(ctx, processes["coredns"], func() (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := resolver.LookupHost(ctx, "kubernetes.default.svc.cluster.local.")
		return err == nil, err
	})
}

// createDNSService gives the DNS server its ClusterIP.
func (c *cluster) createDNSService(ctx context.Context) error {
	ports := []map[string]any{
		{"name": "dns", "port": 53, "protocol": "UDP"},
		{"name": "dns-tcp", "port": 53, "protocol": "TCP"},
	}
	for path, object := range map[string]map[string]any{
		"/api/v1/namespaces/kube-system/services": {
			"apiVersion": "v1", "kind": "Service",
			"metadata": map[string]any{"name": "kube-dns"},
			"spec":     map[string]any{"clusterIP": dnsIP, "ports": ports},
		},
		"/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices": {
			"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
			"metadata":    map[string]any{"name": "kube-dns", "labels": map[string]any{"kubernetes.io/service-name": "kube-dns"}},
			"addressType": "IPv4",
			"ports":       ports,
			"endpoints":   []map[string]any{{"addresses": []string{c.link.node()}}},
		},
	} {
		err := c.request(ctx, http.MethodPost, path, object, nil)
		if err != nil && !strings.HasPrefix(err.Error(), "409 ") { // it is there already: an answer was lost
			return fmt.Errorf("cannot create %s kube-dns: %w", object["kind"], err)
		}
	}
	return nil
}

// request asks the API server as the administrator.
func (c *cluster) request(ctx context.Context, method, path string, body, into any) error {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.server+path, content)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return errors.New(resp.Status + ": " + string(answer))
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}
