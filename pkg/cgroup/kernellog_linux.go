package cgroup

import (
	"bytes"
	"errors"
	"os"
	"strconv"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"golang.org/x/sys/unix"
)

// logged is a line of the kernel's log about a process that it killed for want of
// memory.
type logged struct {
	limit string // cgroup whose limit was hit; "" is the whole machine
	task  string // cgroup of the process
	comm  string
	pid   int // in the first pid namespace
}

// kernelLog is where the kernel's log is read, record by record (Linux 3.5).
const kernelLog = "/dev/kmsg"

// readKernelLog gives the kills for want of memory that the kernel's log still has,
// oldest first. Of many at once the kernel logs a few only.
func readKernelLog() ([]logged, error) {
	fd, err := unix.Open(kernelLog, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: kernelLog, Err: err}
	}
	defer unix.Close(fd)
	var all []logged
	buf := make([]byte, 8<<10)
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EPIPE): // overwritten meanwhile: it goes on with the next
		case errors.Is(err, unix.EAGAIN), err == nil && n == 0:
			return all, nil
		case err != nil:
			return all, &os.PathError{Op: "read", Path: kernelLog, Err: err}
		default:
			if l, ok := parseKill(buf[:n]); ok {
				all = append(all, l)
			}
		}
	}
}

// parseKill reads a record such as
//
//	4,812,95,-;oom-kill:constraint=CONSTRAINT_MEMCG,…,oom_memcg=/a,task_memcg=/a/b,task=node,pid=4711,uid=0
//
// (Linux 5.0; "global_oom" in place of oom_memcg when memory ran out altogether). A
// name may hold anything but a newline, which is escaped.
func parseKill(record []byte) (logged, bool) {
	_, line, ok := bytes.Cut(record, []byte(";oom-kill:constraint="))
	if !ok {
		return logged{}, false
	}
	line, _, _ = bytes.Cut(line, []byte{'\n'})
	head, rest, ok := bytes.Cut(line, []byte(",task_memcg="))
	if !ok {
		return logged{}, false
	}
	var l logged
	if _, limit, ok := bytes.Cut(head, []byte(",oom_memcg=")); ok {
		l.limit = string(limit)
	}
	at := bytes.LastIndex(rest, []byte(",pid="))
	if at < 0 {
		return logged{}, false
	}
	pid, _, _ := bytes.Cut(rest[at+len(",pid="):], []byte{','})
	var err error
	if l.pid, err = strconv.Atoi(string(pid)); err != nil {
		return logged{}, false
	}
	task, comm, ok := bytes.Cut(rest[:at], []byte(",task="))
	if !ok {
		return logged{}, false
	}
	l.task, l.comm = string(task), string(comm)
	return l, true
}

// firstPIDs is the inode of the first pid namespace (PROC_PID_INIT_INO).
const firstPIDs = 0xEFFFFFFC

// initPIDs says whether the pids of the kernel's log mean something to us.
func initPIDs() bool {
	ns, err := proc.Namespace()
	return err == nil && ns == firstPIDs
}
