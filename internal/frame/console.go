package frame

import (
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap/zapcore"
)

// console writes log lines as sentences: the fields follow in parentheses, an error after a colon.
type console struct {
	zapcore.LevelEnabler
	// head encodes a line without fields.
	head   zapcore.Encoder
	out    zapcore.WriteSyncer
	fields []zapcore.Field
}

// With is zapcore.Core.
func (c *console) With(fields []zapcore.Field) zapcore.Core {
	with := *c
	with.fields = slices.Concat(c.fields, fields)
	return &with
}

// Check is zapcore.Core.
func (c *console) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(e.Level) {
		return ce
	}
	return ce.AddCore(e, c)
}

// Write is zapcore.Core.
func (c *console) Write(e zapcore.Entry, fields []zapcore.Field) error {
	e.Message += said(slices.Concat(c.fields, fields))
	line, err := c.head.EncodeEntry(e, nil)
	if err != nil {
		return err
	}
	defer line.Free()
	_, err = c.out.Write(line.Bytes())
	return err
}

// Sync is zapcore.Core.
func (c *console) Sync() error { return c.out.Sync() }

// said are the fields in words. Those without a value say nothing.
func said(fields []zapcore.Field) string {
	var inside []string
	var behind string
	for _, f := range fields {
		values := zapcore.NewMapObjectEncoder()
		f.AddTo(values)
		value, ok := values.Fields[f.Key]
		text := strings.TrimSpace(fmt.Sprint(value))
		switch {
		case !ok || text == "" || text == "0":
		case f.Key == "error", f.Key == "summary", f.Key == "stack":
			behind += ": " + text
		default:
			inside = append(inside, spaced(f.Key)+" "+text)
		}
	}
	if len(inside) > 0 {
		return " (" + strings.Join(inside, ", ") + ")" + behind
	}
	return behind
}

// spaced divides a key such as exitCode.
func spaced(key string) string {
	var b strings.Builder
	for _, r := range key {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte(' ')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}
