package keeper

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/store"
	"golang.org/x/sys/unix"
)

// A session in job mode (macOS) has a launchd job, whose program is the stub. All keepers of the
// session are its children, so that they, and what they keep, are in the job's coalition:
//
//	launchd ── stub ── keeper ── command ── …
//	caller ── front ······┘
//
// The front stays with its caller. It gives the stub its own files, directory, limits and umask by
// a socket in the session's directory, and the stub starts the keeper with them.

const roleStub = "stub"

// socketName is that of the stub's socket in the session's directory. It is short: a socket's
// address has 104 bytes on macOS.
const socketName = "s"

// mostAddress is how long the path of a socket may be, on any system.
const mostAddress = 103

// ErrPath says that a session's directory is too deep for a socket.
var ErrPath = fmt.Errorf("its path is longer than the %d bytes that a socket may have", mostAddress)

// Socket is where the stub of a session listens whose directory is dir.
func Socket(dir string) (string, error) {
	path := filepath.Join(dir, socketName)
	if len(path) > mostAddress {
		return "", fmt.Errorf("%s: %w", path, ErrPath)
	}
	return path, nil
}

// StubArgs are the arguments of the stub, after the program's path: for a session, with those
// around it. Nothing secret is in them.
func StubArgs(sessions []string, dirs store.Dirs) ([]string, error) {
	where, err := json.Marshal(dirs)
	if err != nil {
		return nil, err
	}
	return []string{Arg, roleStub, strings.Join(sessions, "-"), "job", "3", string(where)}, nil
}

// IsStub says of the command line of a process that [Session] knows whether it is a stub.
func IsStub(argv []string) bool { return len(argv) > 2 && argv[2] == roleStub }

// stubbing is a stub at work.
type stubbing struct {
	st   *store.Store
	id   string
	exe  string
	self darwinjob.Proc
	kids atomic.Int64
	// starting is held from when descriptors are received until they are in the keeper: what is
	// forked in between would have them, too.
	starting sync.Mutex
}

// stub is the stub's main. It is ended by whoever closes the session, and ends by itself when
// that has no record any more and nobody is left.
func stub(args []string) int {
	fail := func(err error) int {
		fmt.Fprintf(os.Stderr, "sessionbox: stub: %v\n", err) // to the job's log
		return 1
	}
	var dirs store.Dirs
	if err := json.Unmarshal([]byte(args[4]), &dirs); err != nil {
		return fail(err)
	}
	ids := strings.Split(args[1], "-")
	s := &stubbing{id: ids[len(ids)-1]}
	var err error
	if s.st, err = store.Open(dirs); err != nil {
		return fail(err)
	}
	if s.exe, err = os.Executable(); err != nil {
		return fail(err)
	}
	if os.Getenv(EnvMeta) == "" {
		return fail(s.carry())
	}
	if err := s.know(); err != nil {
		return fail(err)
	}
	l, err := s.listen()
	if err != nil {
		return fail(err)
	}
	go s.serve(l)
	for range time.Tick(orphanTime) {
		if s.forgotten() {
			break
		}
	}
	return 0
}

// forgotten says that the session has no record, and that nobody of it is kept.
func (s *stubbing) forgotten() bool {
	_, err := s.st.Get(s.id)
	return errors.Is(err, store.ErrNotFound) && s.kids.Load() == 0
}

// orphanTime is how often a stub looks whether its session is there still.
const orphanTime = 30 * time.Second

// carry runs us anew with a copy of the session's record in the environment, which tells of the
// session if the record is lost. It is not in what launchd is given, as there is the cookie in it.
func (s *stubbing) carry() error {
	rec, err := s.st.Get(s.id)
	if err != nil {
		return err
	}
	if rec.Lineage != string(darwinjob.Job) {
		return errors.New("the session is no job") // it is not any more: launchd was slow to start us
	}
	rec.State = store.StateOpen
	meta, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	return unix.Exec(s.exe, os.Args, append(os.Environ(), EnvMeta+"="+string(meta)))
}

// listen makes the socket; one that is there is that of a stub which was killed.
func (s *stubbing) listen() (*net.UnixListener, error) {
	path, err := Socket(s.st.SessionDir(s.id))
	if err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}

// know finds out who we are, for who asks: he looks whether that is so, and writes it down.
func (s *stubbing) know() error {
	table, err := darwinjob.System()
	if err != nil {
		return err
	}
	s.self, err = table.Lookup(os.Getpid())
	return err
}

func (s *stubbing) serve(l *net.UnixListener) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			// Of descriptors there may be none for the moment.
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go func() {
			defer c.Close()
			a := s.answer(c)
			_ = json.NewEncoder(c).Encode(a) // who is gone hears nothing
		}()
	}
}

// askTime bounds how long a stub hears one who asks, answerTime how long that one waits: others may
// be before him.
const (
	askTime    = 5 * time.Second
	answerTime = 4 * askTime
)

// request is what a stub is asked: who it is or, with Keeper, to start a keeper with the
// descriptors that come with it.
type request struct {
	Keeper []string `json:",omitempty"` // its arguments
	Env    []string `json:",omitempty"`
	Around *around  `json:",omitempty"`
}

// reply is what it says.
type reply struct {
	Text string         `json:",omitempty"` // why it did not
	Stub darwinjob.Proc // who it is
}

func (s *stubbing) answer(c *net.UnixConn) reply {
	if err := samePeer(c); err != nil {
		return reply{Text: err.Error()}
	}
	s.starting.Lock()
	defer s.starting.Unlock()
	c.SetDeadline(time.Now().Add(askTime)) // from here: who was before him may have been silent for as long
	r, files, err := receiveRequest(c)
	defer closeAll(files)
	if err != nil {
		return reply{Text: err.Error()}
	}
	if len(r.Keeper) > 0 {
		// Who has given up has said that nothing is started.
		if raw, err := c.SyscallConn(); err == nil && hungUp(raw, unix.POLLIN) {
			return reply{Text: "who asked is gone"}
		}
		if err := s.start(&r, files); err != nil {
			return reply{Text: err.Error()}
		}
	}
	return reply{Stub: s.self}
}

// start starts a keeper.
func (s *stubbing) start(r *request, files []*os.File) error {
	if ids, ok := Session(append([]string{"sessionbox"}, r.Keeper...)); !ok || ids[len(ids)-1] != s.id {
		return fmt.Errorf("not a keeper of session %s: %q", s.id, r.Keeper)
	}
	if len(files) < 3 || r.Around == nil {
		return fmt.Errorf("%d descriptors came with it", len(files))
	}
	where, err := json.Marshal(r.Around)
	if err != nil {
		return err
	}
	env := slices.DeleteFunc(slices.Clone(r.Env), func(kv string) bool { return strings.HasPrefix(kv, envAround+"=") })
	cmd := &exec.Cmd{Path: s.exe, Args: append([]string{"sessionbox"}, r.Keeper...), Env: append(env, envAround+"="+string(where)), Dir: "/",
		Stdin: files[0], Stdout: files[1], Stderr: files[2], ExtraFiles: files[3:], SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.kids.Add(1)
	go func() {
		_ = cmd.Wait() // whom it concerns it has told itself
		s.kids.Add(-1)
	}()
	return nil
}

// hungUp says whether nobody is at the other end of what events are waited for: macOS tells it
// of those only. Who asks says nothing after his request, so that POLLIN is his end, too.
func hungUp(c syscall.RawConn, events int16) (gone bool) {
	err := c.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
		n, err := unix.Poll(fds, 0)
		gone = err == nil && n > 0 && fds[0].Revents&(unix.POLLIN|unix.POLLHUP|unix.POLLERR) != 0
	})
	return gone && err == nil
}

// Wire form: the length of the rest in four bytes, with which the descriptors come, and JSON.

// mostRequest bounds a request: it has an environment in it.
const mostRequest = 8 << 20

// mostFiles is how many descriptors come with one (SCM_MAX_FD of Linux is 253).
const mostFiles = 250

func sendRequest(c *net.UnixConn, r *request, files []*os.File) error {
	if len(files) > mostFiles {
		return fmt.Errorf("%d descriptors are too many for a job, which takes %d", len(files), mostFiles)
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(b) > mostRequest {
		return fmt.Errorf("an environment of %d bytes is too big", len(b))
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	var rights []byte
	if len(fds) > 0 {
		rights = syscall.UnixRights(fds...)
	}
	if n, oob, err := c.WriteMsgUnix(binary.BigEndian.AppendUint32(nil, uint32(len(b))), rights, nil); err != nil {
		return err
	} else if n != 4 || oob != len(rights) {
		return io.ErrShortWrite
	}
	_, err = c.Write(b)
	return err
}

// receiveRequest gives the descriptors also with an error: they are to be closed.
func receiveRequest(c *net.UnixConn) (r request, files []*os.File, err error) {
	head, rights := make([]byte, 4), make([]byte, syscall.CmsgSpace(4*mostFiles))
	n, oob, flags, _, err := c.ReadMsgUnix(head, rights)
	if err != nil {
		return r, nil, err
	}
	msgs, perr := syscall.ParseSocketControlMessage(rights[:oob])
	for i := range msgs {
		fds, err := syscall.ParseUnixRights(&msgs[i])
		perr = errors.Join(perr, err)
		for _, fd := range fds {
			syscall.CloseOnExec(fd) // it was forked nothing meanwhile, see starting
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	if perr != nil {
		return r, files, perr
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return r, files, errors.New("not all descriptors arrived")
	}
	if _, err := io.ReadFull(c, head[n:]); err != nil {
		return r, files, err
	}
	length := binary.BigEndian.Uint32(head)
	if length > mostRequest {
		return r, files, fmt.Errorf("a request of %d bytes", length)
	}
	b := make([]byte, length)
	if _, err := io.ReadFull(c, b); err != nil {
		return r, files, err
	}
	return r, files, json.Unmarshal(b, &r)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// samePeer makes sure that the other end of a socket is of our user.
func samePeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	uid, perr := -1, error(nil)
	if err := raw.Control(func(fd uintptr) { uid, perr = peerUID(int(fd)) }); err != nil {
		return err
	}
	if perr != nil {
		return fmt.Errorf("read whose socket it is: %w", perr)
	}
	if uid != os.Geteuid() {
		return fmt.Errorf("the socket is user %d's", uid)
	}
	return nil
}
