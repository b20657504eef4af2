// Package eventingmanager holds the definitions of the kinds Eventing and Subscription, as the
// operator's chart installs them. They are generated from api/ by make charts.
package eventingmanager

import "embed"

// CRDs are the definitions, one in each file of the directory crds.
//
//go:embed crds/*.yaml
var CRDs embed.FS
