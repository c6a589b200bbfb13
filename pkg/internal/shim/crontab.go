package shim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The table of cron is one text that everybody of a user replaces as a whole: nothing in
// it says whose a line is. A line is the session's only if a call of the session installed
// a text that its shim had read, if the table was just that text afterwards, and if the
// line was not there right before. Whatever else has come while a call was under way, in an
// editor say, is a suspect.

// table is what a call did to the user's crontab.
type table struct {
	Before string `json:"before"`
	After  string `json:"after"`
	// Done: After is known. Else the caller was killed meanwhile.
	Done bool `json:"done"`
	// Proven: After is the very text that the call installed.
	Proven bool `json:"proven,omitempty"`
}

// Crontab gives the lines of the user's table, which is now, that the session has put
// there; unsure are those of which that is likely alone.
func (d Dir) Crontab(now string) (own, unsure []string) {
	mine, lost := bag{}, bag{}
	for _, path := range d.glob("crontab", "*.json") { // in the order of the calls
		var t table
		if readJSON(path, &t) != nil {
			continue
		}
		if !t.Done {
			t.After = now
		}
		// What somebody else took out since the last call, and may have put there again, is his.
		mine.limit(bagOf(t.Before))
		for _, l := range added(t.After, t.Before) { // that is, taken out
			if !mine.take(l) {
				lost[l]++
			}
		}
		var more []string
		for _, l := range added(t.Before, t.After) {
			if !lost.take(l) { // what was there before the session took it out is not its own
				more = append(more, l)
			}
		}
		// As long as a line of somebody else's is missing, a new one may be that line, edited.
		if t.Proven && lost.empty() {
			mine.put(more)
		} else {
			unsure = append(unsure, more...)
		}
	}
	mine.limit(bagOf(now))
	there := bagOf(now)
	for _, l := range linesOf(now) {
		if mine.take(l) {
			own = append(own, l)
			there.take(l)
		}
	}
	return own, slices.DeleteFunc(unsure, func(l string) bool { return !there.take(l) })
}

// Changed says whether the session may have changed the user's table at all.
func (d Dir) Changed() bool { return len(d.glob("crontab", "*.json")) > 0 }

// bag counts lines.
type bag map[string]int

func bagOf(text string) bag {
	b := bag{}
	b.put(linesOf(text))
	return b
}

func (b bag) put(lines []string) {
	for _, l := range lines {
		b[l]++
	}
}

// take takes one out, and says whether there was one.
func (b bag) take(l string) bool {
	if b[l] == 0 {
		return false
	}
	b[l]--
	return true
}

// limit leaves no more of each than other has.
func (b bag) limit(other bag) {
	for l := range b {
		b[l] = min(b[l], other[l])
	}
}

func (b bag) empty() bool {
	for _, n := range b {
		if n > 0 {
			return false
		}
	}
	return true
}

// linesOf are the lines of a table that mean something to cron.
func linesOf(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if t := strings.TrimSpace(line); t != "" && !strings.HasPrefix(t, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// SameTable says whether two texts mean the same to cron. Some crons keep a comment of
// their own.
func SameTable(a, b string) bool { return slices.Equal(linesOf(a), linesOf(b)) }

// added are the lines that are in the second text and not in the first, each as often
// as it is there more often.
func added(before, after string) []string {
	have := bagOf(before)
	return slices.DeleteFunc(linesOf(after), have.take)
}

// Without removes lines from a text, each as often as it is given.
func Without(text string, lines []string) (rest string, removed []string) {
	drop := bag{}
	drop.put(lines)
	var b strings.Builder
	for line := range strings.Lines(text) {
		if bare := strings.TrimRight(line, "\n"); drop.take(bare) {
			removed = append(removed, bare)
			continue
		}
		b.WriteString(line)
	}
	return b.String(), removed
}

// tableTime bounds reading the table.
const tableTime = 10 * time.Second

// Table reads the user's table by the crontab at a path. That there is none is no error,
// and an empty text; whatever else keeps it from being read is one.
func Table(ctx context.Context, crontab string, env []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tableTime)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, crontab, "-l")
	cmd.Env, cmd.WaitDelay = append(slices.Clone(env), "LC_ALL=C"), time.Second
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err == nil {
		return out.String(), nil
	}
	text := strings.TrimSpace(errs.String())
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 && noTable(text) {
		return "", nil
	}
	return "", fmt.Errorf("crontab -l: %w: %s", err, text)
}

// noTable says of what crontab -l complains of whether it is that there is no table: in
// the words of all crons, and in those of busybox.
func noTable(text string) bool {
	return strings.Contains(text, "no crontab for") ||
		strings.HasPrefix(text, "crontab: can't open '") && strings.HasSuffix(text, "': No such file or directory")
}

// LockTable waits, until ctx ends, for the lock that keeps two changes of the user's table
// by shims and closes apart. The user himself, and cron, know nothing of it.
func LockTable(ctx context.Context, path string) (unlock func(), err error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	tick := time.NewTicker(lockLook)
	defer tick.Stop()
	for {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { unix.Close(fd) }, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			unix.Close(fd)
			return nil, &os.PathError{Op: "lock", Path: path, Err: err}
		}
		select {
		case <-ctx.Done():
			unix.Close(fd)
			return nil, errors.New("another change of the table is under way")
		case <-tick.C:
		}
	}
}

// lockLook is how often a held lock is tried: a change takes some milliseconds.
const lockLook = 5 * time.Millisecond

// textMax bounds a table: crons take a quarter of a mebibyte.
const textMax = 16 << 20

// installed reads the text that a call will install, and says where it has it from. ok is
// false if that cannot be told before: it edits, say.
func installed(args []string) (text string, stdin, ok bool, err error) {
	var from io.Reader
	switch file, plain := tableFile(args); {
	case !plain:
		return "", false, false, nil
	case file == "-" || file == "":
		if fi, err := os.Stdin.Stat(); file == "" && (err != nil || fi.Mode()&os.ModeCharDevice != 0) {
			return "", false, false, nil // some crons want a file, and say so
		}
		from, stdin = os.Stdin, true
	default:
		fi, err := os.Stat(file)
		if err != nil || !fi.Mode().IsRegular() { // which could be read but once
			return "", false, false, nil
		}
		f, err := os.Open(file)
		if err != nil {
			return "", false, false, nil // crontab itself will say so
		}
		defer f.Close()
		from = f
	}
	b, err := io.ReadAll(io.LimitReader(from, textMax+1))
	if err == nil && len(b) > textMax {
		err = fmt.Errorf("it is longer than %d bytes", textMax)
	}
	return string(b), stdin, true, err
}

// tableFile is the file of a command line that installs one: "-" is the input, "" that no
// file is named. ok is false if it is another one.
func tableFile(args []string) (file string, ok bool) {
	if len(args) == 0 {
		return "", true
	}
	if len(args) == 1 && (args[0] == "-" || !strings.HasPrefix(args[0], "-")) {
		return args[0], true
	}
	return "", false
}

// crontab runs the real command, and notes what it has done to the table. plain are the
// arguments without the name of the user.
func (s *shim) crontab(args, plain []string) int {
	cannot := func(err error) int {
		return fail(exitOwnFailure, fmt.Sprintf("crontab was not started, as it cannot be noted what of the table is the session's: %v", err),
			s.path+" works without, and the session's close will not know of it")
	}
	text, stdin, known, err := installed(plain)
	if err != nil {
		return cannot(fmt.Errorf("read the new table: %w", err))
	}
	if known { // an editor may be open for days
		ctx, cancel := context.WithTimeout(context.Background(), tableTime)
		unlock, err := LockTable(ctx, s.c.TableLock)
		cancel()
		if err != nil {
			return cannot(err)
		}
		defer unlock()
	}
	var t table
	if t.Before, err = s.table(); err != nil {
		return cannot(err)
	}
	record, err := s.tableRecord()
	if err == nil {
		err = writeJSON(record, t)
	}
	if err != nil {
		return cannot(err)
	}
	cmd := s.child(args)
	if stdin {
		cmd.Stdin = strings.NewReader(text)
	}
	stop, ran := run(cmd)
	defer stop()
	t.After, err = s.table()
	if err == nil { // else the close sees what is there then, and proves nothing
		t.Done, t.Proven = true, known && ran == nil && SameTable(t.After, text)
		err = writeJSON(record, t)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "sessionbox: what was added to the crontab cannot be noted: %v\n", err)
	}
	return s.exit(ran)
}

// tableRecord makes the name for the record of a call: they sort in the order of the calls.
func (s *shim) tableRecord() (string, error) {
	for n := len(s.dir.glob("crontab", "*.json")); ; n++ {
		path := s.dir.path("crontab", fmt.Sprintf("%06d.json", n))
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			return path, f.Close()
		}
		if !errors.Is(err, os.ErrExist) {
			return "", err
		}
	}
}

func (s *shim) table() (string, error) { return Table(context.Background(), s.path, os.Environ()) }
