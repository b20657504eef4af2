package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
)

// ModuleRoot is the directory of the product's go.mod, for packages that build what lies beside it.
func ModuleRoot() (string, error) { return moduleRoot() }

// CacheDir is where binaries are kept from one test to the next: EVENTMESH_CACHE, else a directory
// in the user's cache.
func CacheDir() (string, error) {
	if dir := os.Getenv("EVENTMESH_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cannot find a cache directory, set EVENTMESH_CACHE: %w", err)
	}
	return filepath.Join(dir, "eventmesh-migration"), nil
}
