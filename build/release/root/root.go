// Package root leads the programs of this module to the root of the repository.
package root

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// module is the line of go.mod that names this module.
const module = "\nmodule github.com/kyma-project/eventmesh-migration/build/release\n"

// Enter changes to the root of the repository if the process was started in the directory of this
// module, where "go -C build/release run ." starts it. So the paths that a person names are those
// from the root, where the command was called.
func Enter() error {
	raw, err := os.ReadFile("go.mod")
	if errors.Is(err, fs.ErrNotExist) || err == nil && !bytes.Contains(append([]byte("\n"), raw...), []byte(module)) {
		return nil // a program that was built, somewhere else
	}
	if err == nil {
		err = os.Chdir("../..")
	}
	if err != nil {
		return fmt.Errorf("cannot enter the root of the repository: %w", err)
	}
	return nil
}
