package engines

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Near says whether who listens at a socket is in our pid namespace: a socket that was
// mounted into a container leads to an engine outside, which knows other cgroups.
func Near(socket string) bool {
	if socket == "" {
		return false
	}
	c, err := net.DialTimeout("unix", socket, AskTime)
	if err != nil {
		return false
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return false
	}
	c.SetDeadline(time.Now().Add(AskTime))
	near := false
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		near = err == nil && cred.Pid > 0
	})
	return err == nil && near
}
