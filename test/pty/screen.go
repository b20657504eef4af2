package pty

import (
	"regexp"
	"strings"
)

var escape = regexp.MustCompile(`^\x1b\[\d*([A-Za-z])`)

// Screen is what a terminal makes of output: lines, each of which takes as many rows as
// it needs.
type Screen struct {
	// Width is the number of columns.
	Width int
	// Rewraps says whether lines are wrapped again at another width; otherwise they are cut.
	Rewraps bool
	lines   [][]rune
	at, col int
}

// NewScreen returns an empty screen, as wide as that many columns.
func NewScreen(width int) *Screen { return &Screen{Width: width, lines: [][]rune{nil}} }

// Write is what a program writes to its terminal.
func (s *Screen) Write(b []byte) (int, error) {
	for output := string(b); output != ""; {
		if m := escape.FindStringSubmatch(output); m != nil {
			output = output[len(m[0]):]
			if m[1] == "J" {
				s.lines = append(s.lines[:s.at], s.lines[s.at][:s.col])
			}
			continue
		}
		c := []rune(output)[0]
		output = strings.TrimPrefix(output, string(c))
		switch c {
		case '\r': // to the start of the row
			s.col -= s.col % s.Width
		case '\n':
			if s.at, s.col = s.at+1, 0; s.at == len(s.lines) {
				s.lines = append(s.lines, nil)
			}
		default:
			s.lines[s.at] = append(s.lines[s.at][:s.col], c)
			s.col++
		}
	}
	return len(b), nil
}

// Resize makes the screen wider or narrower.
func (s *Screen) Resize(width int) {
	s.Width = width
	for i, line := range s.lines {
		if !s.Rewraps && len(line) > width {
			s.lines[i] = line[:width]
		}
	}
}

// Shown are the lines on the screen.
func (s *Screen) Shown() []string {
	var out []string
	for _, line := range s.lines {
		out = append(out, string(line))
	}
	return out
}
