package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const (
	knativeModule = "knative.dev/eventing"
	// knativeTypical is what the build costs on two cores when Go's own cache is empty.
	knativeTypical = "10 minutes"
)

// knativeRelease is a version of Knative Eventing, the port at which the node has its images, and
// the name under which the path of its manifests is announced.
type knativeRelease struct{ version, port, announced string }

var (
	// currentKnative is the one whose types the product uses.
	currentKnative = knativeRelease{"v0.49.2", "5001", "knative"}
	// formerKnative is of the minor version before. Knative supports the upgrade from it, and the
	// way back to it: knative.dev/docs/install/upgrade.
	formerKnative = knativeRelease{"v0.48.2", "5002", "formerKnative"}
)

// knativeConfig are the directories of Knative's manifests that make up what Kyma used of it: the
// core, Channels in memory, and the broker that is made of Channels. The last has ConfigMaps
// without which the core does not start.
var knativeConfig = []string{"config/core", "config/channels/in-memory-channel", "config/brokers/mt-channel-broker", "third_party/eventing-integrations-latest"}

// koConfig builds programs without what only a debugger reads: a third of the images' size. The
// base image is to come from the environment.
const koConfig = `defaultLdflags: ["-s", "-w"]
`

// knativeParts are Knative Eventing, built.
type knativeParts struct {
	knativeRelease
	// images is the storage of the registry that has them.
	images string
	// manifests is the file that names them.
	manifests string
}

// prepareKnative makes sure that the images of Knative Eventing are in the cache, in the storage of
// a registry, and beside it the manifests with their names.
func prepareKnative(ctx context.Context, of knativeRelease, stderr io.Writer) (knativeParts, error) {
	bin, err := build(ctx, []string{"registry", "crane", "pause", "ko"}, stderr)
	if err != nil {
		return knativeParts{}, err
	}
	// The names of the tools are those of what they were built from, and what they make depends on
	// little else.
	root, err := cacheRoot()
	if err != nil {
		return knativeParts{}, err
	}
	dir := filepath.Join(root, "knative-"+cacheKey([]byte(of.version), []byte(strings.Join(knativeConfig, ",")+koConfig), bin["ko"]))
	parts := knativeParts{knativeRelease: of, images: filepath.Join(dir, "images"), manifests: filepath.Join(dir, "knative.yaml")}
	if there(parts.manifests) {
		return parts, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return knativeParts{}, fmt.Errorf("cannot create cache: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(dir, "build.lock"), stderr)
	if err != nil {
		return knativeParts{}, err
	}
	defer unlock()
	if there(parts.manifests) {
		return parts, nil
	}

	start := time.Now()
	fmt.Fprintf(stderr, "cluster: building Knative Eventing %s from source (once, about %s)…\n", of.version, knativeTypical)
	stopTicker := every(15*time.Second, func() {
		fmt.Fprintf(stderr, "cluster: still building Knative Eventing (%s)…\n", time.Since(start).Round(time.Second))
	})
	defer stopTicker()
	if err := buildKnative(ctx, bin, dir, parts); err != nil {
		return knativeParts{}, fmt.Errorf("cannot build Knative Eventing %s: %w", of.version, err)
	}
	fmt.Fprintf(stderr, "cluster: built Knative Eventing %s in %s\n", of.version, time.Since(start).Round(100*time.Millisecond))
	return parts, nil
}

func there(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func buildKnative(ctx context.Context, bin binaries, dir string, parts knativeParts) error {
	work, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	source, err := knativeSource(ctx, work, parts.version)
	if err != nil {
		return err
	}

	port, err := freePort()
	if err != nil {
		return err
	}
	registry := fmt.Sprintf("127.0.0.1:%d", port)
	config := filepath.Join(work, "registry.yaml")
	if err := os.WriteFile(config, []byte(registryConfig(registry, parts.images)), 0o600); err != nil {
		return err
	}
	p, err := start(work, bin["registry"], "serve", config)
	if err != nil {
		return err
	}
	defer p.stop(5 * time.Second)
	if err := await(ctx, p, http.DefaultClient, "", "http://"+registry+"/v2/"); err != nil {
		return err
	}
	// An image of any static program does as the base of others.
	if _, err := push(ctx, bin, pushOptions{registry: registry, image: pauseImage, binary: bin["pause"]}); err != nil {
		return err
	}

	args := []string{"resolve", "--preserve-import-paths", "--sbom=none", "--platform=linux/" + runtime.GOARCH, "-R"}
	for _, config := range knativeConfig {
		args = append(args, "-f", config)
	}
	manifests, err := outputEnv(ctx, source, []string{
		"KO_DOCKER_REPO=" + registry,
		"KO_DEFAULTBASEIMAGE=" + registry + "/" + pauseImage,
	}, bin["ko"], args...)
	if err != nil {
		return err
	}
	// The registry of the cluster serves the same storage, at an address of its own.
	manifests = strings.ReplaceAll(manifests, registry+"/", "127.0.0.1:"+parts.port+"/")
	file := filepath.Join(work, "knative.yaml")
	if err := os.WriteFile(file, []byte(manifests), 0o644); err != nil {
		return err
	}
	return os.Rename(file, parts.manifests)
}

// knativeSource copies the module out of Go's cache, where nobody may write.
func knativeSource(ctx context.Context, work, version string) (string, error) {
	said, err := output(ctx, work, "go", "mod", "download", "-json", knativeModule+"@"+version)
	if err != nil {
		return "", err
	}
	var module struct{ Dir string }
	if err := json.Unmarshal([]byte(said), &module); err != nil {
		return "", fmt.Errorf("go mod download said %q: %w", said, err)
	}
	source := filepath.Join(work, "source")
	if err := os.CopyFS(source, os.DirFS(module.Dir)); err != nil {
		return "", err
	}
	return source, os.WriteFile(filepath.Join(source, ".ko.yaml"), []byte(koConfig), 0o644)
}
