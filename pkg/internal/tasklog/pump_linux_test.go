package tasklog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pumped is a command that is being logged: the test is the command.
type pumped struct {
	t        *testing.T
	history  string
	stdout   *os.File
	stderr   *os.File
	show     *Show
	finished chan error
}

// pump starts one that shows on two writers.
func pump(t *testing.T, most int64, patience time.Duration, stdout, stderr io.Writer) *pumped {
	t.Helper()
	p := &pumped{t: t, history: t.TempDir(), finished: make(chan error, 1)}
	var in [2]int
	for s, end := range []**os.File{&p.stdout, &p.stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		in[s], *end = dup(t, r), w
		t.Cleanup(func() { w.Close() })
	}
	conn, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	log, err := Create(p.history, sid, 1, most)
	if err != nil {
		t.Fatal(err)
	}
	pump := Pump{Log: log, Max: most, In: in, Ctl: dup(t, theirs), patience: patience}
	go func() { p.finished <- pump.Run() }()
	from, err := Await(conn, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(p.history, sid, 1)
	if err != nil {
		t.Fatal(err)
	}
	p.show = NewShow(conn, d, from, stdout, stderr)
	return p
}

// dup gives a descriptor of a file and closes the file.
func dup(t *testing.T, f *os.File) int {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	return fd
}

// ends waits for the end of the pump, when nobody can write any more.
func (p *pumped) ends() {
	p.t.Helper()
	p.stdout.Close()
	p.stderr.Close()
	within(p.t, "the pump ends", func() {
		if err := <-p.finished; err != nil {
			p.t.Error(err)
		}
	})
}

// log is what it has kept.
func (p *pumped) log() *output {
	p.t.Helper()
	d := openLog(p.t, p.history)
	r := d.Read(0)
	defer r.Close()
	o := &output{}
	o.take(p.t, r)
	return o
}

func within(t *testing.T, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { fn(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("not within 30 s: %s", what)
	}
}

// buffer can be looked at while it is written to.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *buffer) awaits(t *testing.T, want string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); b.String() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("shown is %q, want %q", b.String(), want)
		}
	}
}

// At the end of the command all it wrote is shown, to the last byte, and what others
// go on writing is not waited for; it is in the log.
func TestShownToTheEnd(t *testing.T) {
	var out, errs buffer
	p := pump(t, DefaultMax, 0, &out, &errs)
	want := strings.Repeat("a line of the burst\n", 100_000) + "no newline"
	within(t, "the burst is taken", func() { io.WriteString(p.stdout, want) })
	io.WriteString(p.stderr, "and this")
	stop, noise := make(chan struct{}), sync.WaitGroup{}
	noise.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				fmt.Fprintln(p.stderr, "noise", i)
			}
		}
	})
	p.show.Ended()
	within(t, "the showing ends", func() { p.show.Wait() })
	if got := out.String(); got != want {
		t.Errorf("%d bytes are shown, want %d", len(got), len(want))
	}
	if got := errs.String(); !strings.HasPrefix(got, "and this") {
		t.Errorf("stderr shows %.20q", got)
	}
	close(stop)
	noise.Wait()
	io.WriteString(p.stdout, ", later\n")
	p.ends()
	if o := p.log(); !strings.HasSuffix(o.text[Stdout].String(), "no newline, later\n") && o.missing == 0 {
		t.Error("what came after the end is not in the log")
	}
}

// A question is shown before its line ends.
func TestPrompt(t *testing.T) {
	var out buffer
	p := pump(t, DefaultMax, 0, &out, nil)
	io.WriteString(p.stdout, "Continue? ")
	out.awaits(t, "Continue? ")
	io.WriteString(p.stdout, "yes\n")
	out.awaits(t, "Continue? yes\n")
	p.ends()
	p.show.Wait()
}

// Whoever reads slowly gets all of it, many times what the log holds.
func TestSlowReader(t *testing.T) {
	r, w := io.Pipe()
	p := pump(t, LeastMax, time.Minute, w, w)
	const n = 100_000
	go func() {
		for i := range n {
			fmt.Fprintln(p.stdout, i)
		}
		p.show.Ended()
	}()
	var seen int
	within(t, "all of it comes through", func() {
		var text bytes.Buffer
		buf := make([]byte, 1000)
		for want := len(fmt.Sprintln(n-1)) * n; text.Len() < want && !strings.HasSuffix(text.String(), fmt.Sprintln(n-1)); {
			k, err := r.Read(buf)
			if err != nil {
				t.Error(err)
				return
			}
			text.Write(buf[:k])
		}
		for line := range strings.Lines(text.String()) {
			if line != fmt.Sprintln(seen) {
				t.Errorf("line %d is %q", seen, line)
				return
			}
			seen++
		}
	})
	if missing, why := p.show.Wait(); seen != n || missing != 0 {
		t.Errorf("%d lines of %d, %d bytes missing: %s", seen, n, missing, why)
	}
	p.ends()
}

// Who does not read at all is waited for a while, and not again; the log goes on, and
// what was not shown is counted.
func TestStuckReader(t *testing.T) {
	r, w := io.Pipe()
	p := pump(t, LeastMax, 50*time.Millisecond, w, w)
	within(t, "the command can write", func() {
		for i := range 200_000 {
			fmt.Fprintln(p.stdout, i)
		}
	})
	p.show.Ended()
	go io.Copy(io.Discard, r)
	within(t, "the showing ends", func() {
		if missing, _ := p.show.Wait(); missing == 0 {
			t.Error("nothing is missing")
		}
	})
	p.ends()
	if o := p.log(); !strings.HasSuffix(o.text[Stdout].String(), "\n199999\n") {
		t.Error("the log has not the last line")
	}
}

// Hide ends the wait for who does not read.
func TestHide(t *testing.T) {
	_, w := io.Pipe()
	p := pump(t, DefaultMax, 0, w, w)
	io.WriteString(p.stdout, "text\n")
	p.show.Ended()
	p.show.Hide()
	p.show.Hide()
	within(t, "Wait returns", func() { p.show.Wait() })
	w.Close()
	p.ends()
}

// Where nobody reads any more nothing is shown, and everything logged: the other
// stream is shown, and a closed stdout does not end this program.
func TestClosedReader(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	var errs buffer
	p := pump(t, DefaultMax, 0, w, &errs)
	for i := range 3 {
		fmt.Fprintln(p.stdout, i)
		time.Sleep(5 * time.Millisecond)
	}
	io.WriteString(p.stderr, "shown\n")
	errs.awaits(t, "shown\n")
	p.show.Ended()
	within(t, "the showing ends", func() { p.show.Wait() })
	io.WriteString(p.stdout, "later\n")
	p.ends()
	if got := p.log().text[Stdout].String(); got != "0\n1\n2\nlater\n" {
		t.Errorf("the log has %q", got)
	}
}

// A pump that says nothing any more does not hold up who shows.
func TestPumpGone(t *testing.T) {
	conn, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	h := t.TempDir()
	w := create(t, h, DefaultMax)
	w.Write(Stdout, []byte("written\n"), noon)
	d, err := Open(h, sid, 1)
	if err != nil {
		t.Fatal(err)
	}
	var out buffer
	s := NewShow(conn, d, 0, &out, &out)
	theirs.Close()
	s.Ended()
	within(t, "Wait returns", func() { s.Wait() })
	if out.String() != "written\n" {
		t.Errorf("shown: %q", out.String())
	}
	if _, err := Await(conn, time.Second); err == nil {
		t.Error("it is there")
	}
}

func TestRefusal(t *testing.T) {
	conn, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	defer theirs.Close()
	Refuse(int(theirs.Fd()), unix.EROFS)
	if _, err := Await(conn, time.Second); err == nil || err.Error() != unix.EROFS.Error() {
		t.Errorf("Await = %v, want %v", err, unix.EROFS)
	}
}

// On a full disk the command goes on, and every byte is either in the log or counted.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a mount namespace of its own")
	}
	// The thread has mounts of its own and is not used again.
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- fullDisk(t.TempDir())
	}()
	if err := <-done; errors.Is(err, unix.EPERM) {
		t.Skip("root may not make a mount namespace here")
	} else if err != nil {
		t.Error(err)
	}
}

func fullDisk(h string) error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", h, "tmpfs", 0, "size=256k,mode=0700"); err != nil {
		return err
	}
	w, err := Create(h, sid, 1, DefaultMax)
	if err != nil {
		return err
	}
	filler := h + "/filler"
	var wrote [2]int64
	write := func(s Stream, text string) {
		wrote[s] += int64(len(text))
		w.Write(s, []byte(text), noon)
	}
	write(Stdout, "before\n")
	if err := os.WriteFile(filler, make([]byte, 200<<10), 0o600); err != nil {
		return err
	}
	for i := range 2000 { // the disk is full before the half
		write(Stream(i%2), fmt.Sprintf("%d %s\n", i, strings.Repeat("x", 100)))
	}
	lost, why := w.Lost()
	if lost == 0 || !errors.Is(why, unix.ENOSPC) {
		return fmt.Errorf("lost %d bytes, want some, for want of space: %w", lost, why)
	}
	if err := os.Remove(filler); err != nil {
		return err
	}
	write(Stderr, "after\n")
	w.Break(noon)
	if lost, _ := w.Lost(); lost != 0 {
		return fmt.Errorf("%d bytes are still not noted", lost)
	}
	defer w.Close(noon)
	d, err := Open(h, sid, 1)
	if err != nil {
		return err
	}
	defer d.Close()
	r := d.Read(0)
	defer r.Close()
	var have, missing [2]int64
	var last string
	for {
		l, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if l.Time.IsZero() {
			return fmt.Errorf("%d bytes of the log cannot be read", l.Missing)
		}
		missing[l.Stream] += l.Missing
		have[l.Stream] += l.size() - l.Missing
		last = string(l.Text)
	}
	for s := range wrote {
		if have[s]+missing[s] != wrote[s] || missing[s] == 0 {
			return fmt.Errorf("%v: %d bytes in the log and %d missing, of %d", Stream(s), have[s], missing[s], wrote[s])
		}
	}
	if last != "after" {
		return fmt.Errorf("the last line is %q", last)
	}
	return nil
}
