// Package docs has the documents that are part of kubectl eventing.
package docs

import _ "embed"

// The pages of which kubectl eventing explains entries.
var (
	//go:embed README.md
	README string
	//go:embed subscriptions.md
	Subscriptions string
	//go:embed troubleshooting.md
	Troubleshooting string
	//go:embed dead-letters.md
	DeadLetters string
	//go:embed publisher-proxy.md
	Publisher string
	//go:embed kubectl-eventing.md
	Kubectl string
)
