package cgroup

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"golang.org/x/sys/unix"
)

// logged is a line of the kernel's log about a process that it killed for want of
// memory.
type logged struct {
	limit string // cgroup whose limit was hit; "" is the whole machine
	task  string // cgroup of the process
	comm  string
	pid   int           // in the first pid namespace
	at    time.Duration // since boot, by a clock that drifts off the monotonic one
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
	head, line, ok := bytes.Cut(record, []byte(";oom-kill:constraint="))
	if !ok {
		return logged{}, false
	}
	line, _, _ = bytes.Cut(line, []byte{'\n'})
	why, rest, ok := bytes.Cut(line, []byte(",task_memcg="))
	if !ok {
		return logged{}, false
	}
	var l logged
	if fields := bytes.Split(head, []byte{','}); len(fields) > 2 { // priority, number, µs
		if n, err := strconv.ParseInt(string(fields[2]), 10, 64); err == nil {
			l.at = time.Duration(n) * time.Microsecond
		}
	}
	if _, limit, ok := bytes.Cut(why, []byte(",oom_memcg=")); ok {
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

// logDrift is how far the clock of the kernel's log may be off.
const logDrift = time.Minute

// LoggedKill says, by the kernel's log alone, that a process which was started at that
// time ([proc.Clock]) was killed for want of memory, and for whose limit; nil when the
// log does not say so, or may not be read. It is for where nobody counts: the memory
// controller may be that of cgroup v1, or nowhere.
func LoggedKill(pid int, started time.Duration) *memlimit.Kill {
	if pid <= 0 || !initPIDs() {
		return nil
	}
	log, err := readKernelLog()
	if err != nil {
		return nil
	}
	var k *memlimit.Kill
	for _, l := range log {
		if l.pid != pid || l.at < started-logDrift {
			continue
		}
		k = &memlimit.Kill{Processes: 1, Sure: true, Victims: []memlimit.Victim{{PID: pid, Comm: l.comm}}}
		k.Limit = memlimit.Place{Kind: memlimit.KindHost, Name: "this host"}
		if l.limit != "" {
			k.Limit = memlimit.Place{Kind: memlimit.KindAncestor, Name: filepath.Base(l.limit)}
		}
	}
	return k
}
