package cli

import "runtime/debug"

// linkedVersion is set when an image is built:
//
//	go build -ldflags "-X github.com/kyma-project/eventmesh-migration/internal/cli.linkedVersion=v1.2.3"
var linkedVersion string

// version returns the version of this program: the linker's word, else what Go
// has recorded about the build.
func version() string {
	if linkedVersion != "" {
		return linkedVersion
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}
