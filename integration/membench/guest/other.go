//go:build !linux

// Guest plays memory scenarios in a Linux guest.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "membench guest: there are no guests but of Linux")
	os.Exit(1)
}
