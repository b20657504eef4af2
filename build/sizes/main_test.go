package main

import (
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		reason       string
		size, before int64
		byName       []string
		want         string // "": nothing is wrong
	}{
		{"as it was", 31e6, 31e6, nil, ""},
		{"5 % more", 42e6, 40e6, nil, ""},
		{"more than 5 %", 42e6 + 1, 40e6, nil, "say why in CHANGELOG.md"},
		{"as large as none may be, whatever it was", 50e6, 50e6, nil, "may have less than 50"},
		{"a new program", 31e6, 0, nil, "no line in"},
		{"a template", 31e6, 31e6, []string{"text/template.(*state).evalField"}, "evalField"},
	} {
		var said []string
		for _, fault := range judge("p", tc.size, tc.before, tc.byName) {
			said = append(said, fault.Error())
		}
		if all := strings.Join(said, "\n"); !strings.Contains(all, tc.want) || (all == "") != (tc.want == "") {
			t.Errorf("%s: %q, want %q", tc.reason, all, tc.want)
		}
	}
}
