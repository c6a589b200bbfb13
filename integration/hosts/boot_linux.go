package hosts

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

//go:embed nsinit.sh
var nsinit string

// bootTimeout bounds a boot, which takes two to three seconds on an idle machine.
const bootTimeout = 90 * time.Second

// namespaces are those of a host, but for its cgroup namespace: see startInit.
const namespaces = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS |
	syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET

// Options are what a host may be asked for. The zero value is a plain host.
type Options struct {
	// Linger keeps the user manager of AgentUser running without a login.
	Linger bool
	// Files are copied in once the host is up.
	Files []File
}

// A Host is a systemd that runs as PID 1 of its own namespaces.
type Host struct {
	group   *group
	init    *process // systemd: its pid outside is init.cmd.Process.Pid
	console *tail
	scripts counter

	closing  sync.Once
	closed   chan struct{} // closed when Close begins
	closeErr error
}

// Boot boots root as a host and returns when systemd says that it is running. The
// host sees root through an overlay of its own; several may run on one root. When
// ctx ends the host is closed; Close must be called all the same, and returns when
// that is done.
func Boot(ctx context.Context, root *Root, opts Options) (*Host, error) {
	h, err := boot(ctx, root)
	if err != nil {
		return nil, fmt.Errorf("boot %s: %w", root.Generation, err)
	}
	if err := h.setUp(ctx, opts); err != nil {
		err = fmt.Errorf("boot %s: %w\nconsole:\n%s", root.Generation, err, h.console)
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

func boot(ctx context.Context, root *Root) (*Host, error) {
	if err := ensureTools(ctx, systemdTools(), os.Stderr); err != nil {
		return nil, err
	}
	g, err := newGroup()
	if err != nil {
		return nil, err
	}
	h := &Host{group: g, console: &tail{max: 16 << 10}, closed: make(chan struct{})}
	if h.init, err = h.startInit(root); err != nil {
		return nil, errors.Join(err, g.close())
	}
	go func() {
		select {
		case <-ctx.Done():
			_ = h.Close() // it says the same again to who else calls it
		case <-h.closed:
		}
	}()
	return h, nil
}

// startInit starts what becomes systemd. The cgroup namespace is unshared after the
// fork: one asked for by clone would be rooted at our cgroup, not at the child's.
func (h *Host) startInit(root *Root) (*process, error) {
	at, err := h.group.open("")
	if err != nil {
		return nil, err
	}
	defer at.Close()
	console, err := openConsole(h.console)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/bin/sh", "-c", nsinit, "nsinit", root.Dir, root.cache.path("mnt"), console.Name())
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   namespaces,
		Unshareflags: syscall.CLONE_NEWCGROUP,
		UseCgroupFD:  true,
		CgroupFD:     int(at.Fd()),
		Setsid:       true, // a Ctrl-C at the terminal would tell PID 1 to reboot
	}
	p, err := startTied(cmd)
	if err != nil {
		console.Close()
		return nil, fmt.Errorf("start the namespaces: %w", err)
	}
	// systemd opens its console for each message anew. Between two of them we are
	// the one who holds it, or it would be hung up for good.
	go func() {
		<-p.done
		console.Close()
	}()
	return p, nil
}

func (h *Host) setUp(ctx context.Context, opts Options) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bootTimeout, errors.New("it took too long"))
	defer cancel()
	if err := h.waitRunning(ctx); err != nil {
		return err
	}
	for _, f := range opts.Files {
		if err := h.CopyIn(f); err != nil {
			return err
		}
	}
	if opts.Linger {
		if _, err := h.Output(ctx, Enter, "loginctl", "enable-linger", AgentUser); err != nil {
			return err
		}
	}
	return nil
}

// waitRunning asks systemd until it says that the boot is over. It is asked again
// as long as it cannot be reached, which is the first second.
func (h *Host) waitRunning(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for systemd: %w", context.Cause(ctx))
		case <-h.init.done:
			return fmt.Errorf("systemd ended: %w", h.init.err)
		case <-tick.C:
		}
		if _, err := os.Stat(h.group.path + "/init.scope"); err != nil {
			continue // no systemd yet to ask
		}
		state, err := h.nsenter(ctx, nil, nil, "systemctl", "is-system-running", "--wait")
		switch state = strings.TrimSpace(state); state {
		case "running":
			return nil
		case "degraded", "maintenance":
			failed, _ := h.nsenter(ctx, nil, nil, "systemctl", "--failed", "--no-legend", "--no-pager")
			return errors.Join(fmt.Errorf("systemd is %s: %s", state, failed), err)
		}
	}
}

// Pid is the pid of the host's systemd as seen from the machine.
func (h *Host) Pid() int { return h.init.cmd.Process.Pid }

// CgroupPath is the directory of the host's root cgroup on the machine.
func (h *Host) CgroupPath() string { return h.group.path }

// Console returns the end of what systemd wrote to its console.
func (h *Host) Console() string { return h.console.String() }

// Close ends everything in the host and removes its cgroup. It may be called
// several times, and from several goroutines; each call returns when it is done.
func (h *Host) Close() error {
	h.closing.Do(func() {
		close(h.closed)
		h.closeErr = h.group.close()
		if h.closeErr == nil {
			<-h.init.done
		}
	})
	return h.closeErr
}
