package frame

import (
	"io"

	"github.com/spf13/pflag"
)

const (
	logAuto    = "auto"
	logJSON    = "json"
	logConsole = "console"
)

// LogOptions are the flags of the log on stderr.
type LogOptions struct {
	Format, Level           string
	Verbose, Quiet, NoColor bool
}

// DefaultLog are the options without flags.
func DefaultLog() LogOptions { return LogOptions{Format: logAuto, Level: "info"} }

// Bind adds the flags.
func (o *LogOptions) Bind(fs *pflag.FlagSet) {
	WordVar(fs, &o.Format, []string{logAuto, logJSON, logConsole}, "log-format",
		"form of the log on stderr. auto: console on a terminal, json elsewhere. The status line needs console and a terminal.")
	WordVar(fs, &o.Level, []string{"debug", "info", "warn", "error"}, "log-level",
		"minimum log level. debug includes the log of client-go.")
	fs.BoolVarP(&o.Verbose, "verbose", "v", false, "the same as --log-level debug.")
	fs.BoolVarP(&o.Quiet, "quiet", "q", false, "the same as --log-level error.")
	fs.BoolVar(&o.NoColor, "no-color", false, "show no colors, as with NO_COLOR set.")
}

// Problems completes the options, and returns what is wrong with them.
func (o *LogOptions) Problems() []string {
	switch {
	case o.Verbose && o.Quiet:
		return []string{"-v and -q: give one of them"}
	case o.Verbose:
		o.Level = "debug"
	case o.Quiet:
		o.Level = "error"
	}
	return nil
}

// JSON says whether the log is for a machine.
func (o *LogOptions) JSON(terminal bool) bool {
	return o.Format == logJSON || o.Format == logAuto && !terminal
}

// Color says whether colours may be shown on a stream.
func (o *LogOptions) Color(w io.Writer, env func(string) string, isTerminal func(io.Writer) bool) bool {
	return Smart(w, env, isTerminal) && env("NO_COLOR") == "" && !o.NoColor
}

// Settings of the logger on stderr.
func (o *LogOptions) Settings(stderr io.Writer, env func(string) string, isTerminal func(io.Writer) bool) LogSettings {
	return LogSettings{JSON: o.JSON(isTerminal(stderr)), Level: o.Level, Color: o.Color(stderr, env, isTerminal)}
}
