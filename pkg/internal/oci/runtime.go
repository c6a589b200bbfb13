package oci

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Runtimes are those that are looked for, the first one that is there is taken.
var Runtimes = [...]string{"crun", "runc"}

// FindRuntime gives the absolute path of a runtime: of the one that is named, by its
// name or path, or with "" of the first that is in PATH.
func FindRuntime(name string) (string, error) {
	names := []string{name}
	if name == "" {
		names = Runtimes[:]
	}
	for _, n := range names {
		if path, err := exec.LookPath(n); err == nil {
			return filepath.Abs(path)
		}
	}
	e := &Invalid{Text: fmt.Sprintf("no runtime for containers: neither %s is in PATH", strings.Join(names, " nor ")), Hint: "e.g. `apt install crun`"}
	if name != "" {
		e.Text, e.Hint = fmt.Sprintf("the runtime %s is not there", name), "e.g. `apt install crun`; without --runtime crun or runc is taken"
	}
	return "", e
}
