package hosts

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// A Command is a program to run in a host.
type Command struct {
	Route Route
	Args  []string
	Env   []string // added to what the route gives
	Dir   string   // "" is what the route gives

	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// counter numbers things.
type counter struct{ n atomic.Int64 }

func (c *counter) next() string { return strconv.FormatInt(c.n.Add(1), 10) }

// scriptDir holds the scripts of commands inside the host.
const scriptDir = "/run/sbxtest"

// Run runs a command in the host. A command that ran and failed is an
// *exec.ExitError with its exit code. When ctx ends Run returns, and what the
// command was may go on in the host until Close.
func (h *Host) Run(ctx context.Context, c Command) error {
	root, err := h.openRoot()
	if err != nil {
		return err
	}
	defer root.Close()
	name := scriptDir + "/" + h.scripts.next()
	script := recipeFile{Path: name, Mode: 0o755, Body: commandScript(c.Route, c.Args, c.Env, c.Dir)}
	if err := writeNew(root, script); err != nil {
		return fmt.Errorf("prepare %s: %w", strings.Join(c.Args, " "), err)
	}
	defer root.Remove(strings.TrimPrefix(name, "/"))
	cmd, done, err := h.enter(ctx, c.Route.argv(name))
	if err != nil {
		return err
	}
	defer done()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	return cmd.Run()
}

// Output runs a command by a route and returns what it printed, without the last
// newline. An error holds what it said on stderr.
func (h *Host) Output(ctx context.Context, route Route, args ...string) (string, error) {
	var out, errOut bytes.Buffer
	err := h.Run(ctx, Command{Route: route, Args: args, Stdout: &out, Stderr: &errOut})
	if err != nil {
		err = fmt.Errorf("%s (%s): %w: %s", strings.Join(args, " "), route, err, strings.TrimSpace(errOut.String()))
	}
	return strings.TrimRight(out.String(), "\n"), err
}

// enter returns a command that runs argv as root inside the host. It is started in
// init.scope: elsewhere in the host's tree systemd forbids it, and outside of it the
// command would see itself in a cgroup above its own root.
func (h *Host) enter(ctx context.Context, argv []string) (*exec.Cmd, func(), error) {
	path, err := tool{program: "nsenter"}.find()
	if err != nil {
		return nil, nil, err
	}
	at, err := h.group.open("init.scope")
	if err != nil {
		return nil, nil, err
	}
	args := []string{"-t", strconv.Itoa(h.Pid()), "-m", "-p", "-C", "-u", "-i", "-n", "-r", "-w", "--"}
	cmd := exec.CommandContext(ctx, path, append(args, argv...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C"}
	cmd.WaitDelay = 2 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(at.Fd())}
	return cmd, func() { at.Close() }, nil
}

// nsenter is enter and run, for the host's own use before scripts can be written.
func (h *Host) nsenter(ctx context.Context, stdin io.Reader, stderr io.Writer, argv ...string) (string, error) {
	cmd, done, err := h.enter(ctx, argv)
	if err != nil {
		return "", err
	}
	defer done()
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, stderr
	err = cmd.Run()
	return out.String(), err
}

// openRoot opens the host's root directory as the host sees it. systemd is our own
// child and not waited for before Close, so its pid cannot be another's.
func (h *Host) openRoot() (*os.Root, error) {
	root, err := os.OpenRoot(fmt.Sprintf("/proc/%d/root", h.Pid()))
	if err != nil {
		return nil, fmt.Errorf("look into the host: %w", err)
	}
	return root, nil
}

// CopyIn copies a file, or a directory with all in it, into the host.
func (h *Host) CopyIn(f File) error {
	root, err := h.openRoot()
	if err != nil {
		return err
	}
	defer root.Close()
	return f.copyTo(root, f.Dst)
}
