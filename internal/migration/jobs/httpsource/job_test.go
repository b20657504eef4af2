package httpsource

import (
	"strings"
	"testing"
	"time"
)

func TestValidate(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*Job)
		want   []string
	}{
		"Defaults": {"The defaults are valid.", func(*Job) {}, nil},
		"Create":   {"The other choice is valid, too.", func(j *Job) { j.options.onHelm2Conflict = create }, nil},
		"Everything": {"Every bad value is named at once.", func(j *Job) {
			j.readyTimeout = -time.Second
			j.options.onHelm2Conflict = "maybe"
			j.options.namespace = ""
			j.options.tillerNamespace = "Kube_System"
		}, []string{"--ready-timeout must be positive, not -1s", `--on-helm2-conflict must be leave or create, not "maybe"`,
			`--integration-namespace ""`, `--tiller-namespace "Kube_System"`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			j := New()
			tc.change(j)
			err := j.Validate()
			if (err != nil) != (len(tc.want) > 0) {
				t.Fatalf("%s\nValidate(): %v", tc.reason, err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s\nValidate() = %q lacks %q", tc.reason, err, want)
				}
			}
		})
	}
}

func TestSettings(t *testing.T) {
	j := New()
	for _, s := range j.Settings() {
		switch v := s.Value.(type) {
		case *time.Duration:
			*v = time.Hour
		case *string:
			*v = s.Name
		default:
			t.Errorf("--%s has a value of type %T, which no flag can hold", s.Name, v)
		}
		if s.Usage == "" {
			t.Errorf("--%s says nothing about itself", s.Name)
		}
	}
	want := options{namespace: "integration-namespace", tillerNamespace: "tiller-namespace", onHelm2Conflict: "on-helm2-conflict"}
	if j.options != want || j.readyTimeout != time.Hour {
		t.Errorf("flags set %+v, %s; want %+v, 1h: one is bound to another's field", j.options, j.readyTimeout, want)
	}
}

func TestDoc(t *testing.T) {
	short, long := New().Doc()
	if strings.Contains(short, "\n") || short == "" {
		t.Errorf("the first line is %q", short)
	}
	for _, s := range New().Settings() {
		if s.Name == "ready-timeout" || s.Name == "on-helm2-conflict" {
			if !strings.Contains(long, "--"+s.Name) {
				t.Errorf("the manual does not explain --%s", s.Name)
			}
		}
	}
	for i, line := range strings.Split(long, "\n") {
		if len(line) > 80 {
			t.Errorf("line %d of the manual is wider than a terminal: %q", i+1, line)
		}
	}
}
