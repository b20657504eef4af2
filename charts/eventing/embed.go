// Package eventing holds the chart of what the eventing operator installs. It is a chart for Helm,
// too; the operator renders it without Helm
// (docs/decisions/1421-charts-without-helm-and-program-sizes.md).
package eventing

import "embed"

// Chart is the chart with its subcharts. Without "all:", files that begin with _ would be left out.
//
//go:embed all:Chart.yaml all:values.yaml all:templates all:charts
var Chart embed.FS
