// Command helm2 is as much of Helm 2.16.3, which Kyma 1.11 comes with, as runs without Tiller: its engine, with the
// functions that it has, its loader of charts, and its linter.
//
//	helm2 template NAME CHART [--namespace N] [--kube-version V] [--api-versions V] [--set K=V] [--set-string K=V]
//	helm2 lint [--strict] CHART [--set K=V]
//
// Only Go's own text/template below them is a newer one.
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ghodss/yaml"
	"k8s.io/helm/pkg/chartutil"
	"k8s.io/helm/pkg/lint"
	"k8s.io/helm/pkg/lint/support"
	"k8s.io/helm/pkg/proto/hapi/chart"
	"k8s.io/helm/pkg/renderutil"
	"k8s.io/helm/pkg/strvals"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: helm2 template NAME CHART | helm2 lint CHART")

func run(args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	o := options{values: map[string]any{}}
	operands, err := o.parse(args[1:])
	if err != nil {
		return err
	}
	switch {
	case args[0] == "template" && len(operands) == 2:
		return o.template(operands[0], operands[1])
	case args[0] == "lint" && len(operands) == 1:
		return o.lint(operands[0])
	}
	return errUsage
}

type options struct {
	namespace, kubeVersion string
	apiVersions            []string
	strict                 bool
	values                 map[string]any
}

// parse takes flags before, between and behind the operands, as Helm does.
func (o *options) parse(args []string) (operands []string, err error) {
	flags := flag.NewFlagSet("helm2", flag.ContinueOnError)
	flags.StringVar(&o.namespace, "namespace", "default", "")
	flags.StringVar(&o.kubeVersion, "kube-version", "", "")
	flags.BoolVar(&o.strict, "strict", false, "")
	flags.Func("api-versions", "", func(s string) error { o.apiVersions = append(o.apiVersions, s); return nil })
	flags.Func("set", "", func(s string) error { return strvals.ParseInto(s, o.values) })
	flags.Func("set-string", "", func(s string) error { return strvals.ParseIntoString(s, o.values) })
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		if flags.NArg() == 0 {
			return operands, nil
		}
		operands, args = append(operands, flags.Arg(0)), flags.Args()[1:]
	}
}

func (o *options) template(name, path string) error {
	loaded, err := chartutil.Load(path)
	if err != nil {
		return err
	}
	raw, err := yaml.Marshal(o.values)
	if err != nil {
		return err
	}
	files, err := renderutil.Render(loaded, &chart.Config{Raw: string(raw)}, renderutil.Options{
		ReleaseOptions: chartutil.ReleaseOptions{Name: name, Namespace: o.namespace, IsInstall: true},
		KubeVersion:    o.kubeVersion, APIVersions: o.apiVersions,
	})
	if err != nil {
		return err
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		content := strings.TrimSpace(files[file])
		if base := filepath.Base(file); content != "" && !strings.HasPrefix(base, "_") && base != "NOTES.txt" {
			fmt.Printf("---\n# Source: %s\n%s\n", file, strings.TrimPrefix(content, "---\n"))
		}
	}
	return nil
}

func (o *options) lint(path string) error {
	raw, err := yaml.Marshal(o.values)
	if err != nil {
		return err
	}
	linter := lint.All(path, raw, "default", o.strict)
	limit := support.ErrorSev
	if o.strict {
		limit = support.WarningSev
	}
	for _, message := range linter.Messages {
		fmt.Println(message)
	}
	if linter.HighestSeverity >= limit {
		return errors.New("the chart does not pass")
	}
	return nil
}
