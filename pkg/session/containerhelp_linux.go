package session

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"golang.org/x/sys/unix"
)

// The first arguments of what is started for a container: a call of its runtime, and its
// first process, in the container itself.
const (
	ContainerArg     = "__container"
	ContainerInitArg = "__container-init"
)

// What the former does.
const (
	containerRun   = "run"   // VIEW RUNTIME ARG…: becomes the runtime
	containerWatch = "watch" // N: has the runtime start a command, see [watchOrder], and waits for that
)

// watchOrder is what one who waits for a command is asked to do.
type watchOrder struct {
	View    string // see setView
	Home    string // the directory of the cgroup in which it waits
	PIDFile string // the runtime writes there whom it has started
	Log     string // and there why it has not
	Argv    []string
}

// containerMain is a call of the runtime.
func containerMain(args []string) int {
	switch {
	case len(args) > 2 && args[0] == containerRun:
		return report("container", becomeRuntime(args[1], args[2:]))
	case len(args) == 2 && args[0] == containerWatch:
		return watchInside(args[1])
	}
	return report("container", fmt.Errorf("not understood: %q", args))
}

// becomeRuntime replaces this process by the runtime.
func becomeRuntime(view string, argv []string) error {
	runtime.LockOSThread() // its namespaces are those of the thread that execs
	if err := setView(view); err != nil {
		return err
	}
	return unix.Exec(argv[0], argv, os.Environ())
}

// setView makes a directory of the cgroup tree the root of it for the calling thread, in
// a mount namespace that ends with whoever is in it.
func setView(view string) error {
	if view == "" {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := unix.Mount(view, unifiedPoint, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", view, unifiedPoint, err)
	}
	return nil
}

// insideFailure is why the runtime did not start a command.
type insideFailure struct {
	Text    string `json:"text"`
	Missing bool   `json:"missing,omitempty"` // the program
}

func (f *insideFailure) Error() string        { return f.Text }
func (f *insideFailure) Is(target error) bool { return f.Missing && target == fs.ErrNotExist }

// clear removes what is of use only until the command runs.
func (o *watchOrder) clear() {
	os.Remove(o.PIDFile)
	os.Remove(o.Log)
}

// watcher waits for a command in a container.
type watcher struct {
	ended map[int]unix.WaitStatus // of those who were collected so far
}

// watchInside has the runtime start a command and leave it (exec --detach): a runtime
// that waits itself waits for whoever holds the command's output, too. As a subreaper
// this process is then the command's parent, and learns how it ended.
//
// N is how many descriptors the command has from 3 up. The next ones are: what the runtime
// reads as the process, the order, and a pipe for what went wrong.
func watchInside(files string) int {
	n, err := strconv.Atoi(files)
	if err != nil || n < 0 {
		return report("container", fmt.Errorf("%q is no number of files", files))
	}
	process, failed := 3+n, 5+n
	unix.CloseOnExec(failed)
	var o watchOrder
	order := os.NewFile(uintptr(4+n), "order")
	_, err = order.Seek(0, io.SeekStart)
	if err == nil {
		err = json.NewDecoder(order).Decode(&o)
	}
	order.Close()
	if err != nil {
		return report("container", fmt.Errorf("read what is to be started: %w", err))
	}
	defer o.clear()
	tell := func(f insideFailure) int {
		b, _ := json.Marshal(f) // of two plain fields
		unix.Write(failed, b)
		if f.Missing {
			return 127
		}
		return 126
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return tell(insideFailure{Text: "become a subreaper: " + err.Error()})
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM)

	home, err := os.OpenFile(filepath.Join(o.Home, "cgroup.procs"), os.O_WRONLY, 0) // the view may not show it
	if err != nil {
		return tell(insideFailure{Text: err.Error()})
	}
	runtime.LockOSThread()
	if err := setView(o.View); err != nil {
		return tell(insideFailure{Text: err.Error()})
	}
	inherit := make([]uintptr, process+1)
	for fd := range inherit {
		inherit[fd] = uintptr(fd)
	}
	p, err := syscall.ForkExec(o.Argv[0], o.Argv, &syscall.ProcAttr{Files: inherit, Env: os.Environ()})
	if err != nil {
		return tell(insideFailure{Text: err.Error()})
	}
	unix.Close(process)
	w := watcher{ended: map[int]unix.WaitStatus{}}
	ws, err := w.wait(p)
	if err != nil || ws.ExitStatus() != 0 {
		return tell(runtimeFailure(o.Log, ws, err))
	}
	pid, err := readPID(o.PIDFile)
	if err != nil {
		return tell(insideFailure{Text: "the runtime does not say what it started: " + err.Error()})
	}
	if _, err := home.WriteString("0"); err != nil {
		return tell(insideFailure{Text: "leave the command's cgroup: " + err.Error()})
	}
	home.Close()
	unix.Close(failed)
	o.clear()
	return w.follow(pid, signals)
}

// follow hands signals on to the command until it has ended, and ends as it did.
func (w *watcher) follow(pid int, signals <-chan os.Signal) int {
	// Our child until we have collected it: the pid is its own.
	if h, err := proc.OpenPID(pid); err == nil {
		go func() {
			for s := range signals {
				h.Signal(s.(syscall.Signal)) // it may just have ended
			}
		}()
	}
	ws, err := w.wait(pid)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "sessionbox: how the command ended is not known:", err)
		return 125
	case ws.Signaled():
		return endBy(ws.Signal())
	}
	return ws.ExitStatus()
}

// wait collects all who end until one has.
func (w *watcher) wait(pid int) (unix.WaitStatus, error) {
	for {
		if ws, ok := w.ended[pid]; ok {
			return ws, nil
		}
		var ws unix.WaitStatus
		switch got, err := unix.Wait4(-1, &ws, 0, nil); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, err
		default:
			w.ended[got] = ws
		}
	}
}

// endBy ends this process by the signal that ended the command. Those for which Go has
// more to say, or which leave a core, become a status as a shell has it.
func endBy(sig unix.Signal) int {
	switch sig {
	case unix.SIGKILL, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE, unix.SIGALRM, unix.SIGUSR1, unix.SIGUSR2:
		signal.Reset(sig)
		unix.Kill(unix.Getpid(), sig)
		if sig != unix.SIGPIPE { // which Go survives
			select {}
		}
	}
	return 128 + int(sig)
}

// runtimeFailure is the last thing that the runtime has logged.
func runtimeFailure(log string, ws unix.WaitStatus, err error) insideFailure {
	f := insideFailure{Text: fmt.Sprintf("the runtime ended with status %d", ws.ExitStatus())}
	if err != nil {
		f.Text = err.Error()
	}
	file, err := os.Open(log)
	if err != nil {
		return f
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if text := strings.TrimSpace(lines.Text()); text != "" {
			f.Text = logText(text)
		}
	}
	low := strings.ToLower(f.Text)
	f.Missing = strings.Contains(low, "not found") || strings.Contains(low, "no such file")
	return f
}

// logText is the message in a line of a log: runc writes key="value" pairs.
func logText(line string) string {
	_, quoted, ok := strings.Cut(line, "msg=")
	if !ok {
		return line
	}
	if prefix, err := strconv.QuotedPrefix(quoted); err == nil {
		if text, err := strconv.Unquote(prefix); err == nil {
			return text
		}
	}
	return quoted
}

// containerInit is the first process of a container: it keeps it until it is killed, and
// collects those whose parents have ended. SIGTERM, from outside or by a command that may
// do so, ends it.
func containerInit() int {
	ended, stop := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	signal.Notify(stop, unix.SIGTERM)
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGPIPE)
	for {
		for {
			var ws unix.WaitStatus
			if pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil); pid <= 0 && !errors.Is(err, unix.EINTR) {
				break
			}
		}
		select {
		case <-ended:
		case <-stop:
			return 0
		}
	}
}
