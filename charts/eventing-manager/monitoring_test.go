package eventingmanager

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const (
	documents = "../../docs/eventing/"
	runbook   = "https://github.com/kyma-project/eventmesh-migration/blob/main/docs/eventing/"
)

// alert is a rule of monitoring/alerts.yaml.
type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) []alert {
	t.Helper()
	raw, err := os.ReadFile("monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []alert
		}
	}
	if err := yaml.UnmarshalStrict(raw, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) == 0 {
		t.Fatalf("%d groups", len(file.Groups))
	}
	return file.Groups[0].Rules
}

// dashboard is what Grafana reads.
type dashboard struct {
	UID        string
	Panels     []panel
	Templating struct {
		List []struct {
			Name, Type, Label, Definition string
			Query                         any
		}
	}
}

type panel struct {
	Type, Title string
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct {
		Expr, LegendFormat string
		Instant            bool
		Datasource         struct{ UID string }
	}
	FieldConfig struct {
		Defaults struct {
			Unit              string
			NoValue           string
			Color, Thresholds any
		}
	}
}

func read(t *testing.T, file string) (d dashboard) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return d
}

// panels are the expressions of a dashboard, by its panels.
func panels(t *testing.T, file string) map[string][]string {
	t.Helper()
	dashboard := read(t, file)
	if want := "eventing-" + strings.TrimSuffix(filepath.Base(file), ".json"); dashboard.UID != want {
		t.Errorf("%s has the uid %q, want %q: links lead there", file, dashboard.UID, want)
	}
	all := map[string][]string{}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], target.Expr)
		}
		if p.Type != "row" && len(all[p.Title]) == 0 {
			t.Errorf("%s: panel %q asks for nothing", file, p.Title)
		}
	}
	return all
}

func dashboards(t *testing.T) map[string]map[string][]string {
	t.Helper()
	files, err := filepath.Glob("monitoring/dashboards/*.json")
	if err != nil || len(files) != 3 {
		t.Fatalf("%v, %v", files, err)
	}
	all := map[string]map[string][]string{}
	for _, file := range files {
		all[file] = panels(t, file)
	}
	return all
}

var (
	row        = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram) \\| ([^|]*) \\|")
	text       = regexp.MustCompile(`"[^"]*"`)
	rangeOf    = regexp.MustCompile(`\[[^\]]*\]`)
	clause     = regexp.MustCompile(`\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	identifier = regexp.MustCompile(`\b([a-zA-Z_][a-zA-Z0-9_]*)\s*(\(|\{[^}]*\})?`)
	operators  = []string{"and", "or", "unless", "bool", "offset"}
	// others are metrics that are not ours, with the labels that rules need.
	others = map[string][]string{"leader_election_master_status": {"name"}}
	// scraped are labels that Prometheus adds.
	scraped = []string{"instance", "le", "subscription"}
)

// documented are the labels of the metrics in docs/eventing/metrics.md. TestMetrics in
// test/integration/eventingmanager proves that the programs have exactly these.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile(documents + "metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	all := maps.Clone(others)
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		var labels []string
		for label := range strings.SplitSeq(m[3], ",") {
			labels = append(labels, strings.Trim(label, " `"))
		}
		all[m[1]] = labels
		if m[2] == "histogram" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				all[m[1]+suffix] = labels
			}
			delete(all, m[1])
		}
	}
	return all
}

// unknown names what an expression asks for and nothing has.
func unknown(expr string, metrics map[string][]string) (wrong []string) {
	expr = rangeOf.ReplaceAllString(text.ReplaceAllString(expr, `""`), "")
	known := slices.Clone(scraped)
	for _, m := range identifier.FindAllStringSubmatch(clause.ReplaceAllString(expr, " "), -1) {
		name, behind := m[1], m[2]
		if behind == "(" || slices.Contains(operators, name) {
			continue
		}
		labels, ok := metrics[name]
		if !ok {
			wrong = append(wrong, "metric "+name)
			continue
		}
		known = append(known, labels...)
		for _, label := range identifier.FindAllStringSubmatch(strings.Trim(behind, "{}"), -1) {
			if !slices.Contains(labels, label[1]) {
				wrong = append(wrong, "label "+label[1]+" of "+name)
			}
		}
	}
	for _, m := range clause.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(m[2], ",") {
			if label = strings.TrimSpace(label); label != "" && !slices.Contains(known, label) {
				wrong = append(wrong, "label "+label)
			}
		}
	}
	return wrong
}

// TestAlertsAndPanelsHaveData: whatever an alert or a panel asks for is a metric that the programs
// have, with these labels. An alert without data never fires, and a panel without data is empty.
func TestAlertsAndPanelsHaveData(t *testing.T) {
	metrics := documented(t)
	if len(metrics) < 30 {
		t.Fatalf("docs/eventing/metrics.md has %d metrics", len(metrics))
	}
	for file, panels := range dashboards(t) {
		for panel, all := range panels {
			for _, expr := range all {
				for _, wrong := range unknown(expr, metrics) {
					t.Errorf("%s, panel %q: nothing has %s", file, panel, wrong)
				}
			}
		}
	}
	for _, a := range alerts(t) {
		for _, wrong := range unknown(a.Expr, metrics) {
			t.Errorf("alert %s: nothing has %s", a.Alert, wrong)
		}
	}
	for expr, want := range map[string][]string{
		`sum by (code) (rate(eventing_delivery_total{code=~"2..|{}"}[5m])) > 1`: nil,
		`sum by (kode) (rate(eventing_delivery_total{kode="2"}[5m]))`:           {"label kode of eventing_delivery_total", "label kode"},
		`histogram_quantile(0.5, rate(eventing_delivery_latency_seconds[5m]))`:  {"metric eventing_delivery_latency_seconds"},
		`absent(eventing_gone) or 2 * eventing_delivery_backlog offset 5m`:      {"metric eventing_gone"},
	} {
		if diff := gocmp.Diff(want, unknown(expr, metrics)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", expr, diff)
		}
	}
}

var (
	inLegend = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)
	grouped  = regexp.MustCompile(`\bby \(([^)]*)\)`)
	values   = regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)
)

// wrong names what somebody would stumble over who looks at a panel.
func (p *panel) wrong() (all []string) {
	say := func(problem string, with ...any) { all = append(all, fmt.Sprintf(problem, with...)) }
	unit := p.FieldConfig.Defaults.Unit
	for _, target := range p.Targets {
		if target.Datasource.UID != "${datasource}" {
			say("it asks %q, and not the Prometheus that was chosen", target.Datasource.UID)
		}
		var want []string
		for _, m := range grouped.FindAllStringSubmatch(target.Expr, -1) {
			for label := range strings.SplitSeq(m[1], ",") {
				if label = strings.TrimSpace(label); label != "le" && !slices.Contains(want, label) {
					want = append(want, label)
				}
			}
		}
		var named []string
		for _, m := range inLegend.FindAllStringSubmatch(target.LegendFormat, -1) {
			named = append(named, m[1])
		}
		slices.Sort(want)
		slices.Sort(named)
		if (p.Type != "stat" || named != nil) && !slices.Equal(want, named) {
			say("its legend names %v, and %v tell the series apart", named, want)
		}
		if (p.Type == "timeseries" || len(p.Targets) > 1) && target.LegendFormat == "" {
			say("its legend would be the expression %s", target.Expr)
		}
		if p.Type == "stat" && want != nil && len(named) > 0 && !target.Instant {
			say("it shows each value that there was, and not the one that is")
		}
		units := map[bool][]string{true: {"eps", "reqps"}}[strings.Contains(target.Expr, "rate(")]
		switch {
		case strings.Contains(target.Expr, "histogram_quantile") || strings.Contains(target.Expr, "_seconds{") || strings.HasSuffix(strings.Trim(target.Expr, ")"), "_seconds"):
			units = []string{"s"}
		case strings.Contains(target.Expr, "_ratio") || strings.Contains(target.Expr, " / "):
			units = []string{"percentunit"}
		case strings.Contains(target.Expr, "_bytes"):
			units = []string{"bytes"}
		case units == nil:
			units = []string{"short"}
		case strings.Contains(target.Expr, "eventing_publisher_events_"):
			units = []string{"eps"}
		}
		if !slices.Contains(units, unit) {
			say("its unit is %q, and %s is in %v", unit, target.Expr, units)
		}
	}
	d := p.FieldConfig.Defaults
	if p.Type == "stat" && d.Thresholds == nil && d.Color == nil {
		say("its values become red from 80 on: Grafana's own thresholds")
	}
	if p.Type == "stat" && d.NoValue == "" {
		say("it says \"No data\" before the first event")
	}
	return all
}

// TestPanels: what was seen with the renderer of Grafana stays as it is: units, legends, colours,
// and a layout without holes.
func TestPanels(t *testing.T) {
	metrics := documented(t)
	for file := range dashboards(t) {
		d := read(t, file)
		wide := map[int]int{}
		for i := range d.Panels {
			p := &d.Panels[i]
			for _, problem := range p.wrong() {
				t.Errorf("%s, panel %q: %s", file, p.Title, problem)
			}
			if p.GridPos.X != wide[p.GridPos.Y] {
				t.Errorf("%s, panel %q begins at %d, and the one before it ends at %d", file, p.Title, p.GridPos.X, wide[p.GridPos.Y])
			}
			wide[p.GridPos.Y] += p.GridPos.W
		}
		for y, w := range wide {
			if w != 24 {
				t.Errorf("%s: the panels at %d are %d wide of 24", file, y, w)
			}
		}
		for _, v := range d.Templating.List {
			if v.Type == "datasource" {
				continue
			}
			m := values.FindStringSubmatch(v.Definition)
			if m == nil || !slices.Contains(metrics[m[1]], m[2]) {
				t.Errorf("%s: nothing has what the variable %s is of: %q", file, v.Name, v.Definition)
			}
		}
	}
	bad := panel{Type: "stat"}
	if err := json.Unmarshal([]byte(`[{"expr": "sum by (code) (rate(eventing_delivery_total[1m]))", "legendFormat": "{{kode}}"}, {"expr": "max(x_bytes)"}]`), &bad.Targets); err != nil {
		t.Fatal(err)
	}
	if got := bad.wrong(); len(got) != 9 {
		t.Errorf("of a panel that is all wrong, this is found: %q", got)
	}
}

// TestRunbooks: each alert says what is wrong, and leads to a heading that is there.
func TestRunbooks(t *testing.T) {
	for _, a := range alerts(t) {
		page, anchor, _ := strings.Cut(strings.TrimPrefix(a.Annotations["runbook_url"], runbook), "#")
		raw, err := os.ReadFile(documents + page)
		if err != nil || !strings.HasPrefix(a.Annotations["runbook_url"], runbook) {
			t.Errorf("alert %s leads to %q: %v", a.Alert, a.Annotations["runbook_url"], err)
			continue
		}
		if !slices.Contains(anchors(string(raw)), anchor) {
			t.Errorf("alert %s leads to #%s, and %s has no such heading", a.Alert, anchor, page)
		}
		if !strings.Contains(string(raw), "`"+a.Alert+"`") {
			t.Errorf("%s does not name the alert %s", page, a.Alert)
		}
		if a.Annotations["summary"] == "" || !strings.Contains(a.Annotations["description"], "Next: kubectl ") || !slices.Contains([]string{"critical", "warning"}, a.Labels["severity"]) {
			t.Errorf("alert %s has labels %v and annotations %v", a.Alert, a.Labels, a.Annotations)
		}
	}
}

var (
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noWord  = regexp.MustCompile(`[^a-z0-9 -]`)
)

// anchors are those of the headings, as GitHub makes them.
func anchors(page string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		all = append(all, strings.ReplaceAll(noWord.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

// promtool is the tool of Prometheus for rules.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (Debian: it is in the package prometheus)")
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args[:2], " "), err, &out)
	}
}

// writeYAML writes a file for promtool.
func writeYAML(t *testing.T, content any) (file string) {
	t.Helper()
	raw, err := yaml.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "test.yaml")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestExpressions: Prometheus understands the alerts and what panels ask for.
func TestExpressions(t *testing.T) {
	promtool(t, "check", "rules", "monitoring/alerts.yaml")
	var rules []map[string]string
	for file, panels := range dashboards(t) {
		for _, panel := range slices.Sorted(maps.Keys(panels)) {
			for _, expr := range panels[panel] {
				expr = strings.NewReplacer("$__rate_interval", "2m", "$subscription", "shop/orders").Replace(expr)
				rules = append(rules, map[string]string{
					"record": fmt.Sprintf("panel:%s:%d", strings.TrimSuffix(filepath.Base(file), ".json"), len(rules)), "expr": expr,
				})
			}
		}
	}
	promtool(t, "check", "rules", writeYAML(t, map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": rules}}}))
}

// series are input series of promtool: values by name and labels. A value and a step are repeated:
// "1+2x60" is 1, 3, 5, one each minute.
type series map[string]string

// scene is what Prometheus sees for two hours, in addition to a healthy installation, and which
// alerts fire at a time.
type scene struct {
	reason string
	at     string
	change series // "" takes a series of the healthy installation away
	want   []string
}

// healthy is an installation with events, of which a few are refused and taken later.
func healthy() series {
	all := series{
		`eventing_manager_applies_total{instance="m"}`:                                 "5x120",
		`eventing_manager_nats_connected{instance="m"}`:                                "1x120",
		`eventing_manager_storage_full{instance="m"}`:                                  "0x120",
		`eventing_manager_stream_full_types{instance="m"}`:                             "0x120",
		`eventing_manager_stream_bytes{instance="m"}`:                                  "100x120",
		`eventing_manager_stream_limit_bytes{instance="m"}`:                            "1000x120",
		`eventing_manager_volume_used_ratio{instance="m"}`:                             "0.3x120",
		`leader_election_master_status{instance="m",name="eventing-manager"}`:          "1x120",
		`leader_election_master_status{instance="c1",name="eventing-controller"}`:      "1x120",
		`leader_election_master_status{instance="c2",name="eventing-controller"}`:      "0x120",
		`eventing_ec_health{instance="c1"}`:                                            "1x120",
		`eventing_ec_health{instance="c2"}`:                                            "1x120",
		`eventing_controller_nats_connected{instance="c1"}`:                            "1x120",
		`eventing_delivery_total{instance="c1",subscription="shop/orders",code="204"}`: "0+60x120",
		`eventing_delivery_total{instance="c1",subscription="shop/orders",code="503"}`: "0+1x120",
		`eventing_delivery_backlog{instance="c1",subscription="shop/orders"}`:          "3x120",
		age: "0.1x120",
		`eventing_publisher_requests_total{instance="p1",route="publish",code="204"}`: "0+60x120",
		`eventing_publisher_requests_total{instance="p1",route="publish",code="400"}`: "0+1x120",
		`eventing_publisher_requests_total{instance="p1",route="ready",code="503"}`:   "0+1x120",
		`eventing_publisher_requests_total{instance="p1",route="publish",code="503"}`: "0x60 3x60", // a moment in an hour
		`eventing_publisher_accepts{instance="p1",backend="NATS"}`:                    "1x120",
		`eventing_publisher_nats_connected{instance="p1",backend="NATS"}`:             "1x120",
		`eventing_manager_switch_step{instance="m",step="Idle"}`:                      "1x120",
		`eventing_manager_switch_step{instance="m",step="Blocked"}`:                   "0x120",
	}
	for _, state := range []string{"Deleting", "Warning", "Error", "Processing", "Ready"} {
		all[fmt.Sprintf(`eventing_manager_state{instance="m",state=%q}`, state)] = "0x120"
	}
	all[`eventing_manager_state{instance="m",state="Ready"}`] = "1x120"
	return all
}

const (
	taken   = `eventing_delivery_total{instance="c1",subscription="shop/orders",code="204"}`
	failed  = `eventing_delivery_total{instance="c1",subscription="shop/orders",code="503"}`
	refused = `eventing_delivery_total{instance="c1",subscription="shop/orders",code="400"}`
	waits   = `eventing_delivery_backlog{instance="c1",subscription="shop/orders"}`
	age     = `eventing_delivery_oldest_age_seconds{instance="c1",subscription="shop/orders"}`
	fill    = `eventing_manager_stream_bytes{instance="m"}`
)

func state(name string) string {
	return fmt.Sprintf(`eventing_manager_state{instance="m",state=%q}`, name)
}

// gone are the series of an instance, which nobody finds any more.
func gone(instance string) series {
	all := series{}
	for name := range healthy() {
		if strings.Contains(name, fmt.Sprintf("instance=%q", instance)) {
			all[name] = ""
		}
	}
	return all
}

func with(all ...series) series {
	out := series{}
	for _, s := range all {
		maps.Copy(out, s)
	}
	return out
}

var scenes = []scene{
	{reason: "a healthy installation", at: "110m"},
	{reason: "nothing is installed, or nothing is scraped", at: "110m", change: with(gone("m"), gone("c1"), gone("c2"), gone("p1"))},
	{reason: "the chart alone is installed", at: "110m", change: with(gone("c1"), gone("c2"), gone("p1"), series{
		state("Ready"): "", state("Error"): "", state("Warning"): "", state("Processing"): "", state("Deleting"): "", `eventing_manager_nats_connected{instance="m"}`: "",
		fill: "", `eventing_manager_stream_limit_bytes{instance="m"}`: "", `eventing_manager_volume_used_ratio{instance="m"}`: "",
	})},
	{reason: "the Eventing is being deleted", at: "110m", change: with(gone("c1"), gone("c2"), gone("p1"), series{state("Ready"): "0x120", state("Deleting"): "1x120"})},
	{reason: "an installation takes its time", at: "8m", change: with(gone("c1"), gone("c2"), gone("p1"), series{state("Ready"): "0x120", state("Processing"): "1x120"})},

	{reason: "the operator is gone", at: "10m", change: gone("m"), want: []string{"EventingOperatorDown"}},
	{reason: "it is gone for a moment", at: "4m", change: series{`eventing_manager_applies_total{instance="m"}`: "_x5 5x60"}},
	{reason: "no publisher runs", at: "15m", change: gone("p1"), want: []string{"EventingPublisherDown"}},
	{reason: "no controller leads", at: "15m", change: series{
		`leader_election_master_status{instance="c1",name="eventing-controller"}`: "0x120", `eventing_controller_nats_connected{instance="c1"}`: "",
	}, want: []string{"EventingControllerDown"}},
	{reason: "no controller runs", at: "15m", change: with(gone("c1"), gone("c2")), want: []string{"EventingControllerDown"}},
	{reason: "another one leads", at: "15m", change: with(gone("c1"), series{`leader_election_master_status{instance="c2",name="eventing-controller"}`: "1x120"})},

	{reason: "the operator does not reach NATS", at: "10m", change: series{`eventing_manager_nats_connected{instance="m"}`: "0x120"}, want: []string{"EventingNATSAway"}},
	{reason: "a publisher does not", at: "10m", change: series{`eventing_publisher_nats_connected{instance="p1",backend="NATS"}`: "0x120"}, want: []string{"EventingNATSAway"}},
	{reason: "the controller does not", at: "10m", change: series{`eventing_controller_nats_connected{instance="c1"}`: "0x120"}, want: []string{"EventingNATSAway"}},
	{reason: "NATS is replaced", at: "3m", change: series{`eventing_manager_nats_connected{instance="m"}`: "1x1 0x1 1x120"}},
	{reason: "the mesh has no NATS", at: "110m", change: series{
		`eventing_manager_nats_connected{instance="m"}`: "", `eventing_controller_nats_connected{instance="c1"}`: "", `eventing_publisher_nats_connected{instance="p1",backend="NATS"}`: "",
		`eventing_publisher_accepts{instance="p1",backend="NATS"}`: "", `eventing_publisher_accepts{instance="p1",backend="EventMesh"}`: "1x120",
		fill: "", `eventing_manager_stream_limit_bytes{instance="m"}`: "", `eventing_manager_volume_used_ratio{instance="m"}`: "", `eventing_manager_storage_full{instance="m"}`: "",
	}},

	{reason: "the publisher refuses", at: "15m", change: series{`eventing_publisher_requests_total{instance="p1",route="publish",code="503"}`: "0+2x120"}, want: []string{"EventingPublisherRefuses"}},
	{reason: "it refuses for a moment", at: "62m"},
	{reason: "there is no room", at: "10m", change: series{`eventing_manager_storage_full{instance="m"}`: "1x120", fill: "995x120"}, want: []string{"EventingStorageFull"}},
	{reason: "one type has no room, and the operator does not say so", at: "10m", change: series{`eventing_publisher_requests_total{instance="p1",route="publish",code="507"}`: "0+1x120"}, want: []string{"EventingStorageFull"}},
	{reason: "one type has no room", at: "10m", change: series{`eventing_manager_stream_full_types{instance="m"}`: "1x120"}, want: []string{"EventingStorageFull"}},
	{reason: "there is no room for a moment", at: "10m", change: series{`eventing_manager_storage_full{instance="m"}`: "0x9 1x1"}},
	{reason: "the stream has just become nearly full", at: "12m", change: series{fill: "100x9 850x110"}},
	{reason: "the stream is nearly full", at: "110m", change: series{fill: "800x120"}, want: []string{"EventingStorageNearlyFull"}},
	{reason: "a volume is", at: "110m", change: series{`eventing_manager_volume_used_ratio{instance="m"}`: "0.8x120"}, want: []string{"EventingStorageNearlyFull"}},
	{reason: "neither is", at: "110m", change: series{fill: "790x120", `eventing_manager_volume_used_ratio{instance="m"}`: "0.79x120"}},
	{reason: "the stream fills up", at: "110m", change: series{fill: "500+2x120"}, want: []string{"EventingStorageFillsUp"}},
	{reason: "it has begun to fill up", at: "20m", change: series{fill: "500+2x120"}},
	{reason: "it fills up slowly", at: "110m", change: series{fill: "500+1x120"}},
	{reason: "it is nearly empty, and a burst comes", at: "110m", change: series{fill: "0+4x120"}},

	{reason: "a sink refuses all", at: "60m", change: series{taken: "0x120", failed: "0+6x120"}, want: []string{"EventingSinkRefuses"}},
	{reason: "it has begun to", at: "6m", change: series{taken: "0x120", failed: "0+6x120"}},
	{reason: "a sink does not answer", at: "60m", change: series{taken: "0x120", failed: "", `eventing_delivery_total{instance="c1",subscription="shop/orders",code="error"}`: "0+6x120"}, want: []string{"EventingSinkRefuses"}},
	{reason: "its one event is sent again every 5 minutes, 6 at most", at: "110m", change: series{taken: "", failed: "", refused: "1x5 2x5 3x5 4x5 5x5 6x5 7x5 8x5 9x5 10x5 11x5 12x5 13x5 14x5 15x5 16x5 17x5 18x5 19x5 20x5"}, want: []string{"EventingSinkRefuses"}},
	{reason: "it refused for 10 minutes", at: "20m", change: series{taken: "0x10 0+60x110", failed: "0+6x10 60x110"}},
	{reason: "what it had refused became dead letters, and nothing comes", at: "110m", change: series{taken: "5x120", failed: "0+6x60 360x60", `eventing_delivery_total{instance="c1",subscription="shop/orders",code="dead-letter"}`: "9x120"}},
	{reason: "no events at all", at: "110m", change: series{taken: "5x120", failed: "7x120"}},
	{reason: "it refuses one event for good", at: "110m", change: series{refused: "0+1x120"}, want: []string{"EventingEventsRefused"}},
	{reason: "it has refused one for half an hour", at: "110m", change: series{refused: "0x80 0+1x40"}},
	{reason: "it is busy now and then", at: "110m", change: series{`eventing_delivery_total{instance="c1",subscription="shop/orders",code="429"}`: "0+1x120"}},

	{reason: "a backlog grows, because the sink is too slow", at: "110m", change: series{waits: "0+200x120"}, want: []string{"EventingBacklogGrows"}},
	{reason: "a backlog grows, and nothing is taken", at: "110m", change: series{taken: "", failed: "0+6x120", waits: "0+60x120"}, want: []string{"EventingBacklogGrows", "EventingSinkRefuses"}},
	{reason: "a large one becomes smaller", at: "110m", change: series{waits: "90000-60x120"}},
	{reason: "a small one grows", at: "110m", change: series{waits: "0+0.5x120"}},
	{reason: "a burst of ten minutes", at: "35m", change: series{waits: "0x20 0+3000x10 30000-300x90"}},

	{reason: "events wait, and nobody sends them", at: "60m", change: series{taken: "5x120", failed: "7x120", age: "0+60x120"}, want: []string{"EventingEventsNotSent"}},
	{reason: "nobody has sent any, for a moment", at: "18m", change: series{taken: "5x120", failed: "7x120", age: "0+60x120"}},
	{reason: "an old one waits behind others that are taken", at: "110m", change: series{age: "3600x120"}},
	{reason: "an old one is refused now and then, and nothing else comes", at: "110m", change: series{taken: "", failed: "0+6x120", age: "0+60x120"}, want: []string{"EventingSinkRefuses"}},

	{reason: "dead letters", at: "10m", change: series{`eventing_dead_letters{instance="c1",subscription="shop/orders"}`: "3x120", `eventing_dead_letters{instance="c1",subscription="shop/bills"}`: "1x120"}, want: []string{"EventingDeadLetters", "EventingDeadLetters"}},
	{reason: "they were taken out", at: "10m", change: series{`eventing_dead_letters{instance="c1",subscription="shop/orders"}`: "3x5 0x120"}},
	{reason: "a switch has just been blocked", at: "12m", change: series{`eventing_manager_switch_step{instance="m",step="Idle"}`: "0x120", `eventing_manager_switch_step{instance="m",step="Blocked"}`: "0x9 1x110"}},
	{reason: "a switch is blocked", at: "12m", change: series{`eventing_manager_switch_step{instance="m",step="Idle"}`: "0x120", `eventing_manager_switch_step{instance="m",step="Blocked"}`: "1x120"}, want: []string{"EventingSwitchBlocked"}},
	{reason: "it goes on", at: "12m", change: series{`eventing_manager_switch_step{instance="m",step="Idle"}`: "0x120", `eventing_manager_switch_step{instance="m",step="Draining"}`: "1x120"}},
	{reason: "somebody has to act", at: "12m", change: series{state("Ready"): "0x120", state("Warning"): "1x120"}, want: []string{"EventingNotReady"}},
	{reason: "something is missing", at: "12m", change: series{state("Ready"): "0x120", state("Error"): "1x120"}, want: []string{"EventingNotReady"}},
	{reason: "something is missing for a moment", at: "8m", change: series{state("Ready"): "1x5 0x3 1x120", state("Error"): "0x5 1x3 0x120"}},
}

// TestAlerts: each alert fires when it should, and no other one does.
func TestAlerts(t *testing.T) {
	file, err := filepath.Abs("monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tests []any
	fired := map[string]bool{}
	for _, s := range scenes {
		counts := map[string]int{}
		for _, name := range s.want {
			counts[name]++
			fired[name] = true
		}
		samples := []any{}
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			samples = append(samples, map[string]any{"labels": fmt.Sprintf("{alertname=%q}", name), "value": counts[name]})
		}
		tests = append(tests, map[string]any{
			"name": s.reason, "interval": "1m", "input_series": input(s.change),
			"promql_expr_test": []any{map[string]any{"expr": `count by (alertname) (ALERTS{alertstate="firing"})`, "eval_time": s.at, "exp_samples": samples}},
		})
	}
	for _, a := range alerts(t) {
		if !fired[a.Alert] {
			t.Errorf("no scene shows that %s fires", a.Alert)
		}
	}
	promtool(t, "test", "rules", writeYAML(t, map[string]any{"rule_files": []string{file}, "evaluation_interval": "1m", "tests": append(tests, words(t))}))
}

// input is the healthy installation with a change, for promtool.
func input(change series) (all []any) {
	seen := with(healthy(), change)
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		if seen[name] != "" {
			all = append(all, map[string]string{"series": name, "values": seen[name]})
		}
	}
	return all
}

// words is a test of what somebody reads: the Subscription and its namespace are in the command.
func words(t *testing.T) any {
	t.Helper()
	all := alerts(t)
	i := slices.IndexFunc(all, func(a alert) bool { return a.Alert == "EventingSinkRefuses" })
	annotations := map[string]string{}
	for key, value := range all[i].Annotations {
		annotations[key] = strings.NewReplacer(
			"{{ $labels.subscription }}", "shop/orders",
			`{{ reReplaceAll "/.*" "" $labels.subscription }}`, "shop",
			`{{ reReplaceAll ".*/" "" $labels.subscription }}`, "orders",
		).Replace(value)
	}
	if want := "kubectl -n shop describe subscriptions.eventing.kyma-project.io orders"; !strings.HasSuffix(annotations["description"], want) {
		t.Errorf("the description does not end with %q: %s", want, cmp.Or(annotations["description"], "nothing"))
	}
	return map[string]any{
		"name": "the words of an alert", "interval": "1m", "input_series": input(series{taken: "0x120", failed: "0+6x120"}),
		"alert_rule_test": []any{map[string]any{
			"alertname": "EventingSinkRefuses", "eval_time": "60m",
			"exp_alerts": []any{map[string]any{"exp_labels": map[string]string{"severity": "warning", "subscription": "shop/orders"}, "exp_annotations": annotations}},
		}},
	}
}
