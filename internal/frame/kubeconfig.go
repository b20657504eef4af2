package frame

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Place is the cluster that a command line asks for.
type Place struct {
	// Kubeconfig and Context are flags, "" if they were not given.
	Kubeconfig, Context string
	// QPS and Burst limit the requests of the client; negative: no limit.
	QPS   float32
	Burst int
}

// Way is how to reach the API server.
type Way struct {
	Config *rest.Config
	// Source says where it was read, for people.
	Source string
	// Context and User are those of the kubeconfig; in a Pod there is no context.
	Context, User string
}

// Connect returns how to reach the API server, which it does not call. Errors are those of the call
// of this process: a flag or a file to correct. inCluster is rest.InClusterConfig. The audit log of
// the server has the userAgent.
func (p Place) Connect(env func(string) string, inCluster func() (*rest.Config, error), userAgent string) (*Way, error) {
	files := p.files(env)
	if env("KUBERNETES_SERVICE_HOST") != "" && p.Kubeconfig == "" && p.Context == "" {
		cfg, err := inCluster()
		switch {
		case err == nil:
			const account = "the Pod's ServiceAccount"
			return &Way{Config: p.tune(cfg, userAgent), Source: account, User: account}, nil
		case len(existing(files)) == 0:
			return nil, fmt.Errorf("cannot use the Pod's ServiceAccount: %w."+
				" Set automountServiceAccountToken, or give --kubeconfig", err)
		}
	}
	way, err := p.fromKubeconfig(files)
	if err != nil {
		return nil, err
	}
	p.tune(way.Config, userAgent)
	return way, nil
}

// UserAgent is that of a program of a project, which may be "".
func UserAgent(program, version, project string) string {
	return strings.TrimSpace(fmt.Sprintf("%s/%s (%s/%s) %s", program, version, runtime.GOOS, runtime.GOARCH, project))
}

// tune makes the configuration ours.
func (p Place) tune(cfg *rest.Config, userAgent string) *rest.Config {
	cfg.UserAgent = userAgent
	cfg.QPS, cfg.Burst = p.QPS, p.Burst
	if p.QPS > 0 && p.Burst < 0 {
		cfg.Burst = max(1, int(2*p.QPS))
	}
	return cfg
}

// Contexts are those of the kubeconfig that the flags name; nil if it cannot be read.
func (p Place) Contexts(env func(string) string) []string {
	config, err := (&clientcmd.ClientConfigLoadingRules{Precedence: existing(p.files(env))}).Load()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(config.Contexts))
}

// files are those to read. Where they differ, the first one counts.
func (p Place) files(env func(string) string) []string {
	if p.Kubeconfig != "" {
		return []string{p.Kubeconfig}
	}
	if list := filepath.SplitList(env("KUBECONFIG")); len(list) > 0 {
		return list
	}
	if files := homeFiles(runtime.GOOS, env); len(files) > 0 {
		if found := existing(files); len(found) > 0 {
			return found[:1]
		}
		return files[:1]
	}
	return nil
}

// homeFiles are where client-go's rules, and so kubectl's, look for a kubeconfig in the home
// directory, the first one first. Windows has no HOME, unless another program sets it.
func homeFiles(system string, env func(string) string) []string {
	homes := []string{env("HOME")}
	if system == "windows" || homes[0] == "" {
		drive, path := env("HOMEDRIVE"), env("HOMEPATH")
		if drive != "" && path != "" {
			homes = append(homes, drive+path)
		}
		homes = append(homes, env("USERPROFILE"))
	}
	var files []string
	for _, home := range homes {
		if home != "" {
			files = append(files, filepath.Join(home, clientcmd.RecommendedHomeDir, clientcmd.RecommendedFileName))
		}
	}
	return files
}

func existing(files []string) []string {
	return slices.DeleteFunc(slices.Clone(files), func(f string) bool {
		_, err := os.Stat(f)
		return errors.Is(err, fs.ErrNotExist)
	})
}

func (p Place) fromKubeconfig(files []string) (*Way, error) {
	found := existing(files)
	if len(found) == 0 {
		switch {
		case p.Kubeconfig != "":
			return nil, fmt.Errorf("--kubeconfig %q: the file does not exist", p.Kubeconfig)
		case len(files) > 0:
			return nil, fmt.Errorf("no cluster is given: this is not a Pod, and %s does not exist."+
				" Give --kubeconfig, or set KUBECONFIG", strings.Join(files, ", "))
		default:
			return nil, errors.New("no cluster is given: this is not a Pod, and neither KUBECONFIG nor HOME is set (nor USERPROFILE). Give --kubeconfig")
		}
	}
	where := "kubeconfig " + strings.Join(found, ", ")

	rules := &clientcmd.ClientConfigLoadingRules{Precedence: found}
	config, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", where, err)
	}
	contexts := slices.Sorted(maps.Keys(config.Contexts))
	if len(contexts) == 0 {
		return nil, fmt.Errorf("%s: has no contexts. Give another one with --kubeconfig", where)
	}
	name := p.Context
	if name == "" {
		name = config.CurrentContext
	}
	switch {
	case name == "":
		return nil, fmt.Errorf("%s: has no current context. Choose one with --context: %s", where, AnyOf(contexts))
	case config.Contexts[name] == nil && p.Context != "":
		return nil, fmt.Errorf("--context %q: is not in %s. Valid: %s", name, where, AnyOf(contexts))
	case config.Contexts[name] == nil:
		return nil, fmt.Errorf("%s: its current context %q does not exist. Choose one with --context: %s", where, name, AnyOf(contexts))
	}
	// client-go would say that nothing is configured.
	if ctx := config.Contexts[name]; config.Clusters[ctx.Cluster] == nil || ctx.AuthInfo != "" && config.AuthInfos[ctx.AuthInfo] == nil {
		return nil, fmt.Errorf("%s, context %q: its cluster %q or its user %q is not in the file. Correct the file, or choose another context with --context",
			where, name, ctx.Cluster, ctx.AuthInfo)
	}
	cfg, err := clientcmd.NewNonInteractiveClientConfig(*config, name, &clientcmd.ConfigOverrides{}, rules).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s, context %q: %w. Correct the file, or choose another context with --context", where, name, err)
	}
	return &Way{Config: cfg, Source: fmt.Sprintf("%s, context %s", where, name), Context: name, User: config.Contexts[name].AuthInfo}, nil
}

// ClusterName names a cluster and the account for people.
func ClusterName(server, context, user string) string {
	var about []string
	if context != "" {
		about = append(about, "context "+context)
	}
	if user != "" {
		about = append(about, "user "+user)
	}
	if len(about) == 0 {
		return server
	}
	return fmt.Sprintf("%s (%s)", server, strings.Join(about, ", "))
}
