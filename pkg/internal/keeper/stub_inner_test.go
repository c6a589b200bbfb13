package keeper

import (
	"encoding/binary"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/store"
	"golang.org/x/sys/unix"
)

// pair are two ends of a socket.
func pair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := make([]*net.UnixConn, 2)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "end")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(10 * time.Second))
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// A request arrives as it was, with its descriptors, which nothing that is executed inherits.
func TestRequest(t *testing.T) {
	a, b := pair(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	one := 1
	want := request{Keeper: []string{"x", "y"}, Env: []string{"A=\x00\n"}, Around: &around{Dir: "/d", Umask: 22, Limits: []limit{{7, 1, 1<<64 - 1}}, Terminal: &one}}
	sent := make(chan error, 1)
	go func() { sent <- sendRequest(a, &want, []*os.File{w, w}) }()
	got, files, err := receiveRequest(b)
	defer closeAll(files)
	if serr := <-sent; err != nil || serr != nil {
		t.Fatal(err, serr)
	}
	if !slices.Equal(got.Keeper, want.Keeper) || !slices.Equal(got.Env, want.Env) || got.Around.Umask != 22 || got.Around.Limits[0] != want.Around.Limits[0] || *got.Around.Terminal != 1 {
		t.Errorf("%+v", got)
	}
	if len(files) != 2 {
		t.Fatalf("%d descriptors, want 2", len(files))
	}
	if flags, err := unix.FcntlInt(files[1].Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("a descriptor stays open on exec: %v", err)
	}
	if _, err := files[1].WriteString("x"); err != nil {
		t.Error(err)
	}
	if n, err := r.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if err := sendRequest(a, &want, make([]*os.File, mostFiles+1)); err == nil {
		t.Error("too many descriptors are sent")
	}
}

// FuzzRequest: whatever comes is refused or understood, and no descriptor of it stays open.
func FuzzRequest(f *testing.F) {
	f.Add(uint32(2), []byte("{}"), uint8(1))
	f.Add(uint32(1<<31), []byte("{"), uint8(0))
	f.Add(uint32(0), []byte(""), uint8(3))
	f.Add(uint32(40), []byte(`{"Keeper":["a"],"Around":{"Terminal":1}}`), uint8(2))
	f.Fuzz(func(t *testing.T, length uint32, body []byte, n uint8) {
		a, b := pair(t)
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		fds := slices.Repeat([]int{int(null.Fd())}, int(n%8))
		var rights []byte
		if len(fds) > 0 {
			rights = syscall.UnixRights(fds...)
		}
		if _, _, err := a.WriteMsgUnix(binary.BigEndian.AppendUint32(nil, length), rights, nil); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = a.Write(body)
			a.CloseWrite()
		}()
		_, files, err := receiveRequest(b)
		if len(files) != len(fds) {
			t.Errorf("%d descriptors of %d: %v", len(files), len(fds), err)
		}
		if err == nil && int(length) > len(body) {
			t.Errorf("%d bytes of %d were enough", len(body), length)
		}
		closeAll(files)
	})
}

// One who asks and then says nothing takes the time of the others, and not their turn.
func TestSilentClient(t *testing.T) {
	s := &stubbing{}
	_, silent := pair(t) // its other end stays open
	done := make(chan reply, 1)
	go func() { done <- s.answer(silent) }()
	for s.starting.TryLock() {
		s.starting.Unlock()
		runtime.Gosched()
	}
	a, b := pair(t)
	if err := sendRequest(a, &request{}, nil); err != nil {
		t.Fatal(err)
	}
	if r := s.answer(b); r.Text != "" {
		t.Errorf("the one behind is told %q", r.Text)
	}
	if r := <-done; r.Text == "" {
		t.Error("the silent one was understood")
	}
}

// For who has given up before it was his turn nothing is started: he has said so.
func TestGivenUp(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, gone := range []bool{false, true} {
		s := &stubbing{id: store.NewID(), exe: "/bin/true"}
		a, b := pair(t)
		if err := sendRequest(a, &request{Keeper: []string{Arg, roleKeeper, s.id, "task-1", "3"}, Around: &around{}}, []*os.File{null, null, null}); err != nil {
			t.Fatal(err)
		}
		if gone {
			a.Close()
		}
		if r := s.answer(b); gone != (r.Text != "") {
			t.Errorf("gone %v: %q", gone, r.Text)
		}
	}
}

// A keeper in a job does not start the command either whose front has given up meanwhile.
func TestFrontGivenUp(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	k := &keeping{hired: w}
	if err := k.callerLives(); err != nil {
		t.Error(err)
	}
	r.Close()
	if err := k.callerLives(); err == nil {
		t.Error("the front is gone")
	}
}

// A stub whose session is gone ends when it has nobody to start from, and not before.
func TestForgotten(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(store.Dirs{State: filepath.Join(dir, "state"), History: filepath.Join(dir, "history"), UID: os.Geteuid(), Given: true})
	if err != nil {
		t.Fatal(err)
	}
	s := &stubbing{st: st, id: store.NewID()}
	if err := st.Claim(t.Context(), store.Session{ID: s.id, State: store.StateOpening, UID: os.Geteuid()}); err != nil {
		t.Fatal(err)
	}
	if s.forgotten() {
		t.Error("it has a record")
	}
	if err := st.Remove(t.Context(), s.id); err != nil {
		t.Fatal(err)
	}
	s.kids.Add(1)
	if s.forgotten() {
		t.Error("it has a keeper")
	}
	s.kids.Add(-1)
	if !s.forgotten() {
		t.Error("it has neither record nor keeper")
	}
}

// A signal that comes before the front knows whom it is for is not lost.
func TestEarlySignal(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f := &fronting{}
	f.pass(syscall.SIGTERM)
	f.told(word{PID: cmd.Process.Pid})
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v", err)
	}
}
