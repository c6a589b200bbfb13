package main

import (
	"net"
	"os"
	"strings"
	"time"
)

// runPortServer accepts connections, keeps them open and ticks. Its address is in
// DIR/addr.
func runPortServer(p params) error {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go keepConnections(l)
	if err := os.WriteFile(p.path("addr"), []byte(l.Addr().String()), 0o644); err != nil {
		return err
	}
	return runPayload(p)
}

// keepConnections holds every accepted connection for as long as the process lives.
func keepConnections(l net.Listener) {
	var held []net.Conn
	for len(held) < 100 {
		c, err := l.Accept()
		if err != nil {
			return
		}
		held = append(held, c)
	}
}

// runPortClient is connected to the address that --arg names a file of, and ticks on
// whether or not the other side stays. A cleaner that looks for everybody with that
// port in use takes it for the server.
func runPortClient(p params) error {
	b, err := os.ReadFile(p.arg)
	if err != nil {
		return err
	}
	c, err := net.DialTimeout("tcp4", strings.TrimSpace(string(b)), 10*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	return runPayload(p)
}
