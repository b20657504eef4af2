package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/migration/registry"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// jobsTemplate are the named templates that know the jobs.
func jobsTemplate(all []registry.Entry, tables []table) ([]byte, error) {
	chains, err := registry.Chains(all)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("{{/* Generated from internal/migration/registry by \"make charts\": change it there. */}}\n\n")
	b.WriteString("{{/* What runs when. A line is one job: its name, the command, and the flags that are added. */}}\n")
	b.WriteString("{{- define \"eventmesh-migration.chains\" -}}\n")
	for _, c := range chains {
		fmt.Fprintf(&b, "%s:\n", c.Component)
		writeSteps(&b, "pre", c.Pre)
		writeSteps(&b, "post", c.Post)
		writeSteps(&b, "rollback", c.Rollback)
	}
	b.WriteString("{{- end -}}\n")

	b.WriteString("\n{{/* The flags of a job that name a namespace. Arguments: root, job. */}}\n")
	b.WriteString("{{- define \"eventmesh-migration.namespaceFlags\" -}}\n")
	for _, n := range namespaces {
		var jobs []string
		for i := range all {
			if e := &all[i]; e.Chart != nil && hasSetting(e, n.setting) {
				jobs = append(jobs, e.Name())
			}
		}
		writeIf(&b, fmt.Sprintf("has .job (list %s)", quoted(jobs)), fmt.Sprintf("- {{ printf \"--%s=%%s\" .root.Values.namespaces.%s | quote }}", n.setting, n.key))
	}
	b.WriteString("{{- end -}}\n")

	b.WriteString("\n{{/* Yes, if one of the jobs may patch Namespaces. Argument: names of jobs. */}}\n")
	b.WriteString("{{- define \"eventmesh-migration.patchesNamespaces\" -}}\n")
	b.WriteString("{{- range . }}\n")
	writeIf(&b, fmt.Sprintf("has . (list %s)", quoted(patching(tables))), "yes")
	b.WriteString("{{- end }}\n{{- end -}}\n")

	b.WriteString("\n{{/* Exit codes after which a pod of a Job is not started again: all failures but those by a signal. */}}\n")
	fmt.Fprintf(&b, "{{- define \"eventmesh-migration.finalExitCodes\" -}}\n[%s]\n{{- end -}}\n", strings.Join(finalExitCodes(), ", "))
	return b.Bytes(), nil
}

func finalExitCodes() (codes []string) {
	for _, c := range migration.ExitCodes() {
		if c.Rank > 0 && c.Code != migration.ExitOK && c.Code != migration.ExitSignal {
			codes = append(codes, c.String())
		}
	}
	return codes
}

func writeSteps(b *bytes.Buffer, phase string, steps []registry.Step) {
	if len(steps) == 0 {
		fmt.Fprintf(b, "  %s: []\n", phase)
		return
	}
	fmt.Fprintf(b, "  %s:\n", phase)
	for _, s := range steps {
		fmt.Fprintf(b, "  - {job: %s, command: %s, flags: [%s]", s.Job, s.Command, strings.Join(s.Flags, ", "))
		if s.Always {
			b.WriteString(", always: true")
		}
		b.WriteString("}\n")
	}
}

// writeIf writes a line for which a condition must hold.
func writeIf(b *bytes.Buffer, condition, line string) {
	fmt.Fprintf(b, "{{- if %s }}\n%s\n{{- end }}\n", condition, line)
}

func hasSetting(e *registry.Entry, name string) bool {
	for _, s := range settings(e) {
		if s.Name == name {
			return true
		}
	}
	return false
}

// patching are the jobs whose Roles let them patch Namespaces.
func patching(tables []table) []string {
	var jobs []string
	for _, t := range tables {
		for _, row := range t.rows {
			if row.Group == "" && row.Resource == "namespaces" && slices.Contains(row.Verbs, "patch") {
				jobs = append(jobs, t.job)
				break
			}
		}
	}
	return jobs
}

func quoted(words []string) string {
	all := make([]string, len(words))
	for i, word := range words {
		all[i] = scalar(word)
	}
	return strings.Join(all, " ")
}

// withJobs puts the values of the jobs into values.yaml.
func withJobs(values []byte, all []registry.Entry) ([]byte, error) {
	var digests, jobs bytes.Buffer
	for i := range all {
		e := &all[i]
		if e.Chart == nil {
			continue
		}
		fmt.Fprintf(&digests, "    # @format digest or empty\n    %s: \"\"\n", e.Name())
		fmt.Fprintf(&jobs, "  %s:\n", e.Name())
		if e.Chart.Gate == nil {
			jobs.WriteString("    # false: the job is in no chain.\n    enabled: true\n")
		}
		if e.Chart.TimeoutDoc != "" {
			fmt.Fprintf(&jobs, "    # %s\n", e.Chart.TimeoutDoc)
		}
		fmt.Fprintf(&jobs, "    timeoutSeconds: %d\n", e.Chart.Timeout/time.Second)
		if e.Chart.Rollback == 0 {
			// The flag has to be positive.
			jobs.WriteString("    # The job writes nothing, so there is nothing to roll back.\n    rollbackTimeoutSeconds: 1\n")
		} else {
			fmt.Fprintf(&jobs, "    rollbackTimeoutSeconds: %d\n", e.Chart.Rollback/time.Second)
		}
		jobs.WriteString("    # @items string\n    args: []\n")
	}
	values, err := between(values, "    # @begin digests", "    # @end digests", digests.Bytes())
	if err != nil {
		return nil, err
	}
	return between(values, "  # @begin jobs", "  # @end jobs", jobs.Bytes())
}

// between puts text between two lines, each of which is found by how it begins.
func between(content []byte, begin, end string, text []byte) ([]byte, error) {
	lines := bytes.SplitAfter(content, []byte("\n"))
	find := func(prefix string) int {
		return slices.IndexFunc(lines, func(line []byte) bool { return bytes.HasPrefix(line, []byte(prefix)) })
	}
	from, to := find(begin), find(end)
	if from < 0 || to < from {
		return nil, fmt.Errorf("the lines %q and %q, between which is what is generated, are missing", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return slices.Concat(bytes.Join(lines[:from+1], nil), text, bytes.Join(lines[to:], nil)), nil
}
