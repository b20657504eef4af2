package chart

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// data is what the templates of these tests read. Each call is a copy: templates change what they get.
func data(t testing.TB) any {
	t.Helper()
	all, err := plain("", map[string]any{
		"text": "Hello", "empty": "", "lines": "a: 1\nb: two", "digits": "8080", "int": 2, "int64": int64(3), "float": 1.5, "big": float64(1048576),
		"zero": int64(0), "yes": true, "no": false, "null": nil, "list": []any{"x", "y", int64(7)}, "lists": []any{[]any{1, 2}, []any{}},
		"none": []any{}, "map": map[string]any{"b": "2", "a": "1", "c": map[string]any{"d": "deep"}}, "nothing": map[string]any{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// evaluate renders with our evaluator.
func evaluate(t testing.TB, text string) (string, error) {
	t.Helper()
	all := templates{}
	if err := all.add("test", text); err != nil {
		return "", err
	}
	return all.execute("test", data(t), 0)
}

// original renders with text/template and sprig, to which Helm adds the same functions.
func original(t testing.TB, text string) (string, error) {
	t.Helper()
	root := template.New("test").Option("missingkey=error").Funcs(sprig.TxtFuncMap())
	execute := func(name string, data any) (string, error) {
		var b strings.Builder
		err := root.ExecuteTemplate(&b, name, data)
		return b.String(), err
	}
	root.Funcs(template.FuncMap{
		"include": execute,
		"toYaml": func(v any) (string, error) {
			raw, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(raw), "\n"), err
		},
		"fromYaml": func(text string) (map[string]any, error) {
			m := map[string]any{}
			err := yaml.Unmarshal([]byte(text), &m)
			return m, err
		},
		"required": func(message string, v any) (any, error) {
			if v == nil || v == "" {
				return nil, errors.New(message)
			}
			return v, nil
		},
	})
	if _, err := root.Parse(text); err != nil {
		return "", err
	}
	return execute("test", data(t))
}

// TestAsTextTemplateDoes: text/template and sprig judge what each construct and each function means.
func TestAsTextTemplateDoes(t *testing.T) {
	for reason, texts := range map[string][]string{
		"text and trim markers": {"", "a\n", "a {{- 1 }} b {{ 2 -}} c\n {{- /* no text */ -}} d", "{{/* no text */}}x", "{{`raw {{`}}"},
		"constants":             {"{{1}} {{-1}} {{0x10}} {{0b11}} {{1_000}} {{1.5}} {{1e3}} {{'a'}} {{0x1p4}} {{true}} {{false}} {{\"a\\tb\"}}"},
		"fields":                {"{{.text}} {{.map.c.d}} {{$.text}} {{$.map.a}} {{(.map).a}} {{(dict \"a\" (dict \"b\" 1)).a.b}} {{.float}} {{.big}} {{.int64}} {{.yes}}"},
		"if": {
			"{{if .yes}}a{{else}}b{{end}}", "{{if .no}}a{{else if .zero}}b{{else if .text}}c{{else}}d{{end}}", "{{if .no}}a{{end}}",
			"{{range list .text .empty .int .int64 .zero .float 0 0.0 .yes .no .null .list .none .map .nothing}}{{if .}}1{{else}}0{{end}}{{end}}",
		},
		"with": {"{{with .map}}{{.a}}{{$.text}}{{end}}", "{{with .null}}a{{else}}{{.text}}{{end}}", "{{with .nothing}}a{{else with .map.c}}{{.d}}{{end}}", "{{with $x := .text}}{{$x}}{{.}}{{end}}"},
		"range": {
			"{{range .list}}[{{.}}]{{end}}", "{{range $i, $v := .list}}{{$i}}={{$v}} {{end}}", "{{range $v := .list}}{{$v}}{{$.text}}{{end}}",
			"{{range $k, $v := .map}}{{$k}} {{end}}", "{{range until 3}}{{.}}{{end}}", "{{range until -3}}{{.}}{{end}}", "{{range $i := until .int}}{{$i}}{{end}}",
			"{{range .none}}a{{else}}{{.text}}{{end}}", "{{range .null}}a{{else}}b{{end}}", "{{range .nothing}}a{{end}}", "{{range .lists}}{{range .}}{{.}}{{else}}none{{end}};{{end}}",
			`{{range $v := .list}}{{if eq (toString $v) "y"}}{{continue}}{{end}}{{.}}{{end}}`, "{{range .map}}{{with $.text}}{{break}}{{end}}a{{else}}b{{end}}", "{{range .lists}}{{range .}}{{break}}{{end}}a{{end}}",
			"{{$v := 0}}{{$i := 0}}{{range $i, $v = .list}}{{end}}{{$i}}{{$v}}", "{{$v := 0}}{{range $v = .list}}{{end}}{{$v}}",
		},
		"variables": {
			"{{$x := 1}}{{$x}}{{$x = 2}}{{$x}}", "{{$x := 1}}{{if .yes}}{{$x = 2}}{{end}}{{$x}}", "{{$x := 1}}{{if .yes}}{{$x := 2}}{{$x}}{{end}}{{$x}}",
			"{{$x := 1}}{{range .list}}{{$x := .}}{{$x}}{{end}}{{$x}}", "{{$x := 0}}{{range .list}}{{$x = .}}{{end}}{{$x}}", "{{$m := .map}}{{$m.c.d}}",
		},
		"templates": {
			`{{define "a"}}[{{.}}]{{end}}{{template "a" .text}}`, `{{define "a"}}[{{.d}}{{$.d}}]{{end}}{{template "a" .map.c}}`, `{{define "a"}}x{{end}}{{template "a"}}`,
			`{{define "a"}}[{{.}}]{{end}}{{include "a" .text | quote}}`, `{{define "a"}}{{if .}}{{include "a" (trunc (int (index (list 0 0 1 2 3 4) (len .))) .)}}{{end}}.{{end}}{{include "a" .text}}`,
			`{{block "a" .map}}{{.a}}{{end}}`, `{{define "a"}}{{end}}{{include "a" .}}`,
		},
		"pipelines":    {`{{.text | lower | trunc 2 | printf "%s-%s" "x"}}`, `{{"a" | printf "%s%s" "b"}}`, `{{printf "%d" (len (.text | lower))}}`, `{{.null | default .text}}`},
		"and, or, not": {"{{and 1 0 .missing}}", "{{or 0 1 .missing}}", "{{and 1 2}}", "{{or 0 .empty}}", "{{1 | and 2}}", "{{0 | or 0}}", "{{and 1}}", "{{not .empty}}{{not 1}}{{not .null}}"},
		"comparison": {
			"{{eq 1 1}}{{eq 1 2}}{{eq .int64 3}}{{eq .int 2 3}}{{eq 1 2 1}}{{eq .text \"Hello\"}}{{eq .yes true}}{{eq .float 1.5}}", "{{ne 1 2}}{{ne .text .text}}",
			"{{eq .null .null}}{{eq .null 1}}{{eq 1 .null}}{{eq .null .map}}{{eq .map .null}}{{eq .null .list}}{{eq .nothing .null}}{{ne .null 1}}",
			"{{lt 1 2}}{{lt 2 1}}{{lt .int .int64}}{{lt 1.5 2.5}}{{lt \"a\" \"b\"}}", "{{le 1 1}}{{le 2 1}}{{le 1 2}}", "{{gt 1 2}}{{gt 2 1}}{{gt 1 1}}", "{{ge 1 1}}{{ge 1 2}}{{ge 2 1}}",
		},
		"len":      {"{{len .text}}{{len .list}}{{len .map}}{{len .none}}{{len \"é\"}}"},
		"index":    {`{{index .list 0}}{{index .list .int}}{{index .map "c" "d"}}{{index .lists 0 1}}`, `{{if index .map "missing"}}a{{else}}b{{end}}`, `{{index .text}}`},
		"default":  {`{{default "a" .text}}{{default "a" .empty}}{{default "a" .zero}}{{default "a" .no}}{{default "a" .none}}{{default "a" .null}}{{default "a"}}{{"b" | default "a"}}`, "{{len (.nothing | default dict)}}"},
		"required": {`{{required "x" .text}}{{required "x" .zero}}{{required "x" .no}}`},
		"ternary":  {`{{ternary "a" "b" true}}{{ternary "a" "b" .no}}{{.yes | ternary 1 2}}`},
		"dict":     {`{{toYaml (dict "a" 1 "b" .list "c" (dict "d" .null))}}`, `{{toYaml dict}}`, `{{toYaml (dict 1 2 true 3)}}`},
		"list":     {`{{toYaml (list 1 "a" .null)}}{{toYaml list}}{{len (list 1 2)}}`},
		"has":      {`{{has "y" .list}}{{has "z" .list}}{{has 7 .list}}{{has .int (list 1 2)}}{{has .null (list .null)}}{{has .map (list .map)}}{{has 1 .none}}`},
		"set":      {`{{$d := dict "a" 1}}{{$_ := set $d "b" 2}}{{$e := set $d "a" 3}}{{toYaml $d}}{{toYaml $e}}`, `{{$_ := set .map "z" 1}}{{.map.z}}`},
		"merge": {
			`{{toYaml (merge (dict "a" 1 "c" (dict "x" 1)) .map)}}`, `{{toYaml (merge (dict "a" "" "b" 0 "c" false) .map)}}`, `{{toYaml (merge dict .map .nothing (dict "d" .list))}}`,
			`{{toYaml (merge (dict "a" .list "b" .none) (dict "a" (list 9) "b" (list 8)))}}`, `{{toYaml (merge (dict "a" .text) (dict "a" .map "n" .null))}}`, `{{toYaml (merge (dict "a" .null) (dict "a" .map))}}`,
			`{{$d := dict "a" 1}}{{$_ := merge $d .map}}{{toYaml $d}}`, `{{toYaml (merge (dict "c" (dict)) .map)}}`,
		},
		"get":    {`{{get .map "a"}}{{get .map "missing" | default "none"}}`},
		"hasKey": {`{{hasKey .map "a"}}{{hasKey .map "missing"}}{{hasKey . "null"}}`},
		"int":    {`{{int "42"}}{{int .float}}{{int 2.9}}{{int -2.9}}{{int .int64}}{{int true}}{{int "0x10"}}{{int "1.00"}}{{int .digits}}{{int .big}}`},
		"int64":  {`{{int64 .big}}{{int64 "-7"}}{{int64 .no}}{{int64 .int}}{{printf "%T" (int64 1)}}{{printf "%T" (int 1.5)}}`},
		"until":  {`{{toYaml (until 2)}}{{len (until 0)}}{{toYaml (until 2.0)}}`},
		"printf": {`{{printf "%s %d %v %q %5.1f %t %%" .text .int64 .list .text .float .yes}}`, `{{printf "a"}}`, `{{printf "%v" .map}}`, `{{printf "100%%!"}}`},
		"quote":  {`{{quote .text}}{{quote 1 "a\"b\n" .null true}}{{.lines | quote}}{{quote}}{{quote .null}}{{quote "é\x00"}}`},
		"indent": {`{{indent 2 .lines}}|{{nindent 4 .lines}}|{{indent 0 ""}}|{{.lines | nindent 0}}`},
		"text": {
			`{{lower "ÄB"}}{{trunc 2 .text}}{{trunc -2 .text}}{{trunc 9 .text}}{{trunc -9 .text}}{{trunc 0 .text}}{{trimSuffix "lo" .text}}{{trimSuffix "x" .text}}`,
			`{{sha256sum .text}}{{b64enc .text}}{{toString 1}}{{toString .float}}{{toString .text}}{{toString .yes}}`,
		},
		"YAML": {`{{toYaml .map}}|{{toYaml .list}}|{{toYaml .null}}|{{toYaml "a: b"}}|{{toYaml 1048576.0}}`, `{{(fromYaml .lines).b}}{{toYaml (fromYaml "a: [1, 2.5, {b: null}]")}}{{toYaml (fromYaml "")}}`},
	} {
		for _, text := range texts {
			want, wantErr := original(t, text)
			if wantErr != nil {
				t.Errorf("%s: text/template renders %s: %v", reason, text, wantErr)
			}
			got, err := evaluate(t, text)
			if err != nil {
				t.Errorf("%s: %v", reason, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s (-text/template +ours):\n%s", reason, text, diff)
			}
		}
	}
}

// TestFailsAsTextTemplateDoes: what is an error there is one here.
func TestFailsAsTextTemplateDoes(t *testing.T) {
	for reason, texts := range map[string][]string{
		"a key is missing":            {"{{.missing}}", "{{.map.missing}}", "{{$.missing}}", "{{(dict).a}}", "{{with .map}}{{.text}}{{end}}", "{{if .missing}}{{end}}", "{{default 1 .missing}}", "{{and .missing 1}}"},
		"a field of what is no map":   {"{{.text.a}}", "{{.null.a}}", "{{.list.a}}", "{{(len .text).a}}"},
		"a function is unknown":       {"{{nonsense 1}}", "{{.text | nonsense}}"},
		"a variable is unknown":       {"{{$x}}", "{{if .yes}}{{$x := 1}}{{end}}{{$x}}", `{{define "a"}}{{$x}}{{end}}{{$x := 1}}{{template "a"}}`},
		"a template is unknown":       {`{{template "a"}}`, `{{include "a" .}}`},
		"the syntax":                  {"{{", "{{if .yes}}", "{{end}}", "{{1 | 2}}", "{{nil}}", "{{.text 1}}", "{{1 2}}", "{{$ 1}}", "{{.text | .text}}", "{{99999999999999999999}}"},
		"arguments that do not fit":   {"{{lower 1}}", "{{lower .null}}", "{{indent .text .text}}", "{{until .int64}}", "{{until 1.5}}", "{{until (int64 1)}}", `{{hasKey .text "a"}}`, "{{merge .list}}", "{{ternary 1 2 3}}", "{{indent nil .text}}", "{{include 1 .}}", "{{trunc 1 2}}"},
		"the number of arguments":     {"{{lower}}", `{{lower "a" "b"}}`, "{{not}}", "{{ne 1 2 3}}", "{{eq 1}}", "{{and}}", "{{or}}", "{{merge}}", "{{printf}}", "{{default}}", `{{include "a"}}`, "{{set dict 1}}", "{{index}}", "{{not 1 2}}"},
		"what cannot be compared":     {`{{eq 1 "1"}}`, "{{eq 1 1.0}}", "{{eq .map .map}}", "{{eq .list .list}}", "{{lt .yes .no}}", "{{lt 1 1.5}}", "{{lt .null 1}}", "{{gt .map 1}}", "{{le .yes .yes}}", "{{eq .map .list}}", "{{eq .yes 1}}"},
		"what has no length or index": {"{{len 1}}", "{{len .null}}", "{{index .list 3}}", "{{index .list -1}}", `{{index .list "a"}}`, "{{index .map 1}}", "{{index .null}}", "{{index 1 1}}", "{{index .map nil}}", `{{index .map "missing" "a"}}`},
		"what cannot be ranged over":  {"{{range .yes}}{{end}}", "{{range .text}}{{end}}", "{{range .float}}{{end}}"},
		"what a function refuses":     {`{{fail "why"}}`, `{{printf "%s" "why" | fail}}`, `{{has 1 .text}}`, `{{required "needed" .null}}`, `{{required "needed" .empty}}`, `{{fromYaml "a: b: c"}}`, `{{fromYaml "[1]"}}`, `{{set nil "a" 1}}`, "{{indent -1 .text}}"},
		"an error inside":             {`{{define "a"}}{{.missing}}{{end}}{{include "a" .}}`, `{{define "a"}}{{.missing}}{{end}}{{template "a" .}}`, "{{range .list}}{{.missing}}{{end}}", "{{quote (lower .missing)}}", "{{$x := .missing}}", "{{lower .missing.a}}"},
	} {
		for _, text := range texts {
			if got, err := original(t, text); err == nil {
				t.Errorf("%s: text/template renders %s as %q", reason, text, got)
			}
			if got, err := evaluate(t, text); err == nil {
				t.Errorf("%s: %s was rendered as %q", reason, text, got)
			}
		}
	}
}

// TestStricterThanTextTemplate: where text/template and sprig write something that no manifest means, here is an error.
func TestStricterThanTextTemplate(t *testing.T) {
	for text, there := range map[string]string{
		"{{.null}}":                "<no value>",
		`{{index .map "missing"}}`: "<no value>",
		"{{.map.c}}":               "map[d:deep]",
		"{{.list}}":                "[x y 7]",
		`{{set .nothing "a" 1}}`:   "map[a:1]",
		`{{printf "%s" 1}}`:        "%!s(int=1)",
		`{{printf "%s"}}`:          "%!s(MISSING)",
		`{{printf "a" 1}}`:         "a%!(EXTRA int=1)",
		`{{printf "%v" .null}}`:    "<nil>",
		"{{toString .null}}":       "<nil>",
		`{{hasKey nil "a"}}`:       "false",
		`{{len (merge dict nil)}}`: "0",
		"{{int .text}}":            "0",
		"{{int .null}}":            "0",
		"{{int64 .map}}":           "0",
		`{{toYaml (dict "a")}}`:    `a: ""`,
		"{{range 2}}a{{end}}":      "aa",
		"{{index .text 0}}":        "72",
		`{{has 1 nil}}`:            "false",
		"{{1i}}":                   "(0+1i)",
		"{{upper .text}}":          "HELLO",
	} {
		got, err := original(t, text)
		if err != nil || got != there {
			t.Errorf("text/template renders %s as %q (%v)", text, got, err)
		}
		if got, err := evaluate(t, text); err == nil {
			t.Errorf("%s was rendered as %q", text, got)
		}
	}
}

// stricter are the errors of TestStricterThanTextTemplate that generated templates meet.
var stricter = regexp.MustCompile(`needs a map, and not null|has no text|needs a value, and not null|is no number|is no integer|do not fit|has no value|needs a list or a map, and not an int`)

// generator writes templates that are mostly right: each kind of value has its expressions, and some are of another kind.
type generator struct {
	random    *rand.Rand
	variables []string
	count     int
}

func (g *generator) of(all ...string) string { return all[g.random.IntN(len(all))] }

func (g *generator) expression(want kind, depth int) string {
	if g.random.IntN(40) == 0 {
		want = kind(1 + g.random.IntN(int(mapping)+1))
	}
	if len(g.variables) > 0 && g.random.IntN(12) == 0 {
		return g.of(g.variables...)
	}
	const list = mapping + 1
	if want == anything {
		want = textual + kind(g.random.IntN(int(list-textual)+1))
	}
	if depth <= 0 {
		return map[kind]string{
			textual: g.of(".text", ".empty", ".lines", ".digits", `"a"`, `"b: c"`, ".map.a"), whole: g.of("0", "1", "2", "-1", ".int"), boolean: g.of(".yes", ".no", "true"),
			mapping: g.of(".map", ".nothing", ".map.c", "dict"), list: g.of(".list", ".none", ".lists", "list"), 0: ".missing",
		}[want]
	}
	e := func(want kind) string {
		inner := g.expression(want, depth-1-g.random.IntN(2))
		if strings.Contains(inner, " ") && inner[0] != '(' && inner[0] != '"' {
			return "(" + inner + ")"
		}
		return inner
	}
	whatever := func() string { return g.of(e(anything), ".null", ".float", ".int64", ".zero", e(anything)) }
	number := func() string { return g.of(e(whole), ".int64", "1", e(whole)) }
	switch want {
	case textual:
		return g.of(
			"lower "+e(textual), e(textual)+" | lower", "quote "+whatever()+" "+whatever(), "trunc "+e(whole)+" "+e(textual), "nindent 2 "+e(textual), e(textual)+" | indent 1",
			"toYaml "+whatever(), whatever()+" | toYaml", `printf "%v-%s" `+whatever()+" "+e(textual), "toString "+whatever(), "sha256sum "+e(textual), "b64enc "+e(textual),
			`trimSuffix "a" `+e(textual), `include "t" `+whatever(), "ternary "+e(textual)+" "+e(textual)+" "+e(boolean), "default "+e(textual)+" "+e(textual), `required "r" `+e(textual),
			e(textual)+" | default "+e(textual), "or "+e(textual)+" "+e(textual), "and "+e(textual)+" "+e(textual),
		)
	case whole:
		return g.of("int "+whatever(), "len "+e(g.kind(textual, mapping, list)), whatever()+" | int", "default "+e(whole)+" "+e(whole), "index (until 3) "+e(whole), "or "+number()+" "+number())
	case boolean:
		return g.of(
			"not "+whatever(), "and "+e(boolean)+" "+e(boolean), "or "+e(boolean)+" "+e(boolean), "eq "+whatever()+" "+whatever(), "ne "+e(textual)+" "+e(textual), "lt "+number()+" "+number(),
			"le "+number()+" "+number(), "gt "+e(textual)+" "+e(textual), "ge "+number()+" "+number(), "hasKey "+e(mapping)+" "+e(textual), "eq "+e(textual)+" "+e(textual)+" "+e(textual),
			"eq "+number()+" "+number(), "eq .null "+whatever(),
		)
	case mapping:
		return g.of(
			`dict "a" `+whatever()+` "k" `+whatever(), "dict "+e(textual)+" "+whatever(), "set "+e(mapping)+` "s" `+g.of("1", ".text", ".null", ".list"),
			// Merged into copies: a map that is in itself makes the library that sprig merges with overflow the stack.
			"merge ("+e(mapping)+" | toYaml | fromYaml) "+e(mapping), "merge ("+e(mapping)+" | toYaml | fromYaml) "+e(mapping)+" "+e(mapping),
			"default dict "+e(mapping), e(mapping)+" | toYaml | fromYaml", "fromYaml "+e(textual), "index .map "+e(textual),
		)
	case list:
		return g.of("list "+whatever()+" "+whatever(), "list", "until "+e(whole), "default .list "+e(list), "index .lists "+e(whole))
	default:
		return ".missing"
	}
}

func (g *generator) kind(all ...kind) kind { return all[g.random.IntN(len(all))] }

// action is an action with trim markers, or without.
func (g *generator) action(text string) string {
	return g.of("{{", "{{- ") + text + g.of("}}", " -}}")
}

func (g *generator) block(depth int) string {
	var b strings.Builder
	for range 1 + g.random.IntN(3) {
		b.WriteString(g.of("", " ", "\n  ", "key: ", "x\n"))
		mark := len(g.variables)
		switch g.random.IntN(9) {
		case 0, 1, 2:
			b.WriteString(g.action(g.expression(g.kind(textual, textual, whole, boolean), depth)))
			continue
		case 3:
			g.count++
			name := fmt.Sprintf("$v%d", g.count)
			b.WriteString(g.action(name + " := " + g.expression(anything, depth)))
			g.variables = append(g.variables, name)
			continue
		case 4:
			if len(g.variables) > 0 {
				b.WriteString(g.action(g.of(g.variables...) + " = " + g.expression(anything, depth)))
			}
			continue
		case 5:
			b.WriteString(g.action(`template "t" ` + g.expression(anything, depth)))
			continue
		}
		if depth <= 0 {
			continue
		}
		switch g.random.IntN(4) {
		case 0:
			b.WriteString(g.action("if "+g.expression(anything, depth)) + g.block(depth-1))
			if g.random.IntN(2) == 0 {
				g.variables = g.variables[:mark]
				b.WriteString(g.action("else if "+g.expression(boolean, depth)) + g.block(depth-1))
			}
		case 1:
			b.WriteString(g.action("with $.map") + g.of("{{.a}}", "{{$.text}}", "{{.c.d}}{{.b}}"))
		case 2:
			g.count++
			k, v := fmt.Sprintf("$k%d", g.count), fmt.Sprintf("$v%d", g.count)
			over := g.expression(g.kind(mapping, mapping+1), depth)
			g.variables = append(g.variables, k, v)
			b.WriteString(g.action("range "+k+", "+v+" := "+over) + "{{with $}}" + g.block(depth-1) + "{{end}}")
		case 3:
			g.count++
			v := fmt.Sprintf("$v%d", g.count)
			over := g.expression(mapping+1, depth)
			g.variables = append(g.variables, v)
			b.WriteString(g.action("range "+v+" := "+over) + "{{with $}}" + g.block(depth-1) + "{{end}}")
		}
		g.variables = g.variables[:mark]
		if g.random.IntN(2) == 0 {
			b.WriteString(g.action("else") + g.block(depth-1))
			g.variables = g.variables[:mark]
		}
		b.WriteString(g.action("end"))
	}
	return b.String()
}

// compare renders a generated template with both, and reports whether both could.
func compare(t testing.TB, seed uint64) bool {
	t.Helper()
	g := &generator{random: rand.New(rand.NewPCG(seed, 0))}
	text := `{{define "t"}}[{{toYaml .}}]{{end}}` + g.block(3)
	want, wantErr := original(t, text)
	got, err := evaluate(t, text)
	switch {
	case err != nil && wantErr == nil && stricter.MatchString(err.Error()):
	case (err == nil) != (wantErr == nil):
		t.Errorf("seed %d: %s\ntext/template: %q (%v)\nours: %q (%v)", seed, text, want, wantErr, got, err)
	case err == nil && want != got:
		t.Errorf("seed %d: %s (-text/template +ours):\n%s", seed, text, cmp.Diff(want, got))
	}
	return err == nil
}

// TestGenerated: text/template and the evaluator agree on generated templates.
func TestGenerated(t *testing.T) {
	const all = 1000
	rendered := 0
	for seed := range uint64(all) {
		if compare(t, seed) {
			rendered++
		}
		if t.Failed() {
			break // one template is enough to read
		}
	}
	if rendered < all/3 {
		t.Errorf("only %d of %d generated templates can be rendered: the test compares little", rendered, all)
	}
}

// FuzzTemplate compares both on more generated templates.
func FuzzTemplate(f *testing.F) {
	f.Add(uint64(1 << 40))
	f.Fuzz(func(t *testing.T, seed uint64) { compare(t, seed) })
}

// TestNoFunctionIsOurs: Helm has each function, so that the files stay a chart for Helm.
func TestNoFunctionIsOurs(t *testing.T) {
	original := template.New("").Funcs(sprig.TxtFuncMap()).Funcs(template.FuncMap{"include": fmt.Sprint, "toYaml": fmt.Sprint, "fromYaml": fmt.Sprint, "required": fmt.Sprint})
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		if _, err := original.New(name).Parse("{{" + name + " 1 2 3}}"); err != nil {
			t.Errorf("neither text/template nor sprig nor Helm has %s: %v", name, err)
		}
	}
}
