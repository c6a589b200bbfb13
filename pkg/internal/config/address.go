package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
)

type address string

func (a *address) UnmarshalText(text []byte) error {
	_, _, err := ParseAddress(string(text))
	*a = address(text)
	return err
}

// ParseAddress reads where something is served that is nobody's business on other
// machines: "unix:/PATH", or PORT or HOST:PORT of this machine's loopback. Names are
// not looked up: what "localhost" means is agreed on, what others mean may change.
func ParseAddress(text string) (network, addr string, err error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		switch {
		case !filepath.IsAbs(path):
			return "", "", fmt.Errorf("address %q: a socket needs an absolute path: unix:/PATH", text)
		case len(path) > maxSocketPath:
			return "", "", fmt.Errorf("address %q: the path of a socket has at most %d bytes", text, maxSocketPath)
		}
		return "unix", filepath.Clean(path), nil
	}
	host, port, ok := strings.Cut(text, ":")
	if i := strings.LastIndexByte(text, ':'); i >= 0 {
		host, port = text[:i], text[i+1:]
	}
	if !ok {
		host, port = "127.0.0.1", text
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", "", fmt.Errorf("address %q: want unix:/PATH or 127.0.0.1:PORT", text)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	if err != nil || !ip.IsLoopback() {
		return "", "", fmt.Errorf("address %q: %q is not this machine's loopback: want 127.0.0.1:PORT, [::1]:PORT or unix:/PATH", text, host)
	}
	return "tcp", netip.AddrPortFrom(ip, portOf(port)).String(), nil
}

// maxSocketPath is what fits into a sockaddr_un everywhere, with what a name for the
// moment adds.
const maxSocketPath = 90

func portOf(text string) uint16 {
	n, _ := strconv.ParseUint(text, 10, 16) // it was parsed before
	return uint16(n)
}
