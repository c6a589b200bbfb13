//go:build !linux && !darwin

package proc

import (
	"context"
	"os"
	"syscall"
)

// BootID needs procfs.
func BootID() (string, error) { return "", ErrUnsupported }

// Self is the calling process, without a start time.
func Self() (ID, error) { return ID{PID: os.Getpid()}, nil }

// Lookup needs procfs.
func Lookup(int) (ID, error) { return ID{}, ErrUnsupported }

// ReadStat needs procfs.
func ReadStat(int) (Stat, error) { return Stat{}, ErrUnsupported }

// Exe needs procfs.
func Exe(int) string { return "" }

// SameProgram needs procfs.
func SameProgram(int) bool { return false }

// Memory needs procfs.
func Memory(int) int64 { return 0 }

// Args needs procfs.
func Args(int) []string { return nil }

// UID needs procfs.
func UID(int) (int, error) { return 0, ErrUnsupported }

// Handle is a process that cannot be mistaken.
type Handle struct{}

// Open needs pidfds.
func Open(ID) (*Handle, error) { return nil, ErrUnsupported }

// OpenPID needs pidfds.
func OpenPID(int) (*Handle, error) { return nil, ErrUnsupported }

// PID is of no process.
func (*Handle) PID() int { return 0 }

// Signal needs pidfds.
func (*Handle) Signal(syscall.Signal) error { return ErrUnsupported }

// Wait needs pidfds.
func (*Handle) Wait(context.Context) error { return ErrUnsupported }

// ExitStatus needs pidfds.
func (*Handle) ExitStatus() (syscall.WaitStatus, bool) { return 0, false }

// Close releases nothing.
func (*Handle) Close() error { return nil }

// running cannot be told here.
func running(ID) (bool, error) { return false, ErrUnsupported }

// Env needs procfs.
func Env(int, ...string) (map[string]string, error) { return nil, ErrUnsupported }
