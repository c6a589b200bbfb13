//go:build !linux

package main

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	fmt.Fprintf(os.Stderr, "escape: no techniques for %s\n", runtime.GOOS)
	os.Exit(1)
}
