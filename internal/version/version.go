// Package version knows the version of the running program.
package version

import "runtime/debug"

// linked is set when an image is built:
//
//	go build -ldflags "-X github.com/kyma-project/eventmesh-migration/internal/version.linked=v1.2.3"
var linked string

// String returns the version of this program: the one that the linker set, or else the one that Go
// has recorded; "devel" without both.
func String() string {
	if linked != "" {
		return linked
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}
