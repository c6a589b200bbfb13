package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/tasklog"
	"github.com/sessionbox/sessionbox/pkg/internal/watch"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// Sizes of the log of a task, in bytes.
const (
	DefaultLogMax = tasklog.DefaultMax
	LeastLogMax   = tasklog.LeastMax
)

// LogOptions say what is read of a log.
type LogOptions struct {
	// Follow goes on with what is written from now on, until nobody can write any more:
	// the command and all that it left with its output have ended.
	Follow bool
	// Tail gives only the newest lines, so many; nil gives all that is kept.
	Tail *int
}

// LogLine is a line of what a task's command wrote, or a part of one.
type LogLine struct {
	Time   time.Time // when it was read from the command; zero if Missing
	Stream string    // stdout or stderr; "" if it is not known of what is Missing
	// Text is without the newline, and valid until the next line.
	Text []byte
	// Partial says that the stream's next line goes on where this one ends.
	Partial bool
	// Missing counts bytes that are not in the log, in place of a text: they were
	// rotated away, or the disk was full.
	Missing int64
}

// Logs gives what the command of a task wrote, if it was started with a log: oldest
// first, until ctx is done or there is no more. The session may have been closed: its
// logs stay for 31 days. A name means the session that has it now, or had it last.
func (m *Manager) Logs(ctx context.Context, ref string, task int, o LogOptions) iter.Seq2[LogLine, error] {
	return func(yield func(LogLine, error) bool) {
		dir, err := m.openLog(ref, task)
		if err != nil {
			yield(LogLine{}, err)
			return
		}
		defer dir.Close()
		var from int64
		if o.Tail != nil {
			if from, err = dir.Tail(*o.Tail); err != nil {
				yield(LogLine{}, err)
				return
			}
		}
		r := dir.Read(from)
		defer r.Close()
		wait := func() bool { return false }
		if o.Follow {
			w := watch.New(dir.Path())
			defer w.Close()
			wait = func() bool { w.Wait(ctx); return ctx.Err() == nil }
		}
		for more := true; more; {
			live := dir.Live()
			if !readLines(ctx, r, yield) {
				return
			}
			more = live && wait()
		}
	}
}

// readLines yields what there is now. It returns false when that was the end.
func readLines(ctx context.Context, r *tasklog.Reader, yield func(LogLine, error) bool) bool {
	for ctx.Err() == nil {
		l, err := r.Next()
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			yield(LogLine{}, fmt.Errorf("read the log: %w", err))
			return false
		}
		line := LogLine{Time: l.Time, Text: l.Text, Partial: l.Partial, Missing: l.Missing}
		if !l.Time.IsZero() {
			line.Stream = l.Stream.String()
		}
		if !yield(line, nil) {
			return false
		}
	}
	return false
}

// openLog finds the log of a task of a session that is open or was closed.
func (m *Manager) openLog(ref string, task int) (*tasklog.Dir, error) {
	if m.stateErr != nil {
		return nil, m.stateErr
	}
	if task < 1 {
		return nil, &Error{Kind: ErrUsage, Session: ref, Text: "logs are of a task",
			Hint: "write SESSION/TASK; `sessionbox inspect " + ref + "` lists the tasks"}
	}
	id, err := m.resolve(ref)
	if err != nil {
		r, closed := m.lastReceipt(ref)
		switch {
		case errors.Is(err, ErrClosed) && closed:
			id = r.ID
		case errors.Is(err, ErrNotFound) && store.ValidID(ref):
			id = ref // its receipt may have been lost, the log tells by itself
		default:
			return nil, err
		}
	}
	logged, n := m.loggedAs(id, task)
	dir, oerr := tasklog.Open(m.store.Dirs().History, logged, n)
	switch {
	case oerr == nil:
		return dir, nil
	case !errors.Is(oerr, fs.ErrNotExist):
		return nil, &Error{Session: ref, Text: "the log cannot be read", Err: oerr}
	case err != nil && errors.Is(err, ErrNotFound):
		return nil, err
	}
	return nil, m.noLog(ref, id, task)
}

// loggedAs names the session and task that a log is kept under: of a task that was kept
// it is the one that it was started as.
func (m *Manager) loggedAs(id string, task int) (string, int) {
	path := ""
	if t, err := m.store.Task(id, task); err == nil {
		path = t.Log
	} else if r, ok := m.lastReceipt(id); ok {
		if i := slices.IndexFunc(r.Tasks, func(t TaskInfo) bool { return t.N == task }); i >= 0 {
			path = r.Tasks[i].Log
		}
	}
	n, err := strconv.Atoi(filepath.Base(path))
	if first := filepath.Base(filepath.Dir(path)); err == nil && store.ValidID(first) {
		return first, n
	}
	return id, task
}

// noLog says why a task has none.
func (m *Manager) noLog(ref, id string, task int) error {
	var had string
	t, err := m.store.Task(id, task)
	if err == nil {
		had = t.Log
	} else if r, ok := m.lastReceipt(id); ok {
		i := slices.IndexFunc(r.Tasks, func(t TaskInfo) bool { return t.N == task })
		if i < 0 {
			return noTask(ref, task)
		}
		had = r.Tasks[i].Log
	} else {
		return noTask(ref, task)
	}
	e := &Error{Kind: ErrNotFound, Session: ref, Text: fmt.Sprintf("task %d has no log", task),
		Hint: "`sessionbox exec --log` keeps what a command writes"}
	if had != "" {
		e.Text, e.Hint = fmt.Sprintf("the log of task %d is gone from %s", task, had), "logs are kept for 31 days"
	}
	return e
}
