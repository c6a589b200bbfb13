package doors

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/park"
	"golang.org/x/sys/unix"
)

// Arg is the first argument of the process that closes the doors and becomes the command.
const Arg = "__strict"

// probeArg, in the place of the descriptor, makes it try the doors and tell instead.
const probeArg = "probe"

// Refused says that the doors could not be closed, and so that nothing was started.
type Refused struct{ Text string }

func (e *Refused) Error() string { return e.Text }

// NoDirectory says that a command's directory is none for one whose doors are closed.
type NoDirectory struct{ Dir string }

func (e *NoDirectory) Error() string { return e.Dir + " is not there when the doors are closed" }

// noDir begins what is told of it.
const noDir = "directory "

// Start has start start cmd with all doors closed: cmd is, for that call, a process of the
// program helper that closes them. The error is that of start, a [*Refused], a
// [*NoDirectory], or what exec said, as exec.Cmd.Start gives it; ctx bounds the wait for it.
// After an error cmd has ended, or is killed and does not end for now.
func Start(ctx context.Context, cmd *exec.Cmd, helper string, o Order, start func() error) error {
	order, err := json.Marshal(o)
	if err != nil {
		return err
	}
	failed, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer failed.Close()
	attr, err := namespaces(cmd.SysProcAttr)
	if err != nil {
		w.Close()
		return err
	}
	path, args, extra, before := cmd.Path, cmd.Args, cmd.ExtraFiles, cmd.SysProcAttr
	cmd.Path = helper
	cmd.Args = append([]string{"sessionbox", Arg, strconv.Itoa(3 + len(extra)), string(order), path}, args...)
	cmd.ExtraFiles = append(slices.Clip(extra), w)
	cmd.SysProcAttr = attr
	err = start()
	cmd.Path, cmd.Args, cmd.ExtraFiles, cmd.SysProcAttr = path, args, extra, before
	w.Close()
	if err != nil {
		return refusal(err)
	}
	stop := context.AfterFunc(ctx, func() { failed.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	said, err := io.ReadAll(failed) // ends empty when exec succeeded: the pipe closes on exec
	if err == nil && len(said) == 0 {
		return nil
	}
	park.End(cmd)
	if err != nil {
		return fmt.Errorf("wait until the doors are closed: %w", ctx.Err())
	}
	if dir, ok := strings.CutPrefix(string(said), noDir); ok {
		return &NoDirectory{Dir: dir}
	}
	if errno, err := strconv.Atoi(string(said)); err == nil {
		return &os.PathError{Op: "fork/exec", Path: path, Err: syscall.Errno(errno)}
	}
	return &Refused{Text: string(said)}
}

// refusal makes a [*Refused] of what says that no user namespace can be made.
func refusal(err error) error {
	for _, e := range []error{unix.EPERM, unix.ENOSPC, unix.EUSERS, unix.EINVAL, unix.ENOSYS} {
		if errors.Is(err, e) {
			return &Refused{Text: "no user namespace can be made: " + err.Error()}
		}
	}
	return err
}

// namespaces adds those of the command to what it is started with. A user keeps his id and
// group and gets the one capability that mounting takes, until the command is run; root
// keeps all ids that there are.
func namespaces(attr *syscall.SysProcAttr) (*syscall.SysProcAttr, error) {
	a := syscall.SysProcAttr{}
	if attr != nil {
		a = *attr
	}
	a.Cloneflags |= unix.CLONE_NEWUSER | unix.CLONE_NEWNS
	if uid := os.Geteuid(); uid != 0 {
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		a.AmbientCaps = append(a.AmbientCaps, unix.CAP_SYS_ADMIN)
		return &a, nil
	}
	var err error
	if a.UidMappings, err = allIDs("/proc/self/uid_map"); err != nil {
		return nil, err
	}
	a.GidMappings, err = allIDs("/proc/self/gid_map")
	a.GidMappingsEnableSetgroups = true
	return &a, err
}

// allIDs maps each id that this user namespace has to itself.
func allIDs(file string) ([]syscall.SysProcIDMap, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var maps []syscall.SysProcIDMap
	for line := range strings.Lines(string(b)) {
		var inside, outside, n int
		if _, err := fmt.Sscan(line, &inside, &outside, &n); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", file, line, err)
		}
		maps = append(maps, syscall.SysProcIDMap{ContainerID: inside, HostID: inside, Size: n})
	}
	return maps, nil
}

// Probe closes the doors for a process that tries each of them, and gives what it found.
// The error is a [*Refused] where they cannot be closed.
func Probe(ctx context.Context, helper string, o Order, env []string) ([]Door, error) {
	order, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, helper, Arg, probeArg, string(order))
	attr, err := namespaces(nil)
	if err != nil {
		return nil, err
	}
	var out, errs bytes.Buffer
	cmd.Env, cmd.SysProcAttr, cmd.Stdout, cmd.Stderr, cmd.Dir = env, attr, &out, &errs, "/"
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(errs.String()); text != "" {
			return nil, &Refused{Text: text}
		}
		return nil, refusal(err)
	}
	var doors []Door
	if err := json.Unmarshal(out.Bytes(), &doors); err != nil {
		return nil, fmt.Errorf("read what the doors are: %w", err)
	}
	return append(doors, Open()...), nil
}
