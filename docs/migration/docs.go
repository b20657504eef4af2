// Package docs has the documents that are part of the programs.
package docs

import _ "embed"

// Runbook is runbook.md.
//
//go:embed runbook.md
var Runbook string
