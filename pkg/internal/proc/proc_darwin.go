package proc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// On macOS start times are in microseconds since 1970, as the kernel noted them at the fork
// (p_starttime): a clock that is set later does not change them.

// BootID is new with each boot.
func BootID() (string, error) {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return "", fmt.Errorf("read the id of this boot: %w", err)
	}
	return id, nil
}

// Self is the calling process.
func Self() (ID, error) { return Lookup(os.Getpid()) }

// Lookup is whoever has the pid now.
func Lookup(pid int) (ID, error) {
	st, err := ReadStat(pid)
	if err != nil {
		return ID{}, err
	}
	boot, err := BootID()
	if err != nil {
		return ID{}, err
	}
	return ID{PID: pid, Start: st.Start, Boot: boot}, nil
}

// States of a process in kinfo_proc (bsd/sys/proc.h).
const (
	statStopped = 4
	statZombie  = 5
)

// ReadStat reads what sysctl kern.proc.pid says.
func ReadStat(pid int) (Stat, error) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(k.Proc.P_pid) != pid {
		// For nobody the answer has no entry, which x/sys calls EIO.
		return Stat{}, fmt.Errorf("pid %d: %w", pid, ErrGone)
	}
	comm, _, _ := bytes.Cut(k.Proc.P_comm[:], []byte{0})
	st := Stat{PID: pid, Comm: string(comm), State: 'S', PPID: int(k.Eproc.Ppid), PGID: int(k.Eproc.Pgid), TTY: int(k.Eproc.Tdev), Threads: 1,
		Start: uint64(k.Proc.P_starttime.Sec)*1e6 + uint64(k.Proc.P_starttime.Usec)}
	switch k.Proc.P_stat {
	case statStopped:
		st.State = 'T'
	case statZombie:
		st.State = 'Z'
	}
	if sid, err := unix.Getsid(pid); err == nil {
		st.SID = sid
	}
	return st, nil
}

// UID is the effective user of a process.
func UID(pid int) (int, error) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(k.Proc.P_pid) != pid {
		return 0, fmt.Errorf("pid %d: %w", pid, ErrGone)
	}
	return int(k.Eproc.Ucred.Uid), nil
}

// arguments reads kern.procargs2: a count, the program, zeros, the arguments and, where the
// kernel shows it (not of Apple's own programs), the environment.
func arguments(pid int) (exe string, argv, env []string) {
	b, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil || len(b) < 4 {
		return "", nil, nil
	}
	argc := int(int32(binary.LittleEndian.Uint32(b)))
	path, rest, ok := bytes.Cut(b[4:], []byte{0})
	if !ok || argc < 0 {
		return "", nil, nil
	}
	rest = bytes.TrimLeft(rest, "\x00")
	for len(argv) < argc {
		word, after, ok := bytes.Cut(rest, []byte{0})
		if !ok {
			return string(path), argv, nil
		}
		argv, rest = append(argv, string(word)), after
	}
	for {
		word, after, ok := bytes.Cut(rest, []byte{0})
		if !ok || len(word) == 0 {
			return string(path), argv, env
		}
		env, rest = append(env, string(word)), after
	}
}

// Args is the command line of a process, nil if it cannot be read.
func Args(pid int) []string {
	_, argv, _ := arguments(pid)
	return argv
}

// Exe is the file of the program that a process runs, "" if it cannot be told.
func Exe(pid int) string {
	exe, _, _ := arguments(pid)
	return exe
}

// SameProgram says whether a process runs the same program file as we do.
func SameProgram(pid int) bool {
	self, err := os.Executable()
	if err != nil {
		return false
	}
	var a, b unix.Stat_t
	return unix.Stat(self, &a) == nil && unix.Stat(Exe(pid), &b) == nil && a.Dev == b.Dev && a.Ino == b.Ino
}

// Env gives variables of the environment that a process was started with, as far as the
// kernel shows it.
func Env(pid int, keys ...string) (map[string]string, error) {
	exe, _, env := arguments(pid)
	if exe == "" {
		return nil, fmt.Errorf("environment of pid %d: %w", pid, ErrGone)
	}
	found := map[string]string{}
	for _, kv := range env {
		for _, key := range keys {
			if v, ok := strings.CutPrefix(kv, key+"="); ok && found[key] == "" {
				found[key] = v
			}
		}
	}
	return found, nil
}

// Memory is not told here: phys_footprint is package darwinjob's.
func Memory(int) int64 { return 0 }

// Handle is a process by pid and start time. There are no pidfds: between the comparison
// and a signal the pid can in theory change hands. What has to be exact goes through package
// darwinjob.
type Handle struct{ id ID }

// Open is a handle of the process that id names.
func Open(id ID) (*Handle, error) {
	h := &Handle{id}
	if err := CheckPID(id.PID); err != nil {
		return nil, err
	}
	return h, h.same()
}

// OpenPID is a handle of whoever has the pid now.
func OpenPID(pid int) (*Handle, error) {
	if err := CheckPID(pid); err != nil {
		return nil, err
	}
	id, err := Lookup(pid)
	if err != nil {
		return nil, err
	}
	return &Handle{id}, nil
}

func (h *Handle) same() error {
	st, err := ReadStat(h.id.PID)
	switch {
	case err != nil:
		return err
	case st.Start != h.id.Start:
		return fmt.Errorf("pid %d: %w", h.id.PID, ErrReused)
	}
	return nil
}

// PID is the process's.
func (h *Handle) PID() int { return h.id.PID }

// Signal signals the process, unless its pid is another's now.
func (h *Handle) Signal(sig syscall.Signal) error {
	if err := h.same(); err != nil {
		if errors.Is(err, ErrReused) {
			err = ErrGone
		}
		return err
	}
	if err := unix.Kill(h.id.PID, sig); err != nil {
		if errors.Is(err, unix.ESRCH) {
			err = ErrGone
		}
		return fmt.Errorf("signal pid %d: %w", h.id.PID, err)
	}
	return nil
}

// waitPace is how often an end is looked for.
const waitPace = 50 * time.Millisecond

// Wait returns when the process has ended.
func (h *Handle) Wait(ctx context.Context) error {
	for !h.Ended() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(waitPace):
		}
	}
	return nil
}

// Ended says whether the process has.
func (h *Handle) Ended() bool {
	alive, err := running(h.id)
	return err == nil && !alive || errors.Is(err, ErrGone) || errors.Is(err, ErrReused)
}

// ExitStatus is told to the parent only.
func (*Handle) ExitStatus() (syscall.WaitStatus, bool) { return 0, false }

// Close releases nothing.
func (*Handle) Close() error { return nil }

// running says whether the process that id names lives.
func running(id ID) (bool, error) {
	if boot, err := BootID(); err == nil && id.Boot != "" && id.Boot != boot {
		return false, ErrGone
	}
	st, err := ReadStat(id.PID)
	if err != nil {
		return false, err
	}
	if st.Start != id.Start {
		return false, ErrReused
	}
	return st.State != 'Z', nil
}
