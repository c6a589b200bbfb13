package tasklog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const sid = "abcdefghij"

func create(t *testing.T, history string, most int64) *Writer {
	t.Helper()
	w, err := Create(history, sid, 1, most)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(noon) })
	return w
}

func openLog(t *testing.T, history string) *Dir {
	t.Helper()
	d, err := Open(history, sid, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// output is what a reader found: the streams as the command wrote them.
type output struct {
	text    [2]bytes.Buffer
	missing int64
	lines   int
}

// take reads to the end there is now.
func (o *output) take(t *testing.T, r *Reader) {
	t.Helper()
	for {
		l, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		o.lines++
		o.missing += l.Missing
		if len(l.Text) > PartMax {
			t.Fatalf("a text of %d bytes", len(l.Text))
		}
		o.text[l.Stream].Write(l.Text)
		if !l.Partial && l.Missing == 0 {
			o.text[l.Stream].WriteByte('\n')
		}
	}
}

func sizeOf(t *testing.T, d *Dir) (total int64, files int) {
	t.Helper()
	starts, err := d.starts()
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range starts {
		fi, err := os.Stat(filepath.Join(d.Path(), segmentName(at)))
		if err != nil {
			t.Fatal(err)
		}
		total += fi.Size()
	}
	return total, len(starts)
}

// Both streams come back byte for byte: binary, empty lines, a long line, a line
// without an end.
func TestBytes(t *testing.T) {
	h := t.TempDir()
	w := create(t, h, DefaultMax)
	binary := make([]byte, 256)
	for i := range binary {
		binary[i] = byte(i)
	}
	long := bytes.Repeat([]byte("0123456789"), 10_000)
	var want [2][]byte
	for _, p := range []struct {
		s    Stream
		data []byte
	}{
		{Stdout, []byte("one\ntwo\n\n\n")}, {Stderr, []byte("err")}, {Stdout, binary}, {Stderr, []byte("or\n")}, {Stdout, long},
		{Stdout, []byte("\n")}, {Stdout, bytes.Repeat([]byte{'x'}, PartMax)}, {Stdout, []byte("\n")}, {Stdout, []byte("no end")},
	} {
		want[p.s] = append(want[p.s], p.data...)
		w.Write(p.s, p.data, noon)
	}
	if !w.Pending() {
		t.Error("nothing is pending behind `no end`")
	}
	w.Break(noon)
	if w.Pending() {
		t.Error("something is pending after Break")
	}
	var o output
	r := openLog(t, h).Read(0)
	defer r.Close()
	o.take(t, r)
	for s := range want {
		if !bytes.Equal(o.text[s].Bytes(), want[s]) {
			t.Errorf("%v: %d bytes came back of %d", Stream(s), o.text[s].Len(), len(want[s]))
		}
	}
	if r.Pos() != w.End() || o.missing != 0 {
		t.Errorf("read to %d of %d, %d missing", r.Pos(), w.End(), o.missing)
	}
	// The end of the line comes later.
	w.Write(Stdout, []byte(" yet\n"), noon)
	o.take(t, r)
	if !bytes.HasSuffix(o.text[Stdout].Bytes(), []byte("no end yet\n")) {
		t.Errorf("stdout ends with %q", o.text[Stdout].Bytes()[o.text[Stdout].Len()-20:])
	}
}

// A reader that keeps up misses and repeats nothing, however often the log is rotated
// under it, and the log keeps to its size.
func TestRotationUnderReader(t *testing.T) {
	h := t.TempDir()
	w := create(t, h, LeastMax)
	d := openLog(t, h)
	r := d.Read(0)
	defer r.Close()
	rnd := rand.New(rand.NewPCG(1, 2))
	var o output
	var want [2]bytes.Buffer
	for i := range 3000 {
		data := fmt.Appendf(nil, "line %d %s\n", i, strings.Repeat("x", rnd.IntN(900)))
		if i%7 == 0 {
			data = data[:len(data)-1]
		}
		s := Stream(rnd.IntN(2))
		want[s].Write(data)
		w.Write(s, data, noon)
		if rnd.IntN(20) == 0 {
			w.Break(noon)
			o.take(t, r)
		}
		if total, files := sizeOf(t, d); total > LeastMax || files > Segments {
			t.Fatalf("%d bytes in %d files", total, files)
		}
	}
	w.Break(noon)
	o.take(t, r)
	if o.missing != 0 {
		t.Errorf("%d bytes are missing", o.missing)
	}
	for s := range want {
		if !bytes.Equal(o.text[s].Bytes(), want[s].Bytes()) {
			t.Errorf("%v differs", Stream(s))
		}
	}
	if w.End() < 5*LeastMax {
		t.Errorf("only %d bytes were written: nothing was rotated away", w.End())
	}
}

// The same with both at once.
func TestFollowWhileWriting(t *testing.T) {
	h := t.TempDir()
	w := create(t, h, DefaultMax)
	r := openLog(t, h).Read(0)
	defer r.Close()
	const n = 20_000
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for i := range n {
			w.Write(Stdout, fmt.Appendf(nil, "%d %s\n", i, strings.Repeat("y", i%500)), noon)
		}
	})
	for next, end := 0, time.Now().Add(30*time.Second); next < n; {
		l, err := r.Next()
		if errors.Is(err, io.EOF) && time.Now().Before(end) {
			continue
		}
		if err != nil || l.Missing > 0 || !bytes.HasPrefix(l.Text, fmt.Appendf(nil, "%d ", next)) {
			t.Fatalf("want line %d, got %.40q, %d missing, %v", next, l.Text, l.Missing, err)
		}
		next++
	}
}

// A reader that was overtaken says how much it missed, and goes on.
func TestOvertaken(t *testing.T) {
	h := t.TempDir()
	w := create(t, h, LeastMax)
	r := openLog(t, h).Read(0)
	defer r.Close()
	line := []byte(strings.Repeat("z", 999) + "\n")
	w.Write(Stdout, line, noon)
	var o output
	o.take(t, r)
	perLine := w.End()
	const more = 1000
	for range more {
		w.Write(Stdout, line, noon)
	}
	o.take(t, r)
	if o.missing == 0 || o.missing%perLine != 0 {
		t.Errorf("%d bytes are missing, want whole lines of %d", o.missing, perLine)
	}
	if seen := int64(o.text[Stdout].Len()) / int64(len(line)); seen+o.missing/perLine != more+1 {
		t.Errorf("%d lines seen and %d missing are not %d", seen, o.missing/perLine, more+1)
	}
	if r.Pos() != w.End() {
		t.Errorf("read to %d of %d", r.Pos(), w.End())
	}
	// Who comes now is told what is gone.
	late := openLog(t, h).Read(0)
	defer late.Close()
	if l, err := late.Next(); err != nil || l.Missing == 0 || l.Missing != late.Pos() {
		t.Errorf("the first line is %+v, %v, want what is missing", l, err)
	}
}

// What a killed writer left of a line is passed over, and a new one goes on behind it.
func TestTornLine(t *testing.T) {
	h := t.TempDir()
	w := create(t, h, DefaultMax)
	w.Write(Stdout, []byte("whole\n"), noon)
	const torn = "2026-08-01T12:00:00.000000005Z stdout F torn, not much more"
	if _, err := w.f.Write([]byte(torn)); err != nil {
		t.Fatal(err)
	}
	d := openLog(t, h)
	r := d.Read(0)
	defer r.Close()
	var o output
	o.take(t, r)
	w.Close(noon)
	if d.Live() {
		t.Error("it is live, and its writer is gone")
	}
	again := create(t, h, DefaultMax)
	again.Write(Stdout, []byte("next\n"), noon)
	o.take(t, r)
	if got := o.text[Stdout].String(); got != "whole\nnext\n" || o.missing != int64(len(torn)) {
		t.Errorf("read %q, %d missing, want both lines and %d", got, o.missing, len(torn))
	}
	if _, err := Create(h, sid, 1, DefaultMax); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second writer: %v", err)
	}
	if !d.Live() {
		t.Error("it is not live, and has a writer")
	}
}

// Lines of somebody else, however long, are missing; ours around them are there.
func TestForeignBytes(t *testing.T) {
	h := t.TempDir()
	w := create(t, h, DefaultMax)
	w.Write(Stdout, []byte("before\n"), noon)
	junk := append(bytes.Repeat([]byte("junk"), 100_000), '\n')
	if _, err := w.f.Write(junk); err != nil {
		t.Fatal(err)
	}
	w.end += int64(len(junk))
	w.Write(Stdout, []byte("after\n"), noon)
	var o output
	r := openLog(t, h).Read(0)
	defer r.Close()
	o.take(t, r)
	if got := o.text[Stdout].String(); got != "before\nafter\n" || o.missing < int64(len(junk)) || r.Pos() != w.End() {
		t.Errorf("read %q, %d missing, to %d of %d", got, o.missing, r.Pos(), w.End())
	}
}

func TestTail(t *testing.T) {
	h := t.TempDir()
	w := create(t, h, LeastMax)
	d := openLog(t, h)
	tail := func(n int) string {
		t.Helper()
		at, err := d.Tail(n)
		if err != nil {
			t.Fatal(err)
		}
		r := d.Read(at)
		defer r.Close()
		var o output
		o.take(t, r)
		if o.missing > 0 {
			t.Errorf("tail %d: %d missing", n, o.missing)
		}
		return o.text[Stdout].String() + o.text[Stderr].String()
	}
	if got := tail(3); got != "" {
		t.Errorf("of nothing: %q", got)
	}
	long := strings.Repeat("l", 3*PartMax)
	w.Write(Stdout, []byte("1\n2\n"+long+"\n"), noon)
	w.Write(Stderr, []byte("4\n"), noon)
	w.Write(Stdout, []byte("5"), noon)
	w.Break(noon)
	for n, want := range map[int]string{0: "", 1: "5", 2: "54\n", 3: long + "\n54\n", 4: "2\n" + long + "\n54\n", 99: "1\n2\n" + long + "\n54\n"} {
		if got := tail(n); got != want {
			t.Errorf("tail %d: %.20q… (%d bytes), want %d", n, got, len(got), len(want))
		}
	}
	w.Write(Stdout, []byte("\n"), noon)
	for i := range 100_000 {
		w.Write(Stdout, fmt.Appendln(nil, i), noon)
	}
	if got := tail(2); got != "99998\n99999\n" {
		t.Errorf("after rotation: %q", got)
	}
}

// Nothing outside of the history is read or written through a log.
func TestNoEscape(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(secret, dir string) error
	}{
		{"logs", func(secret, dir string) error { return os.Symlink(secret, filepath.Dir(filepath.Dir(dir))) }},
		{"session", func(secret, dir string) error {
			return errors.Join(os.MkdirAll(filepath.Dir(filepath.Dir(dir)), 0o700), os.Symlink(secret, filepath.Dir(dir)))
		}},
		{"task", func(secret, dir string) error {
			return errors.Join(os.MkdirAll(filepath.Dir(dir), 0o700), os.Symlink(secret, dir))
		}},
		{"lock", func(secret, dir string) error {
			return errors.Join(os.MkdirAll(dir, 0o700), os.Symlink(filepath.Join(secret, "new"), filepath.Join(dir, lockName)))
		}},
		{"segment", func(secret, dir string) error {
			return errors.Join(os.MkdirAll(dir, 0o700), os.Symlink(filepath.Join(secret, "new"), filepath.Join(dir, segmentName(0))))
		}},
		{"pipe", func(secret, dir string) error {
			return errors.Join(os.MkdirAll(dir, 0o700), unix.Mkfifo(filepath.Join(dir, segmentName(0)), 0o600))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, secret := t.TempDir(), t.TempDir()
			if err := c.make(secret, Path(h, sid, 1)); err != nil {
				t.Fatal(err)
			}
			if w, err := Create(h, sid, 1, DefaultMax); err == nil {
				w.Close(noon)
				t.Error("it was written to")
			}
			if d, err := Open(h, sid, 1); err == nil {
				r := d.Read(0)
				if l, err := r.Next(); err == nil {
					t.Errorf("it was read: %+v", l)
				}
				r.Close()
				d.Close()
			}
			if left, _ := os.ReadDir(secret); len(left) > 0 {
				t.Errorf("made outside: %v", left)
			}
		})
	}
}

func TestModes(t *testing.T) {
	h := filepath.Join(t.TempDir(), "new", "history")
	w := create(t, h, DefaultMax)
	w.Write(Stdout, []byte("text\n"), noon)
	err := filepath.WalkDir(h, func(path string, e os.DirEntry, err error) error {
		fi, ierr := e.Info()
		if err = errors.Join(err, ierr); err != nil {
			return err
		}
		want := os.FileMode(0o600)
		if e.IsDir() {
			want = 0o700
		}
		if fi.Mode().Perm() != want {
			t.Errorf("%s has mode %v", path, fi.Mode())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := Create(t.TempDir(), sid, 1, LeastMax-1); err == nil {
		t.Error("a log of almost nothing was made")
	}
}

// Old logs go, with the directories that they leave empty; those that are written to
// or somebody could still write to stay, and so does what is not ours.
func TestSweep(t *testing.T) {
	h := t.TempDir()
	make := func(session string, task int, age time.Duration, live bool) {
		w, err := Create(h, session, task, DefaultMax)
		if err != nil {
			t.Fatal(err)
		}
		w.Write(Stdout, []byte("text\n"), noon)
		if live {
			t.Cleanup(func() { w.Close(noon) })
		} else {
			w.Close(noon)
		}
		at := time.Now().Add(-age)
		for _, name := range []string{lockName, segmentName(0), ""} {
			if err := os.Chtimes(filepath.Join(Path(h, session, task), name), at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	const old = Kept + time.Hour
	make("oldsession", 1, old, false)
	make("mixsession", 1, old, false)
	make("mixsession", 2, time.Hour, false)
	make("mixsession", 3, old, true)
	os.WriteFile(filepath.Join(h, place, "notes"), nil, 0o600)
	there := func() string {
		var all []string
		for _, p := range []string{"oldsession", "oldsession/1", "mixsession/1", "mixsession/2", "mixsession/3", "notes"} {
			if _, err := os.Stat(filepath.Join(h, place, p)); err == nil {
				all = append(all, p)
			}
		}
		return strings.Join(all, " ")
	}
	Sweep(h, time.Now())
	if got := there(); got != "mixsession/2 mixsession/3 notes" {
		t.Errorf("left: %s", got)
	}
	make("oldsession", 1, old, false)
	Sweep(h, time.Now().Add(sweepEvery/2))
	if !strings.Contains(there(), "oldsession/1") {
		t.Error("swept twice in a day")
	}
	Sweep(h, time.Now().Add(2*sweepEvery))
	if strings.Contains(there(), "oldsession") {
		t.Error("not swept the next day")
	}
	Remove(h, "mixsession", 2)
	if strings.Contains(there(), "mixsession/2") {
		t.Error("Remove left it")
	}
}
