package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/internal/tasklog"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// LogArg is the first argument of the process that keeps the output of one task. It
// runs in our leaf of the session's box: it goes on when the command and its starter
// have ended, as long as anybody can write, and ends with the session.
const LogArg = "__log"

// taskLog is the log of a task that this process started.
type taskLog struct {
	show *tasklog.Show // nil when it is shown to nobody
	cmd  *exec.Cmd
	// What the command had for stdout and stderr before, and what it has instead.
	stdout, stderr io.Writer
	ends           []*os.File
}

// startLog starts the process that keeps the log and has cmd write to it. It is there
// and can write before anything is started that depends on it.
func (s *Session) startLog(ctx context.Context, rec *store.Task, cmd *exec.Cmd, most int64) (_ *taskLog, err error) {
	if most == 0 {
		most = DefaultLogMax
	}
	if most < LeastLogMax {
		return nil, &Error{Kind: ErrUsage, Session: s.Name(), Text: fmt.Sprintf("a log of %d bytes is too small", most),
			Hint: fmt.Sprintf("the least is %dK", LeastLogMax>>10)}
	}
	helper, err := s.m.helper()
	if err != nil {
		return nil, err
	}
	l := &taskLog{cmd: cmd, stdout: cmd.Stdout, stderr: cmd.Stderr}
	defer func() {
		if err != nil {
			l.started()
		}
	}()
	conn, theirs, err := tasklog.Pair()
	if err != nil {
		return nil, err
	}
	given := []*os.File{theirs}
	defer func() {
		for _, f := range given {
			f.Close()
		}
	}()
	for range 2 {
		r, w, err := os.Pipe()
		if err != nil {
			conn.Close()
			return nil, err
		}
		given, l.ends = append(given, r), append(l.ends, w)
	}
	history := s.m.store.Dirs().History
	pump := exec.Command(helper, LogArg, history, s.rec.ID, strconv.Itoa(rec.N), strconv.FormatInt(most, 10))
	pump.ExtraFiles = given
	pump.Env = append(plainEnv(), sessionEnv(&s.rec)...)
	pump.Dir = "/"
	pump.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := s.box.Start(ctx, helperLeaf, pump); err != nil {
		conn.Close()
		return nil, fmt.Errorf("start the process that keeps the log: %w", err)
	}
	go pump.Wait()
	if err := l.attend(conn, history, s.rec.ID, rec.N); err != nil {
		conn.Close()
		pump.Process.Kill()
		return nil, &Error{Kind: ErrPermission, Session: s.Name(), Text: "no log can be kept in " + history, Err: err,
			Hint: "make room or the directory writable, or run it without a log; SESSIONBOX_STATE_DIR names another place"}
	}
	cmd.Stdout, cmd.Stderr = l.ends[0], l.ends[1]
	rec.Log = tasklog.Path(history, s.rec.ID, rec.N)
	return l, nil
}

// attend waits until the log can be written, and begins to show it.
func (l *taskLog) attend(conn net.Conn, history, id string, n int) error {
	from, err := tasklog.Await(conn, lockTime)
	if err != nil {
		return err
	}
	if l.stdout == nil && l.stderr == nil {
		return conn.Close()
	}
	dir, err := tasklog.Open(history, id, n)
	if err != nil {
		return err
	}
	l.show = tasklog.NewShow(conn, dir, from, l.stdout, l.stderr)
	return nil
}

// started gives the command back what it had, and lets go of the ends that it has got
// by now.
func (l *taskLog) started() {
	if len(l.ends) == 2 {
		l.cmd.Stdout, l.cmd.Stderr = l.stdout, l.stderr
	}
	for _, f := range l.ends {
		f.Close()
	}
	l.ends = nil
}

// ended says that the command has ended.
func (l *taskLog) ended() {
	if l != nil && l.show != nil {
		l.show.Ended()
	}
}

// shown waits until all that the command wrote is shown.
func (l *taskLog) shown() (missing int64, why string) {
	if l == nil || l.show == nil {
		return 0, ""
	}
	return l.show.Wait()
}

func (l *taskLog) hide() {
	if l != nil && l.show != nil {
		l.show.Hide()
	}
}

// remove takes the log of a task away that was not started.
func (l *taskLog) remove(t *Task) {
	if l == nil {
		return
	}
	l.started() // its other end ends with that
	l.hide()
	tasklog.Remove(t.s.m.store.Dirs().History, t.s.rec.ID, t.rec.N)
	t.rec.Log = ""
}

// lastWordsTime bounds the wait for what the tasks wrote last to get into their logs.
const lastWordsTime = time.Second

// lastWords lets the processes that keep logs come to the end, before they are killed
// with the box: when all tasks ended as they were asked, nobody can write any more.
func (c *closing) lastWords(ctx context.Context) {
	wait, cancel := context.WithTimeout(ctx, lastWordsTime)
	defer cancel()
	for c.keepsLogs() && !c.othersThan(helperLeaf) && sleep(wait, 2*time.Millisecond) == nil {
	}
}

func (c *closing) keepsLogs() bool {
	members, err := c.box.Members(helperLeaf)
	return err == nil && slices.ContainsFunc(members, func(m proc.Member) bool {
		argv := proc.Args(m.PID)
		return len(argv) > 1 && argv[1] == LogArg
	})
}

// logMain is the process that keeps a log: args are the directory of the history, the
// session's id, the number of the task and the most that the log may take.
func logMain(args []string) error {
	const out, errs, ctl = 4, 5, 3
	closeInherited(ctl, out, errs)
	// It ends when nobody can write any more. What asks the session's processes to end
	// comes to those who write as well, and what they say then is to be kept.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE)
	if len(args) != 4 {
		return fmt.Errorf("want HISTORY ID TASK MAX, got %q", args)
	}
	history, id := args[0], args[1]
	n, err1 := strconv.Atoi(args[2])
	most, err2 := strconv.ParseInt(args[3], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	w, err := tasklog.Create(history, id, n, most)
	if err != nil {
		tasklog.Refuse(ctl, err)
		return err
	}
	go tasklog.Sweep(history, time.Now())
	p := tasklog.Pump{Log: w, Max: most, In: [2]int{out, errs}, Ctl: ctl}
	return p.Run()
}
