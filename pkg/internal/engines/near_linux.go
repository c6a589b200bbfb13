package engines

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Near says whether who listens at a socket is in our pid namespace: a socket that was
// mounted into a container leads to an engine outside, which knows other cgroups.
func Near(socket string) bool { return Listener(socket) > 0 }

// Listener is the process that made a socket a listening one, 0 if it cannot be told: with
// socket activation that is the service manager.
func Listener(socket string) (pid int) {
	if socket == "" {
		return 0
	}
	c, err := net.DialTimeout("unix", socket, AskTime)
	if err != nil {
		return 0
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	c.SetDeadline(time.Now().Add(AskTime))
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}
