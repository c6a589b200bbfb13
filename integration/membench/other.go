//go:build !linux

// Membench needs Linux guests: see main_linux.go.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "membench: guests need Linux")
	os.Exit(1)
}
