package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/sessionbox/sessionbox/pkg/internal/kfile"
	"golang.org/x/sys/unix"
)

const bootIDFile = "/proc/sys/kernel/random/boot_id"

// BootID names this boot of this machine: pids and start times of another boot
// say nothing.
func BootID() (string, error) {
	b, err := kfile.ReadAt(unix.AT_FDCWD, bootIDFile)
	if err != nil {
		return "", &os.PathError{Op: "read", Path: bootIDFile, Err: err}
	}
	return strings.TrimSpace(string(b)), nil
}

// Self is the calling process.
func Self() (ID, error) { return Lookup(os.Getpid()) }

// Lookup gives the identity of whoever has the pid now.
func Lookup(pid int) (ID, error) {
	if err := OwnNamespace(); err != nil {
		return ID{}, err
	}
	s, err := ReadStat(pid)
	if err != nil {
		return ID{}, err
	}
	boot, err := BootID()
	if err != nil {
		return ID{}, fmt.Errorf("read boot id: %w", err)
	}
	ns, err := Namespace()
	if err != nil {
		return ID{}, err
	}
	return ID{PID: pid, Start: s.Start, Boot: boot, NS: ns}, nil
}

// ReadStat reads /proc/PID/stat; ErrGone when there is no such process.
//
// It is what a reading of the process table does most: the line comes whole with the first
// read (single_open of fs/seq_file.c), so that no second one asks for more.
func ReadStat(pid int) (Stat, error) {
	path := "/proc/" + strconv.Itoa(pid) + "/stat"
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Stat{}, gone(&os.PathError{Op: "open", Path: path, Err: err})
	}
	defer unix.Close(fd)
	var line [1024]byte
	for {
		n, err := unix.Read(fd, line[:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return Stat{}, gone(&os.PathError{Op: "read", Path: path, Err: err})
		default:
			return ParseStat(line[:n])
		}
	}
}

// Args is the command line the process shows, [comm] for one that shows none
// (kernel threads, zombies).
func Args(pid int) []string {
	b, _ := read(pid, "cmdline")
	b = bytes.TrimRight(b, "\x00")
	if len(b) > 0 {
		return strings.Split(string(b), "\x00")
	}
	s, err := ReadStat(pid)
	if err != nil {
		return nil
	}
	return []string{"[" + s.Comm + "]"}
}

// Cgroup is the process's cgroup v2 path as seen from our cgroup namespace,
// e.g. "/user.slice/user-1000.slice/session-3.scope".
//
// Of a process whose leading thread has ended it is that of a thread that lives: what
// the kernel says of the dead one is where it was, which is another place if the
// process was moved since.
func Cgroup(pid int) (string, error) {
	b, err := read(pid, "cgroup")
	if err != nil {
		return "", err
	}
	if tid := deputy(pid); tid != 0 {
		if of, err := read(pid, fmt.Sprintf("task/%d/cgroup", tid)); err == nil {
			b = of
		}
	}
	return cgroupIn(b, pid)
}

func cgroupIn(b []byte, pid int) (string, error) {
	for line := range strings.Lines(string(b)) {
		if p, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSuffix(strings.TrimSuffix(p, "\n"), " (deleted)"), nil
		}
	}
	return "", fmt.Errorf("pid %d is in no cgroup v2: %w", pid, ErrUnsupported)
}

// deputy is a living thread of a process whose leading one has ended, 0 if that lives or
// none does.
func deputy(pid int) int {
	if s, err := ReadStat(pid); err != nil || s.State != 'Z' || s.Threads <= 1 {
		return 0
	}
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil || tid == pid {
			continue
		}
		b, err := read(pid, "task/"+e.Name()+"/stat")
		if err != nil {
			continue
		}
		if s, err := ParseStat(b); err == nil && s.State != 'Z' && s.State != 'X' {
			return tid
		}
	}
	return 0
}

// Elsewhere says that the leading thread of a process has ended, and that those which
// live are in another cgroup than it was.
func Elsewhere(pid int) bool {
	tid := deputy(pid)
	if tid == 0 {
		return false
	}
	dead, err1 := read(pid, "cgroup")
	alive, err2 := read(pid, fmt.Sprintf("task/%d/cgroup", tid))
	return err1 == nil && err2 == nil && !bytes.Equal(dead, alive)
}

// Of is the process that a thread is of.
func Of(tid int) (int, error) {
	b, err := read(tid, "status")
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("Tgid:")); ok {
			return strconv.Atoi(string(bytes.TrimSpace(rest)))
		}
	}
	return 0, fmt.Errorf("no Tgid in the status of thread %d", tid)
}

// HasThread says whether a thread is one of the process.
func HasThread(pid, tid int) bool {
	_, err := os.Lstat(fmt.Sprintf("/proc/%d/task/%d", pid, tid))
	return err == nil
}

// PIDs lists the processes of /proc, in ascending order of directory reading.
func PIDs() ([]int, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	pids := make([]int, 0, len(names))
	for _, n := range names {
		if n[0] > '0' && n[0] <= '9' {
			if pid, err := strconv.Atoi(n); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

// Env returns the values of the wanted variables in the process's initial
// environment. When the leading thread has ended its environ reads as ESRCH
// while the process lives on in another thread (measured on 6.18), so a live
// thread's is read then. Other users' environments are not readable: EACCES.
func Env(pid int, keys ...string) (map[string]string, error) {
	b, err := read(pid, "environ")
	if err != nil || len(b) == 0 {
		if b2, err2 := threadEnviron(pid); err2 == nil {
			b, err = b2, nil
		}
	}
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for kv := range bytes.SplitSeq(b, []byte{0}) {
		k, v, ok := bytes.Cut(kv, []byte{'='})
		if !ok {
			continue
		}
		for _, want := range keys {
			if string(k) == want {
				found[want] = string(v)
			}
		}
	}
	return found, nil
}

func threadEnviron(pid int) ([]byte, error) {
	// The link count of task is 2 and the number of threads: most that show no
	// environment are kernel threads or zombies, and not worth a listing.
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/task", pid), &st); err != nil || st.Nlink <= 3 {
		return nil, fs.ErrNotExist
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, gone(err)
	}
	err = fs.ErrNotExist
	for _, t := range threads {
		if t.Name() == strconv.Itoa(pid) {
			continue
		}
		var b []byte
		if b, err = read(pid, "task/"+t.Name()+"/environ"); err == nil && len(b) > 0 {
			return b, nil
		}
	}
	return nil, err
}

// UID is the effective owner of /proc/PID, root for one that is not dumpable.
func UID(pid int) (int, error) {
	fi, err := os.Stat("/proc/" + strconv.Itoa(pid))
	if err != nil {
		return -1, gone(err)
	}
	return int(fi.Sys().(*syscall.Stat_t).Uid), nil
}

// UIDs are the real and the effective user that the process runs as. Unlike [UID]
// they are its own also when it is not dumpable.
func UIDs(pid int) (realUID, effective int, err error) {
	b, err := read(pid, "status")
	if err != nil {
		return -1, -1, err
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("Uid:")); ok {
			if _, err := fmt.Sscan(string(rest), &realUID, &effective); err != nil {
				return -1, -1, fmt.Errorf("parse /proc/%d/status %q: %w", pid, clip(line), err)
			}
			return realUID, effective, nil
		}
	}
	return -1, -1, fmt.Errorf("pid %d: no Uid in its status", pid)
}

// Link reads one of the process's links, e.g. "cwd" or "exe", "" when it cannot be
// told.
func Link(pid int, name string) string {
	s, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/" + name)
	return s
}

// Wchan is where in the kernel the process sleeps, "" when it cannot be told.
func Wchan(pid int) string {
	b, _ := read(pid, "wchan")
	if w := string(b); w != "0" {
		return w
	}
	return ""
}

func read(pid int, file string) ([]byte, error) {
	path := "/proc/" + strconv.Itoa(pid) + "/" + file
	b, err := kfile.ReadAt(unix.AT_FDCWD, path)
	if err != nil {
		return nil, gone(&os.PathError{Op: "read", Path: path, Err: err})
	}
	return b, nil
}

// gone turns the three ways in which procfs says "no such process" into one.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return errors.Join(ErrGone, err)
	}
	return err
}

// Memory is what the process holds alone or in shared memory, also swapped out,
// in bytes; pages of files do not count. 0 when it cannot be read.
func Memory(pid int) int64 {
	b, err := read(pid, "status")
	if err != nil {
		return 0
	}
	var kib int64
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch string(f[0]) {
		case "RssAnon:", "RssShmem:", "VmSwap:":
			n, _ := strconv.ParseInt(string(f[1]), 10, 64)
			kib += n
		}
	}
	return kib << 10
}

// NetNS names the process's network namespace, "" when it cannot be told.
func NetNS(pid int) string {
	s, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/net")
	return s
}

// Net reads a table of the process's network namespace, e.g. "tcp6".
func Net(pid int, table string) []byte {
	b, _ := read(pid, "net/"+table)
	return b
}

// Sockets gives the inode numbers of the process's open sockets.
func Sockets(pid int) []string {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	var inodes []string
	for _, n := range names {
		s, _ := os.Readlink(dir + "/" + n)
		if in, ok := strings.CutPrefix(s, "socket:["); ok {
			inodes = append(inodes, strings.TrimSuffix(in, "]"))
		}
	}
	return inodes
}

// Exe is the file of the program that a process runs, "" if it cannot be told.
func Exe(pid int) string { return Link(pid, "exe") }

// SameProgram says whether a process runs the same program file as we do.
func SameProgram(pid int) bool {
	var a, b unix.Stat_t
	return unix.Stat("/proc/self/exe", &a) == nil && unix.Stat("/proc/"+strconv.Itoa(pid)+"/exe", &b) == nil &&
		a.Dev == b.Dev && a.Ino == b.Ino
}
