package cli

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

	"github.com/kyma-project/eventmesh-migration/internal/version"
)

// connect returns how to reach the API server, and where that was read, for
// people. It does not call the server. Errors are those of the call of this
// process: a flag or a file to correct.
func (p *process) connect(o *options) (cfg *rest.Config, source string, err error) {
	files := kubeconfigs(o, p.Env)
	if p.Env("KUBERNETES_SERVICE_HOST") != "" && o.kubeconfig == "" && o.context == "" {
		cfg, err = p.inCluster()
		switch {
		case err == nil:
			p.user = "the Pod's ServiceAccount"
			return p.tune(cfg, o), p.user, nil
		case len(existing(files)) == 0:
			return nil, "", fmt.Errorf("cannot use the Pod's ServiceAccount: %w."+
				" Set automountServiceAccountToken, or give --kubeconfig", err)
		}
	}
	cfg, source, err = p.fromKubeconfig(o, files)
	if err != nil {
		return nil, "", err
	}
	return p.tune(cfg, o), source, nil
}

// tune makes the configuration ours.
func (p *process) tune(cfg *rest.Config, o *options) *rest.Config {
	// The server's audit log names the job by it.
	cfg.UserAgent = fmt.Sprintf("%s/%s (%s/%s) eventmesh-migration", p.job.Name(), version.String(), runtime.GOOS, runtime.GOARCH)
	cfg.QPS, cfg.Burst = o.qps, o.burst
	if o.qps > 0 && o.burst < 0 {
		cfg.Burst = max(1, int(2*o.qps))
	}
	return cfg
}

// kubeconfigs are the files to read. Where they differ, the first one counts.
func kubeconfigs(o *options, env func(string) string) []string {
	if o.kubeconfig != "" {
		return []string{o.kubeconfig}
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

func (p *process) fromKubeconfig(o *options, files []string) (*rest.Config, string, error) {
	found := existing(files)
	if len(found) == 0 {
		switch {
		case o.kubeconfig != "":
			return nil, "", fmt.Errorf("--kubeconfig %q: the file does not exist", o.kubeconfig)
		case len(files) > 0:
			return nil, "", fmt.Errorf("no cluster is given: this is not a Pod, and %s does not exist."+
				" Give --kubeconfig, or set KUBECONFIG", strings.Join(files, ", "))
		default:
			return nil, "", errors.New("no cluster is given: this is not a Pod, and neither KUBECONFIG nor HOME is set (nor USERPROFILE). Give --kubeconfig")
		}
	}
	where := "kubeconfig " + strings.Join(found, ", ")

	rules := &clientcmd.ClientConfigLoadingRules{Precedence: found}
	config, err := rules.Load()
	if err != nil {
		return nil, "", fmt.Errorf("cannot read %s: %w", where, err)
	}
	contexts := slices.Sorted(maps.Keys(config.Contexts))
	if len(contexts) == 0 {
		return nil, "", fmt.Errorf("%s: has no contexts. Give another one with --kubeconfig", where)
	}
	name := o.context
	if name == "" {
		name = config.CurrentContext
	}
	switch {
	case name == "":
		return nil, "", fmt.Errorf("%s: has no current context. Choose one with --context: %s", where, anyOf(contexts))
	case config.Contexts[name] == nil && o.context != "":
		return nil, "", fmt.Errorf("--context %q: is not in %s. Valid: %s", name, where, anyOf(contexts))
	case config.Contexts[name] == nil:
		return nil, "", fmt.Errorf("%s: its current context %q does not exist. Choose one with --context: %s", where, name, anyOf(contexts))
	}
	// client-go would say that nothing is configured.
	if ctx := config.Contexts[name]; config.Clusters[ctx.Cluster] == nil || ctx.AuthInfo != "" && config.AuthInfos[ctx.AuthInfo] == nil {
		return nil, "", fmt.Errorf("%s, context %q: its cluster %q or its user %q is not in the file. Correct the file, or choose another context with --context",
			where, name, ctx.Cluster, ctx.AuthInfo)
	}
	cfg, err := clientcmd.NewNonInteractiveClientConfig(*config, name, &clientcmd.ConfigOverrides{}, rules).ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("%s, context %q: %w. Correct the file, or choose another context with --context", where, name, err)
	}
	p.context, p.user = name, config.Contexts[name].AuthInfo
	return cfg, fmt.Sprintf("%s, context %s", where, name), nil
}
