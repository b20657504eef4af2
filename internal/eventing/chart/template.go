package chart

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template/parse"
)

const (
	// deepest is how deep templates include each other: more is a template that includes itself.
	deepest = 1000
	// longest is how much of an action a message has, in bytes.
	longest = 80
)

// templates are all that can be included, by name.
//
// They are parsed as text/template does, and evaluated here. text/template calls methods by names that are only known when it runs,
// so the linker keeps every exported method of every type of Kubernetes. The values here are plain: map[string]any, []any, string,
// bool, int, int64, float64 and nil. Where text/template and sprig write something for a value that is missing or has no text, here is
// an error.
type templates map[string]*parse.Tree

// add parses a file, and what it defines.
func (t templates) add(name, text string) error {
	parsed, err := parse.Parse(name, text, "", "", names)
	if err != nil {
		return err
	}
	return t.join(parsed)
}

// join adds the templates of another chart. A name has one template: which of two is meant would depend on an order.
func (t templates) join(more templates) error {
	for _, name := range slices.Sorted(maps.Keys(more)) {
		if was := t[name]; was != nil {
			return fmt.Errorf("the template %q is in %s and in %s", name, was.ParseName, more[name].ParseName)
		}
		t[name] = more[name]
	}
	return nil
}

// execute returns the text of a template. data are plain values.
func (t templates) execute(name string, data any, depth int) (string, error) {
	tree := t[name]
	if tree == nil {
		return "", fmt.Errorf("there is no template %q", name)
	}
	if depth > deepest {
		return "", fmt.Errorf("the template %q includes itself", name)
	}
	e := &evaluation{templates: t, tree: tree, depth: depth, variables: []variable{{"$", data}}}
	if err := e.walk(data, tree.Root); err != nil {
		return "", err
	}
	return e.out.String(), nil
}

// errBreak and errContinue leave an iteration of the innermost range.
var errBreak, errContinue = errors.New("break"), errors.New("continue")

// evaluation is one execution of one template.
type evaluation struct {
	templates templates
	tree      *parse.Tree
	depth     int
	variables []variable // those of the innermost block are last
	out       strings.Builder
}

type variable struct {
	name  string
	value any
}

// located is an error with the place in the template where it happened.
type located struct {
	err error
	at  string
}

func (l *located) Error() string { return l.err.Error() + ", " + l.at }
func (l *located) Unwrap() error { return l.err }

// at adds a place to an error that has none. The innermost is that of the fault.
func (e *evaluation) at(n parse.Node, err error) error {
	if _, has := errors.AsType[*located](err); has || err == nil {
		return err
	}
	place, action := e.tree.ErrorContext(n)
	if len(action) > longest {
		action = strings.ToValidUTF8(action[:longest], "") + "…"
	}
	return &located{err, fmt.Sprintf("in <%s> at %s", action, place)}
}

func (e *evaluation) errorf(n parse.Node, format string, args ...any) error {
	return e.at(n, fmt.Errorf(format, args...))
}

// walk writes what a node stands for.
func (e *evaluation) walk(dot any, n parse.Node) error {
	switch n := n.(type) {
	case *parse.ListNode:
		for _, child := range n.Nodes {
			if err := e.walk(dot, child); err != nil {
				return err
			}
		}
		return nil
	case *parse.TextNode:
		e.out.Write(n.Text)
		return nil
	case *parse.CommentNode:
		return nil
	case *parse.BreakNode:
		return errBreak
	case *parse.ContinueNode:
		return errContinue
	case *parse.ActionNode:
		value, err := e.pipeline(dot, n.Pipe)
		if err != nil || len(n.Pipe.Decl) > 0 {
			return err
		}
		return e.write(n.Pipe, value)
	case *parse.IfNode:
		return e.branch(dot, &n.BranchNode)
	case *parse.WithNode:
		return e.branch(dot, &n.BranchNode)
	case *parse.RangeNode:
		return e.loop(dot, &n.BranchNode)
	case *parse.TemplateNode:
		data, err := e.pipeline(dot, n.Pipe)
		if err != nil {
			return err
		}
		text, err := e.templates.execute(n.Name, data, e.depth+1)
		e.out.WriteString(text)
		return e.at(n, err)
	default:
		return e.errorf(n, "this action is unknown")
	}
}

func (e *evaluation) write(n parse.Node, value any) error {
	switch value.(type) {
	case nil, map[string]any, []any:
		return e.errorf(n, "%s has no text", describe(value))
	}
	fmt.Fprint(&e.out, value)
	return nil
}

// branch is if and with.
func (e *evaluation) branch(dot any, n *parse.BranchNode) error {
	defer e.leave(len(e.variables))
	value, err := e.pipeline(dot, n.Pipe)
	switch {
	case err != nil:
		return err
	case isTrue(value) && n.NodeType == parse.NodeWith:
		return e.walk(value, n.List)
	case isTrue(value):
		return e.walk(dot, n.List)
	case n.ElseList != nil:
		return e.walk(dot, n.ElseList)
	}
	return nil
}

// leave forgets the variables of a block.
func (e *evaluation) leave(mark int) { e.variables = e.variables[:mark] }

// loop is range: over lists, and over maps in the order of their keys.
func (e *evaluation) loop(dot any, n *parse.BranchNode) error {
	defer e.leave(len(e.variables))
	value, err := e.pipeline(dot, n.Pipe)
	if err != nil {
		return err
	}
	mark, count := len(e.variables), 0
	each := func(index, element any) error {
		defer e.leave(mark)
		count++
		// One variable is the element. The first of two is the index.
		values := []any{index, element}[2-len(n.Pipe.Decl):]
		for i, declared := range n.Pipe.Decl {
			if err := e.assign(declared, values[i]); err != nil {
				return err
			}
		}
		if err := e.walk(element, n.List); !errors.Is(err, errContinue) {
			return err
		}
		return nil
	}
	switch value := value.(type) {
	case nil:
	case []any:
		for i, element := range value {
			if err = each(i, element); err != nil {
				break
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if err = each(key, value[key]); err != nil {
				break
			}
		}
	default:
		return e.errorf(n.Pipe, "range needs a list or a map, and not %s", describe(value))
	}
	if err != nil && !errors.Is(err, errBreak) {
		return err
	}
	if count == 0 && n.ElseList != nil {
		return e.walk(dot, n.ElseList)
	}
	return nil
}

// assign changes the innermost variable of a name.
func (e *evaluation) assign(n *parse.VariableNode, value any) error {
	for i := len(e.variables) - 1; i >= 0; i-- {
		if e.variables[i].name == n.Ident[0] {
			e.variables[i].value = value
			return nil
		}
	}
	return e.errorf(n, "there is no variable %s", n.Ident[0])
}

// pipeline evaluates commands, each of which gets the value of the one before it as its last argument.
func (e *evaluation) pipeline(dot any, pipe *parse.PipeNode) (value any, err error) {
	if pipe == nil {
		return nil, nil
	}
	var last []any // none for the first command
	for _, cmd := range pipe.Cmds {
		if value, err = e.command(dot, cmd, last); err != nil {
			return nil, err
		}
		last = []any{value}
	}
	for _, declared := range pipe.Decl {
		if !pipe.IsAssign {
			e.variables = append(e.variables, variable{declared.Ident[0], value})
		} else if err := e.assign(declared, value); err != nil {
			return nil, err
		}
	}
	return value, nil
}

func (e *evaluation) command(dot any, cmd *parse.CommandNode, last []any) (any, error) {
	first := cmd.Args[0]
	if f, ok := first.(*parse.IdentifierNode); ok {
		value, err := e.call(dot, f.Ident, cmd.Args[1:], last)
		return value, e.at(cmd, err)
	}
	if len(cmd.Args)+len(last) > 1 {
		return nil, e.errorf(cmd, "%s is no function and takes no argument", first)
	}
	if first.Type() == parse.NodeNil {
		return nil, e.errorf(cmd, "nil is no command")
	}
	return e.operand(dot, first)
}

// operand is the value of one word of a command.
func (e *evaluation) operand(dot any, n parse.Node) (any, error) {
	switch n := n.(type) {
	case *parse.DotNode:
		return dot, nil
	case *parse.NilNode:
		return nil, nil
	case *parse.BoolNode:
		return n.True, nil
	case *parse.StringNode:
		return n.Text, nil
	case *parse.NumberNode:
		return e.number(n)
	case *parse.FieldNode:
		return e.fields(n, dot, n.Ident)
	case *parse.PipeNode:
		return e.pipeline(dot, n)
	case *parse.IdentifierNode:
		value, err := e.call(dot, n.Ident, nil, nil)
		return value, e.at(n, err)
	case *parse.ChainNode:
		value, err := e.operand(dot, n.Node)
		if err != nil {
			return nil, err
		}
		return e.fields(n, value, n.Field)
	case *parse.VariableNode:
		for _, v := range slices.Backward(e.variables) {
			if v.name == n.Ident[0] {
				return e.fields(n, v.value, n.Ident[1:])
			}
		}
		return nil, e.errorf(n, "there is no variable %s", n.Ident[0])
	default:
		return nil, e.errorf(n, "this word is unknown")
	}
}

// number is a constant as Go would type it.
func (e *evaluation) number(n *parse.NumberNode) (any, error) {
	hexadecimal := strings.HasPrefix(strings.ToLower(n.Text), "0x") && !strings.ContainsAny(n.Text, "pP")
	switch {
	case n.IsComplex:
		return nil, e.errorf(n, "complex numbers are unknown")
	case n.IsFloat && !hexadecimal && n.Text[0] != '\'' && strings.ContainsAny(n.Text, ".eEpP"):
		return n.Float64, nil
	case n.IsInt:
		return int(n.Int64), nil
	default:
		return nil, e.errorf(n, "the number is too large")
	}
}

// fields follows names through maps. A key that is missing is an error: a misspelt one would have no effect.
func (e *evaluation) fields(n parse.Node, value any, path []string) (any, error) {
	for _, key := range path {
		m, ok := value.(map[string]any)
		if !ok {
			return nil, e.errorf(n, "%s has no key %s", describe(value), key)
		}
		if value, ok = m[key]; !ok {
			return nil, e.errorf(n, "the map has no key %s", key)
		}
	}
	return value, nil
}

// call evaluates the arguments of a function, then the function.
func (e *evaluation) call(dot any, name string, words []parse.Node, last []any) (any, error) {
	f, ok := functions[name]
	if !ok {
		return nil, fmt.Errorf("the function %s is unknown", name)
	}
	given := len(words) + len(last)
	if given < len(f.in) || given > len(f.in) && f.more == 0 {
		return nil, fmt.Errorf("the number of arguments of %s cannot be %d", name, given)
	}
	if name == "and" || name == "or" {
		return e.shortCircuit(dot, name == "or", words, last)
	}
	args := make([]any, 0, given)
	for i, n := range words {
		arg, err := e.argument(dot, n, f.kind(i))
		if err != nil {
			return nil, e.at(n, err)
		}
		args = append(args, arg)
	}
	for _, value := range last {
		arg, err := as(f.kind(len(words)), value)
		if err != nil {
			return nil, err
		}
		args = append(args, arg)
	}
	if name == "include" {
		return e.templates.execute(args[0].(string), args[1], e.depth+1)
	}
	return f.call(args)
}

// argument is an operand as a function wants it. Where an integer is wanted, 2.0 is one.
func (e *evaluation) argument(dot any, n parse.Node, want kind) (any, error) {
	if number, ok := n.(*parse.NumberNode); ok && want == whole && number.IsInt {
		return int(number.Int64), nil
	}
	value, err := e.operand(dot, n)
	if err != nil {
		return nil, err
	}
	return as(want, value)
}

// shortCircuit is and, or: the first value that decides, or the last. What follows is not evaluated.
func (e *evaluation) shortCircuit(dot any, decides bool, words []parse.Node, last []any) (value any, err error) {
	for _, n := range words {
		if value, err = e.operand(dot, n); err != nil || isTrue(value) == decides {
			return value, err
		}
	}
	if len(last) > 0 {
		return last[0], nil
	}
	return value, nil
}
