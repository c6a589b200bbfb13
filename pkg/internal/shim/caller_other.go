//go:build !linux

package shim

import (
	"fmt"
	"os"
)

// caller says who called.
func caller() string { return fmt.Sprintf("process %d", os.Getppid()) }
