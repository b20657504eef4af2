package eventingmanager_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// trouble are panels of what does not happen in TestMetrics: without data, they say so in words.
var trouble = []string{"Refused by the backend"}

// prometheus is a real one that scrapes the programs.
type prometheus struct{ url string }

// startPrometheus returns nil if this machine has none: .ci/run downloads it.
func startPrometheus(t *testing.T, targets ...string) *prometheus {
	t.Helper()
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		t.Log("the dashboards were not asked: no prometheus")
		return nil
	}
	free, err := process.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	address, dir := fmt.Sprintf("127.0.0.1:%d", free[0]), t.TempDir()
	config, err := json.Marshal(map[string]any{ // JSON is YAML
		"global":         map[string]string{"scrape_interval": "1s"},
		"scrape_configs": []any{map[string]any{"job_name": "eventing", "static_configs": []any{map[string]any{"targets": targets}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	process.Start(t, process.Program{Binary: binary, Args: []string{"--config.file=" + file, "--storage.tsdb.path=" + dir, "--web.listen-address=" + address, "--enable-feature=exemplar-storage"}})
	return &prometheus{url: "http://" + address}
}

// ask returns the data of an answer.
func (p *prometheus) ask(ctx context.Context, path string, query url.Values, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer := struct {
		Error string
		Data  any
	}{Data: into}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}

// numbers are how many series of an expression have one.
func (p *prometheus) numbers(ctx context.Context, expr string) (n int, err error) {
	var data struct{ Result []struct{ Value [2]any } }
	if err := p.ask(ctx, "/api/v1/query", url.Values{"query": {expr}}, &data); err != nil {
		return 0, fmt.Errorf("%s: %w", expr, err)
	}
	for _, r := range data.Result {
		text, _ := r.Value[1].(string)
		if f, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(f) {
			n++
		}
	}
	return n, nil
}

// dashboard is what Grafana reads.
type dashboard struct {
	Panels []struct {
		Type, Title string
		Targets     []struct{ Expr string }
		FieldConfig struct{ Defaults struct{ NoValue string } }
	}
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

var labelValues = regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)

// empty names what of a dashboard has no data, with a value for each variable.
func (d *dashboard) empty(ctx context.Context, p *prometheus, chosen map[string]string) (all []string, err error) {
	variables := []string{"$__rate_interval", "5s"}
	for _, v := range d.Templating.List {
		m := labelValues.FindStringSubmatch(v.Definition)
		if m == nil {
			continue
		}
		var has []string
		if err := p.ask(ctx, "/api/v1/label/"+m[2]+"/values", url.Values{"match[]": {m[1]}}, &has); err != nil {
			return nil, err
		}
		if !slices.Contains(has, chosen[v.Name]) {
			return nil, fmt.Errorf("the variable %s has the values %q, without %q", v.Name, has, chosen[v.Name])
		}
		variables = append(variables, "$"+v.Name, chosen[v.Name])
	}
	fill := strings.NewReplacer(variables...)
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			n, err := p.numbers(ctx, fill.Replace(target.Expr))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", panel.Title, err)
			}
			if n > 0 {
				continue
			}
			if slices.Contains(trouble, panel.Title) && panel.FieldConfig.Defaults.NoValue != "" {
				continue
			}
			all = append(all, fmt.Sprintf("%s: %s", panel.Title, target.Expr))
		}
	}
	return all, nil
}

// dashboards checks that each panel of each dashboard has numbers, while events come in.
func (s *site) dashboards(p *prometheus) {
	s.t.Helper()
	if p == nil {
		return
	}
	root, err := kubernetes.ModuleRoot()
	s.check(err)
	files, err := filepath.Glob(filepath.Join(root, "charts/eventing-manager/monitoring/dashboards/*.json"))
	s.check(err)
	if len(files) != 3 {
		s.t.Fatalf("%q", files)
	}
	n := 0
	for _, file := range files {
		raw, err := os.ReadFile(file)
		s.check(err)
		var d dashboard
		s.check(json.Unmarshal(raw, &d))
		poll.Until(s.t, 30*time.Second, "each panel of "+filepath.Base(file)+" has data", func(ctx context.Context) error {
			n++
			s.event(fmt.Sprintf("panel-%d", n), "order.created.v1")
			s.event(fmt.Sprintf("panel-%d", n), "order") // is refused
			empty, err := d.empty(ctx, p, map[string]string{"subscription": s.namespace + "/orders"})
			if err == nil && empty != nil {
				err = fmt.Errorf("without data:\n%s", strings.Join(empty, "\n"))
			}
			return err
		})
	}
}
