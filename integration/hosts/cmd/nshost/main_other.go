//go:build !linux

// Nshost needs Linux: see package hosts.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "nshost: hosts are made of Linux namespaces and Linux guests")
	os.Exit(125)
}
