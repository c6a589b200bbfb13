package proc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// UnixSocket is a unix socket of this network namespace as the kernel has it.
type UnixSocket struct {
	Listens bool
	Name    string // its path, or @ and its abstract name; "" if it has none
	Peer    string // inode of the other end, "" if it has none
}

// Parts of the kernel's sock_diag interface (linux/sock_diag.h, linux/unix_diag.h).
const (
	sockDiagByFamily = 20
	diagShowName     = 1 << 0
	diagShowPeer     = 1 << 2
	diagName         = 0
	diagPeer         = 2
	stateListen      = 10 // TCP_LISTEN, for all families
	diagMsgLen       = 16
)

// UnixSockets gives all unix sockets by their inode, as in [Sockets]. /proc/net/unix does
// not tell who is connected to whom; the kernel's answer to this question does, to
// anybody. It is an error where the kernel was built without it.
func UnixSockets() (map[string]UnixSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("ask for unix sockets: %w", err)
	}
	defer unix.Close(fd)
	// A kernel that has the module to load answers at once or not at all.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return nil, fmt.Errorf("ask for unix sockets: %w", err)
	}
	const request = unix.SizeofNlMsghdr + 24
	var q [request]byte
	ne := binary.NativeEndian
	ne.PutUint32(q[0:], request)
	ne.PutUint16(q[4:], sockDiagByFamily)
	ne.PutUint16(q[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	q[16] = unix.AF_UNIX
	ne.PutUint32(q[20:], ^uint32(0)) // in every state
	ne.PutUint32(q[28:], diagShowName|diagShowPeer)
	if err := unix.Sendto(fd, q[:], 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("ask for unix sockets: %w", err)
	}
	all := map[string]UnixSocket{}
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("ask for unix sockets: %w", err)
		}
		done, err := parseDiag(buf[:n], all)
		if err != nil || done {
			return all, err
		}
	}
}

// parseDiag reads messages of an answer; done says that the last one was among them.
func parseDiag(b []byte, all map[string]UnixSocket) (done bool, err error) {
	ne := binary.NativeEndian
	for len(b) >= unix.SizeofNlMsghdr {
		n, kind := int(ne.Uint32(b)), ne.Uint16(b[4:])
		if n < unix.SizeofNlMsghdr || n > len(b) {
			return true, errors.New("the kernel's answer about unix sockets is cut short")
		}
		body := b[unix.SizeofNlMsghdr:n]
		switch kind {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			if len(body) < 4 {
				return true, errors.New("the kernel refuses to tell of unix sockets")
			}
			return true, fmt.Errorf("ask for unix sockets: %w", unix.Errno(-int32(ne.Uint32(body))))
		case sockDiagByFamily:
			if len(body) >= diagMsgLen {
				s := UnixSocket{Listens: body[2] == stateListen}
				s.attributes(body[diagMsgLen:])
				all[strconv.FormatUint(uint64(ne.Uint32(body[4:])), 10)] = s
			}
		}
		b = b[min(len(b), align4(n)):]
	}
	return false, nil
}

func (s *UnixSocket) attributes(b []byte) {
	ne := binary.NativeEndian
	for len(b) >= 4 {
		n, kind := int(ne.Uint16(b)), ne.Uint16(b[2:])
		if n < 4 || n > len(b) {
			return
		}
		value := b[4:n]
		switch {
		case kind == diagName && len(value) > 0 && value[0] == 0:
			s.Name = "@" + string(value[1:])
		case kind == diagName:
			s.Name = unix.ByteSliceToString(value)
		case kind == diagPeer && len(value) >= 4:
			if peer := ne.Uint32(value); peer != 0 {
				s.Peer = strconv.FormatUint(uint64(peer), 10)
			}
		}
		b = b[min(len(b), align4(n)):]
	}
}

func align4(n int) int { return (n + 3) &^ 3 }
