// Package flowpage is what pages for people share that show how events flow: colours, the policy
// that lets nothing else in, and how a flow is drawn. It knows none of the flows.
package flowpage

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

// Palette are the colours in light and in dark, for the element style. Each has enough contrast
// with the paper, and c0 to c7 are told apart by people who confuse red and green.
const Palette = `:root { color-scheme: light dark; --fg: #1c2530; --dim: #5d6772; --bg: #fff; --line: #d9dee4; --bad: #b71c1c; --yes: #2e7d32; --on: #fff3c4;
  --c0: #1f77b4; --c1: #c2571a; --c2: #2a8a3e; --c3: #8e44ad; --c4: #0f8b8d; --c5: #b03060; --c6: #7a6a00; --c7: #4a5bcf; }
@media (prefers-color-scheme: dark) { :root { --fg: #e6e9ed; --dim: #98a2ad; --bg: #14181d; --line: #313942; --bad: #ff6b6b; --yes: #6cc070; --on: #3a3413;
  --c0: #6db3e8; --c1: #f0a06a; --c2: #74cc86; --c3: #c99be0; --c4: #5cc7c9; --c5: #ea85ab; --c6: #d2c04f; --c7: #97a3f2; } }
`

// Colors is the number of colours c0, c1 and so on.
const Colors = 8

// Hash is how a page's policy knows a script or a style that is part of the page. It allows no
// other one.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// Curve is the d of a path from a point over so many pixels to the right, and down by so many.
func Curve(x, y, wide, down int) string {
	return fmt.Sprintf("M%d %dc%d 0 %d %d %d %d", x, y, wide/2, wide/2, down, wide, down)
}

// Spread is the height of the i-th of n nodes beside a side of tall ones: the shorter side is
// spread over the height of the other one.
func Spread(i, n, tall, top, rowHeight int) int { return top + i*tall*rowHeight/n }

// Shorten cuts a text to n characters, and says so by the last one.
func Shorten(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// Host is an address without what is the same in most of them.
func Host(address string) string {
	_, rest, found := strings.Cut(address, "://")
	if !found {
		rest = address
	}
	return strings.TrimSuffix(rest, "/")
}
