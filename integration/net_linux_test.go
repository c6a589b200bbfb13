package integration_test

import (
	"net"
	"os"
	"strings"
)

// listenOn listens on the address that a file names.
func listenOn(file string) (net.Listener, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return net.Listen("tcp4", strings.TrimSpace(string(b)))
}
