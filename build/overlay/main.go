// Command overlay puts the hooks of the migration over one of Kyma's own charts:
// core, application-connector, or cluster-essentials. It can be repeated, and
// changes nothing else of the chart.
//
//   - The chart of the hooks becomes a sub-chart, with its values.
//   - cluster-essentials for Kyma 1.11: the CustomResourceDefinition of Kyma
//     Subscriptions stays when a later chart lacks it. The chart also gets the state
//     namespace of the migration, because it is upgraded first.
//   - cluster-essentials for Kyma 1.12: the template of that definition is removed, and
//     a hook stops the upgrade while anything uses the Event Bus.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/build/digests"
)

// hooks is the chart that becomes a sub-chart.
const hooks = "eventmesh-migration"

type options struct {
	// charts is where the overlays are.
	charts string
	// chart is Kyma's, and kyma its version.
	chart, kyma string
	// repository and tag of the images, "" for the values of the overlay; digests is
	// a file that names the images by digest.
	repository, tag, digests string
}

func main() {
	var o options
	flag.StringVar(&o.charts, "charts", "charts", "`folder` of the overlays")
	flag.StringVar(&o.chart, "chart", "", "`folder` of Kyma's chart, such as resources/core")
	flag.StringVar(&o.kyma, "kyma", "1.11", "`version` of Kyma that the chart is of: 1.11 or 1.12")
	flag.StringVar(&o.repository, "repository", "", "`registry/path` of the images")
	flag.StringVar(&o.tag, "tag", "", "`tag` of the images")
	flag.StringVar(&o.digests, "digests", "", "`file` with a line registry/path/program@sha256:... for each image")
	flag.Parse()
	if err := overlay(o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func overlay(o options) error {
	if o.chart == "" {
		return errors.New("name Kyma's chart: -chart, or make overlay KYMA_CHART=kyma/resources/core")
	}
	raw, err := os.ReadFile(filepath.Join(o.chart, "Chart.yaml"))
	if err != nil {
		return fmt.Errorf("cannot read Kyma's chart: %w", err)
	}
	var about struct{ Name string }
	if err := yaml.Unmarshal(raw, &about); err != nil {
		return fmt.Errorf("cannot read %s/Chart.yaml: %w", o.chart, err)
	}
	if _, err := os.Stat(filepath.Join(o.chart, "templates", "guard.yaml")); err == nil {
		return fmt.Errorf("%s is an overlay, and no chart of Kyma's", o.chart)
	}
	component := about.Name
	if !slices.Contains([]string{"core", "application-connector", "cluster-essentials"}, component) {
		return fmt.Errorf("there are no hooks for chart %q (valid: core, application-connector, cluster-essentials)", component)
	}
	// Before anything is changed.
	image, err := imageValues(o)
	if err != nil {
		return err
	}
	switch {
	case o.kyma != "1.11" && o.kyma != "1.12":
		return fmt.Errorf("there is nothing to do for Kyma %q: only for 1.11 and 1.12", o.kyma)
	case o.kyma == "1.12" && component != "cluster-essentials":
		return fmt.Errorf("chart %s of Kyma 1.12 needs no hooks: only cluster-essentials does", component)
	case o.kyma == "1.11" && component == "cluster-essentials":
		if err := keepDefinition(o.chart); err != nil {
			return err
		}
		return addNamespace(o)
	case component == "cluster-essentials":
		if err := errors.Join(drop(o.chart, definitionFile), drop(o.chart, namespaceFile)); err != nil {
			return err
		}
	}
	return addHooks(o, component, image)
}

// definitionFile is Kyma's template of the CustomResourceDefinition of Kyma
// Subscriptions (domain: chart cluster-essentials of 1.10 to 1.13).
const definitionFile = "eventing-subscription.crd.yaml"

var (
	keepLine        = regexp.MustCompile(`(?m)^\s+"?helm\.sh/resource-policy"?:`)
	annotationsLine = regexp.MustCompile(`(?m)^  annotations:[ \t]*\n`)
	metadataLine    = regexp.MustCompile(`(?m)^metadata:[ \t]*\n`)
)

// keepDefinition lets the definition outlive a chart that lacks it: Helm would
// delete it, and with it every Kyma Subscription.
func keepDefinition(chart string) error {
	name := filepath.Join(chart, "templates", definitionFile)
	raw, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("cannot read the CustomResourceDefinition of Kyma Subscriptions: %w", err)
	}
	if keepLine.Match(raw) {
		return nil
	}
	const keep = "    helm.sh/resource-policy: keep\n"
	at, text := annotationsLine.FindIndex(raw), keep
	if at == nil {
		at, text = metadataLine.FindIndex(raw), "  annotations:\n"+keep
	}
	if at == nil {
		return fmt.Errorf("%s has no metadata: is it a CustomResourceDefinition?", name)
	}
	return write(name, slices.Concat(raw[:at[1]], []byte(text), raw[at[1]:]))
}

// drop removes a template. The object stays, because of its resource policy.
func drop(chart, template string) error {
	err := os.Remove(filepath.Join(chart, "templates", template))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// namespaceFile is the template of the state namespace.
const namespaceFile = "eventmesh-migration-namespace.yaml"

func addNamespace(o options) error {
	raw, err := os.ReadFile(filepath.Join(o.charts, "cluster-essentials", "1.11", "templates", namespaceFile))
	if err != nil {
		return fmt.Errorf("cannot read the template of the state namespace: %w", err)
	}
	namespace, err := stateNamespace(o)
	if err != nil {
		return err
	}
	if err := write(filepath.Join(o.chart, "templates", namespaceFile), raw); err != nil {
		return err
	}
	return addBlock(filepath.Join(o.chart, "values.yaml"), fmt.Sprintf("%s:\n  stateNamespace: %s\n", hooks, namespace))
}

// stateNamespace is the default of the hooks.
func stateNamespace(o options) (string, error) {
	raw, err := os.ReadFile(filepath.Join(o.charts, hooks, "values.yaml"))
	if err != nil {
		return "", fmt.Errorf("cannot read the values of the hooks: %w", err)
	}
	var values struct{ Namespaces struct{ State string } }
	if err := yaml.Unmarshal(raw, &values); err != nil {
		return "", fmt.Errorf("cannot read the values of the hooks: %w", err)
	}
	if values.Namespaces.State == "" {
		return "", errors.New("the values of the hooks have no namespaces.state")
	}
	return values.Namespaces.State, nil
}

// addHooks makes the hooks a sub-chart.
func addHooks(o options, component, image string) error {
	to := filepath.Join(o.chart, "charts", hooks)
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(filepath.Join(o.charts, hooks))); err != nil {
		return fmt.Errorf("cannot copy the chart of the hooks: %w", err)
	}
	if err := addRequirement(filepath.Join(o.chart, "requirements.yaml")); err != nil {
		return err
	}
	return addBlock(filepath.Join(o.chart, "values.yaml"), fmt.Sprintf("%s:\n  component: %s\n%s", hooks, component, image))
}

// imageValues are the values of the hooks that say which images run.
func imageValues(o options) (string, error) {
	var b strings.Builder
	if o.repository != "" {
		fmt.Fprintf(&b, "    repository: %q\n", o.repository)
	}
	if o.tag != "" {
		fmt.Fprintf(&b, "    tag: %q\n", o.tag)
	}
	if o.digests != "" {
		pinned, err := readDigests(o)
		if err != nil {
			return "", err
		}
		b.WriteString("    digests:\n")
		for _, program := range slices.Sorted(maps.Keys(pinned)) {
			fmt.Fprintf(&b, "      %s: %q\n", program, pinned[program])
		}
	}
	if b.Len() == 0 {
		return "", nil
	}
	return "  image:\n" + b.String(), nil
}

// readDigests reads the digest of each program that the hooks run. A program without
// one would run whatever its tag names, next to those that are pinned: that is an error.
func readDigests(o options) (map[string]string, error) {
	raw, err := os.ReadFile(filepath.Join(o.charts, hooks, "values.yaml"))
	if err != nil {
		return nil, fmt.Errorf("cannot read the values of the hooks: %w", err)
	}
	var values struct {
		Image struct{ Digests map[string]string }
	}
	if err := yaml.Unmarshal(raw, &values); err != nil {
		return nil, fmt.Errorf("cannot read the values of the hooks: %w", err)
	}
	all, err := digests.Read(o.digests, o.repository)
	if err != nil {
		return nil, err
	}
	wanted := map[string]string{}
	for program := range values.Image.Digests {
		// event-service and other images do not belong to the hooks.
		wanted[program] = all[program]
	}
	return wanted, digests.Complete(o.digests, wanted)
}

// addRequirement names the sub-chart where Kyma's chart names its own: Helm
// renders what is in charts/ also without, but tells of the difference.
func addRequirement(name string) error {
	raw, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && bytes.Contains(raw, []byte("name: "+hooks+"\n")) {
		return nil
	}
	if err != nil {
		return err
	}
	lines := regexp.MustCompile(`(?m)^dependencies:[ \t]*\n([ ]*)-`).FindSubmatchIndex(raw)
	if lines == nil {
		return fmt.Errorf("%s has no list of dependencies", name)
	}
	indent := string(raw[lines[2]:lines[3]])
	text := strings.TrimRight(string(raw), "\n") + fmt.Sprintf("\n%[1]s- name: %[2]s\n%[1]s  version: 0.1.0\n", indent, hooks)
	return write(name, []byte(text))
}

const (
	blockBegin = "# The hooks of the migration to the event mesh: put here by make overlay.\n"
	blockEnd   = "# End of the hooks of the migration.\n"
)

// addBlock puts text at the end of a values.yaml, in place of a former one.
func addBlock(name, text string) error {
	raw, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	before, rest, found := strings.Cut(string(raw), blockBegin)
	if found {
		_, after, _ := strings.Cut(rest, blockEnd)
		before += after
	}
	if regexp.MustCompile(`(?m)^` + hooks + `:`).MatchString(before) {
		return fmt.Errorf("%s already has values for %s that were not put there by this command", name, hooks)
	}
	if before != "" && !strings.HasSuffix(before, "\n") {
		before += "\n"
	}
	return write(name, []byte(before+blockBegin+text+blockEnd))
}

// write replaces the content of a file, if it is another one.
func write(name string, content []byte) error {
	old, err := os.ReadFile(name)
	if err == nil && bytes.Equal(old, content) {
		return nil
	}
	return os.WriteFile(name, content, 0o644)
}
