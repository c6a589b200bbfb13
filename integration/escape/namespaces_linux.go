package main

import (
	"os"
	"syscall"
)

// namespaces are those that count their pids for themselves.
func namespaces() []technique {
	return []technique{
		{ID: "E27", Description: "pid namespace of its own: init and two payloads", Payloads: 3, SeenBy: "EC", Needs: []string{"pidns"},
			RootExits: true, Expect: dies, run: func(p params) error {
				_, err := spawn("nsinit", p, how{attr: pidNamespace(), null: true})
				return err
			}},
	}
}

// pidNamespace asks for a pid namespace, by way of a user namespace when not root.
// /proc stays that of the outside, by which a payload finds the number that the test
// knows it by.
func pidNamespace() syscall.SysProcAttr {
	attr := syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWPID}
	if uid := os.Geteuid(); uid != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

// runNamespaceInit is pid 1 in there. It is deaf to every signal from inside that it
// does not handle; one from outside is not stopped by that.
func runNamespaceInit(p params) error {
	for range 2 {
		if _, err := payload(p, session()); err != nil {
			return err
		}
	}
	return runPayload(p.called("init"))
}
