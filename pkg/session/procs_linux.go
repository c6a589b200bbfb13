package session

import (
	"bytes"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"golang.org/x/sys/unix"
)

// ticksPerSecond is USER_HZ, the unit of times in /proc: 100 on every
// architecture that Go supports.
const ticksPerSecond = 100

// ticksNow is the time since boot in the unit of start times.
func ticksNow() uint64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return uint64(time.Duration(ts.Nano()) / (time.Second / ticksPerSecond))
}

// ports finds the listening sockets that the processes hold. A socket is a
// member's if one of its descriptors is that socket: never by port number.
func ports(pids []int) map[int][]Port {
	type ns struct{ sockets map[string]Port }
	spaces := map[string]ns{}
	found := map[int][]Port{}
	for _, pid := range pids {
		net := proc.NetNS(pid)
		if net == "" {
			continue
		}
		space, ok := spaces[net]
		if !ok {
			space = ns{sockets: listening(pid)}
			spaces[net] = space
		}
		if len(space.sockets) == 0 {
			continue
		}
		seen := map[string]bool{}
		for _, inode := range proc.Sockets(pid) {
			if p, ok := space.sockets[inode]; ok && !seen[inode] {
				seen[inode] = true
				p.PID = pid
				found[pid] = append(found[pid], p)
			}
		}
	}
	return found
}

// listening reads the listening sockets of a process's network namespace, by
// inode.
func listening(pid int) map[string]Port {
	found := map[string]Port{}
	for _, proto := range []string{"tcp", "tcp6", "udp", "udp6"} {
		parseSockets(proto, proc.Net(pid, proto), found)
	}
	return found
}

// parseSockets reads the table of /proc/net/tcp and its like. State 0A is
// LISTEN; a UDP socket that is bound and not connected (07) serves too.
func parseSockets(proto string, table []byte, found map[string]Port) {
	want := "0A"
	if strings.HasPrefix(proto, "udp") {
		want = "07"
	}
	for line := range bytes.Lines(table) {
		f := strings.Fields(string(line))
		if len(f) < 10 || f[3] != want {
			continue
		}
		addr, port, ok := strings.Cut(f[1], ":")
		n, err := strconv.ParseUint(port, 16, 16)
		if ok && err == nil && n != 0 {
			found[f[9]] = Port{Proto: proto, Address: hexAddr(addr), Port: int(n)}
		}
	}
}

// hexAddr turns the kernel's words, in host byte order (little endian on every
// platform we build for), into an address.
func hexAddr(s string) string {
	var b []byte
	for i := 0; i+8 <= len(s); i += 8 {
		w, err := strconv.ParseUint(s[i:i+8], 16, 32)
		if err != nil {
			return s
		}
		b = append(b, byte(w), byte(w>>8), byte(w>>16), byte(w>>24))
	}
	a, ok := netip.AddrFromSlice(b)
	if !ok {
		return s
	}
	return a.Unmap().String()
}
