package chart

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"dario.cat/mergo"
	"sigs.k8s.io/yaml"
)

// kind is what a function takes.
type kind int

const (
	anything kind = iota + 1
	textual
	whole // an int, and no int64: of another number, a template asks for int
	boolean
	mapping
)

// function is what templates can call. Its arguments have been checked.
type function struct {
	in   []kind
	more kind // what can follow, any number of times; 0 is nothing
	call func([]any) (any, error)
}

func (f function) kind(i int) kind {
	if i < len(f.in) {
		return f.in[i]
	}
	return f.more
}

// functions are those of text/template, of sprig and of Helm that our charts use, and those that they will need next.
var functions = map[string]function{
	"and":     {in: []kind{anything}, more: anything}, // templates.call evaluates these three itself
	"or":      {in: []kind{anything}, more: anything},
	"include": {in: []kind{textual, anything}},

	"not": {[]kind{anything}, 0, func(a []any) (any, error) { return !isTrue(a[0]), nil }},
	"eq":  {[]kind{anything, anything}, anything, func(a []any) (any, error) { return equal(a[0], a[1:]...) }},
	"ne":  {[]kind{anything, anything}, 0, func(a []any) (any, error) { is, err := equal(a[0], a[1]); return !is, err }},
	"lt":  {[]kind{anything, anything}, 0, func(a []any) (any, error) { return less(a[0], a[1]) }},
	"le":  {[]kind{anything, anything}, 0, func(a []any) (any, error) { is, err := less(a[1], a[0]); return !is, err }},
	"gt":  {[]kind{anything, anything}, 0, func(a []any) (any, error) { return less(a[1], a[0]) }},
	"ge":  {[]kind{anything, anything}, 0, func(a []any) (any, error) { is, err := less(a[0], a[1]); return !is, err }},

	"len":   {[]kind{anything}, 0, func(a []any) (any, error) { return length(a[0]) }},
	"index": {[]kind{anything}, anything, func(a []any) (any, error) { return index(a[0], a[1:]) }},
	"default": {[]kind{anything}, anything, func(a []any) (any, error) {
		if len(a) > 1 && isTrue(a[1]) {
			return a[1], nil
		}
		return a[0], nil
	}},
	"required": {[]kind{textual, anything}, 0, func(a []any) (any, error) {
		if a[1] == nil || a[1] == "" {
			return nil, errors.New(a[0].(string))
		}
		return a[1], nil
	}},
	"fail": {[]kind{textual}, 0, func(a []any) (any, error) { return nil, errors.New(a[0].(string)) }},
	"ternary": {[]kind{anything, anything, boolean}, 0, func(a []any) (any, error) {
		if a[2].(bool) {
			return a[0], nil
		}
		return a[1], nil
	}},

	"dict": {nil, anything, dict},
	"list": {nil, anything, func(a []any) (any, error) { return a, nil }},
	"has": {[]kind{anything, anything}, 0, func(a []any) (any, error) {
		all, ok := a[1].([]any)
		if !ok {
			return nil, fmt.Errorf("the function needs a list, and not %s", describe(a[1]))
		}
		// As sprig does: an int is not an int64.
		return slices.ContainsFunc(all, func(one any) bool { return reflect.DeepEqual(one, a[0]) }), nil
	}},
	"until": {[]kind{whole}, 0, func(a []any) (any, error) { return until(a[0].(int)), nil }},
	"get": {[]kind{mapping, textual}, 0, func(a []any) (any, error) {
		if v, has := a[0].(map[string]any)[a[1].(string)]; has {
			return v, nil
		}
		return "", nil // as sprig does
	}},
	"hasKey": {[]kind{mapping, textual}, 0, func(a []any) (any, error) { _, has := a[0].(map[string]any)[a[1].(string)]; return has, nil }},
	"set": {[]kind{mapping, textual, anything}, 0, func(a []any) (any, error) {
		m := a[0].(map[string]any)
		m[a[1].(string)] = a[2]
		return m, nil
	}},
	"merge": {[]kind{mapping}, mapping, func(a []any) (any, error) {
		into := a[0].(map[string]any)
		for _, from := range a[1:] {
			if err := mergo.Merge(&into, from.(map[string]any)); err != nil {
				return nil, err
			}
		}
		return into, nil
	}},

	"int":   {[]kind{anything}, 0, func(a []any) (any, error) { n, err := integer(a[0]); return int(n), err }},
	"int64": {[]kind{anything}, 0, func(a []any) (any, error) { return integer(a[0]) }},

	"printf":   {[]kind{textual}, anything, printf},
	"toString": {[]kind{anything}, 0, func(a []any) (any, error) { return fmt.Sprint(a[0]), nonNil("toString", a) }},
	"quote":    {nil, anything, quote},
	"lower":    {[]kind{textual}, 0, func(a []any) (any, error) { return strings.ToLower(a[0].(string)), nil }},
	"indent":   {[]kind{whole, textual}, 0, func(a []any) (any, error) { return indent(a[0].(int), a[1].(string)) }},
	"nindent": {[]kind{whole, textual}, 0, func(a []any) (any, error) {
		indented, err := indent(a[0].(int), a[1].(string))
		return "\n" + indented, err
	}},
	"trunc":      {[]kind{whole, textual}, 0, func(a []any) (any, error) { return trunc(a[0].(int), a[1].(string)), nil }},
	"trimSuffix": {[]kind{textual, textual}, 0, func(a []any) (any, error) { return strings.TrimSuffix(a[1].(string), a[0].(string)), nil }},
	"b64enc":     {[]kind{textual}, 0, func(a []any) (any, error) { return base64.StdEncoding.EncodeToString([]byte(a[0].(string))), nil }},
	"sha256sum": {[]kind{textual}, 0, func(a []any) (any, error) {
		sum := sha256.Sum256([]byte(a[0].(string)))
		return hex.EncodeToString(sum[:]), nil
	}},
	"toYaml": {[]kind{anything}, 0, func(a []any) (any, error) {
		raw, err := yaml.Marshal(a[0])
		return strings.TrimSuffix(string(raw), "\n"), err
	}},
	"fromYaml": {[]kind{textual}, 0, func(a []any) (any, error) {
		m := map[string]any{}
		err := yaml.Unmarshal([]byte(a[0].(string)), &m)
		return m, err
	}},
}

// names are the functions for the parser, which wants only to know that they exist.
var names = func() map[string]any {
	all := map[string]any{}
	for name := range functions {
		all[name] = true
	}
	return all
}()

// plain returns a copy of a value for templates: they can change it, and do not change the chart or the values of the caller.
func plain(at string, value any) (any, error) {
	switch value := value.(type) {
	case nil, string, bool, int, int64, float64:
		return value, nil
	case int32:
		return int64(value), nil
	case map[string]any:
		out := make(map[string]any, len(value))
		for key, of := range value {
			v, err := plain(at+"."+key, of)
			if err != nil {
				return nil, err
			}
			out[key] = v
		}
		return out, nil
	case []any:
		out := make([]any, len(value))
		for i, of := range value {
			v, err := plain(at+"."+strconv.Itoa(i), of)
			if err != nil {
				return nil, err
			}
			out[i] = v
		}
		return out, nil
	default:
		return nil, fmt.Errorf("the value %s has the type %T, which templates do not know", at, value)
	}
}

// as checks that a value is of a kind.
func as(want kind, value any) (any, error) {
	name, ok := "", true
	switch want {
	case textual:
		name = "text"
		_, ok = value.(string)
	case whole:
		name = "an int"
		_, ok = value.(int)
	case boolean:
		name = "true or false"
		_, ok = value.(bool)
	case mapping:
		name = "a map" // and no null, which text/template takes for one in some places
		_, ok = value.(map[string]any)
	}
	if !ok {
		return nil, fmt.Errorf("the function needs %s, and not %s", name, describe(value))
	}
	return value, nil
}

// describe names the type of a value for people, and never the value, which may be a secret.
func describe(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case string:
		return "text"
	case bool:
		return "true or false"
	case map[string]any:
		return "a map"
	case []any:
		return "a list"
	case float64:
		return "a float64"
	default:
		return fmt.Sprintf("an %T", value) // int, int64
	}
}

// isTrue says whether a value is not the zero of its type.
func isTrue(value any) bool {
	switch value := value.(type) {
	case string:
		return value != ""
	case bool:
		return value
	case int:
		return value != 0
	case int64:
		return value != 0
	case float64:
		return value != 0
	case map[string]any:
		return len(value) > 0
	case []any:
		return len(value) > 0
	default:
		return false // nil: there are no other types
	}
}

// canonical makes an int and an int64 one type, and a nil map or list is nil.
func canonical(value any) any {
	switch value := value.(type) {
	case int:
		return int64(value)
	case map[string]any:
		if value == nil {
			return nil
		}
	case []any:
		if value == nil {
			return nil
		}
	}
	return value
}

// equal says whether a value is one of others.
func equal(value any, others ...any) (bool, error) {
	a := canonical(value)
	for _, other := range others {
		b := canonical(other)
		if a == nil || b == nil {
			if a == nil && b == nil {
				return true, nil
			}
			continue
		}
		switch a.(type) {
		case map[string]any, []any:
			return false, incanonical(value, other)
		}
		if describe(a) != describe(b) {
			return false, incanonical(value, other)
		}
		if a == b {
			return true, nil
		}
	}
	return false, nil
}

func less(value, other any) (bool, error) {
	switch a := canonical(value).(type) {
	case string:
		if b, ok := other.(string); ok {
			return a < b, nil
		}
	case int64:
		if b, ok := canonical(other).(int64); ok {
			return a < b, nil
		}
	case float64:
		if b, ok := other.(float64); ok {
			return a < b, nil
		}
	}
	return false, incanonical(value, other)
}

func incanonical(value, other any) error {
	return fmt.Errorf("cannot compare %s with %s", describe(value), describe(other))
}

func length(value any) (any, error) {
	switch value := value.(type) {
	case string:
		return len(value), nil
	case map[string]any:
		return len(value), nil
	case []any:
		return len(value), nil
	default:
		return nil, fmt.Errorf("%s has no length", describe(value))
	}
}

// index follows keys and indexes. It is how templates ask for a key that can be missing: then it is null.
func index(value any, path []any) (any, error) {
	if value == nil {
		return nil, errors.New("null has no index")
	}
	for _, step := range path {
		switch of := value.(type) {
		case map[string]any:
			key, ok := step.(string)
			if !ok {
				return nil, fmt.Errorf("the key of a map is text, and not %s", describe(step))
			}
			value = of[key]
		case []any:
			i, ok := canonical(step).(int64)
			if !ok || i < 0 || i >= int64(len(of)) {
				return nil, fmt.Errorf("the list has no such index, its length is %d", len(of))
			}
			value = of[i]
		default:
			return nil, fmt.Errorf("%s has no index", describe(value))
		}
	}
	return value, nil
}

func dict(args []any) (any, error) {
	if len(args)%2 != 0 {
		return nil, errors.New("the last key of dict has no value")
	}
	m := map[string]any{}
	for i := 0; i < len(args); i += 2 {
		m[fmt.Sprint(args[i])] = args[i+1]
	}
	return m, nil
}

func until(count int) []any {
	all := []any{}
	for i := range max(count, -count) {
		if count < 0 {
			i = -i
		}
		all = append(all, i)
	}
	return all
}

// integer is a number without what follows the point. Text must be one: sprig makes 0 of what is none.
func integer(value any) (int64, error) {
	switch value := value.(type) {
	case int:
		return int64(value), nil
	case int64:
		return value, nil
	case float64:
		return int64(value), nil
	case bool:
		if value {
			return 1, nil
		}
		return 0, nil
	case string:
		if before, zeros, found := strings.Cut(value, "."); found && zeros != "" && strings.Trim(zeros, "0") == "" {
			value = before
		}
		n, err := strconv.ParseInt(value, 0, 64)
		if err != nil {
			return 0, errors.New("the text is no integer")
		}
		return n, nil
	default:
		return 0, fmt.Errorf("%s is no number", describe(value))
	}
}

// badVerb is what fmt writes for a verb that does not fit its argument.
var badVerb = regexp.MustCompile(`%!.?\(`)

func printf(args []any) (any, error) {
	out := fmt.Sprintf(args[0].(string), args[1:]...)
	if badVerb.MatchString(out) {
		return nil, errors.New("the verbs of printf do not fit its arguments")
	}
	return out, nonNil("printf", args)
}

func nonNil(name string, args []any) error {
	for _, arg := range args {
		if arg == nil {
			return fmt.Errorf("%s needs a value, and not null", name)
		}
	}
	return nil
}

// quote leaves out what is null.
func quote(args []any) (any, error) {
	var all []string
	for _, arg := range args {
		if arg != nil {
			all = append(all, strconv.Quote(fmt.Sprint(arg)))
		}
	}
	return strings.Join(all, " "), nil
}

func indent(spaces int, s string) (string, error) {
	if spaces < 0 {
		return "", errors.New("the indentation is negative")
	}
	pad := strings.Repeat(" ", spaces)
	return pad + strings.ReplaceAll(s, "\n", "\n"+pad), nil
}

func trunc(n int, s string) string {
	switch {
	case n < 0 && len(s)+n > 0:
		return s[len(s)+n:]
	case n >= 0 && len(s) > n:
		return s[:n]
	}
	return s
}
