package scope

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

func TestLifeOfABox(t *testing.T) {
	m := manager(t)
	t.Logf("socket %s, manager in %s", m.Socket(), m.ControlGroup())
	s := spec()
	b := create(t, m, s)
	if want := filepath.Join(cgroup.Base, s.SliceUnit()); !strings.HasSuffix(b.Path(), want) {
		t.Fatalf("path %s, want …%s", b.Path(), want)
	}
	t.Logf("clone3 into the leaf: %v", b.WorkDir().MayEnter())
	anchorPID(t, b)
	// One that leaves its parent, its group and its session behind.
	start(t, b, "task-1", "sh", "-c", "setsid sleep 1000 & setsid sleep 1000 & sleep 1000")
	start(t, b, "task-2")
	eventually(t, "4 processes in task-1", func() bool {
		members, err := b.Members("task-1")
		return err == nil && len(members) == 4
	})
	leaves, err := b.Leaves()
	if err != nil || strings.Join(leaves, " ") != "task-1 task-2" && strings.Join(leaves, " ") != "task-2 task-1" {
		t.Fatalf("leaves %v, %v", leaves, err)
	}
	if err := b.SetMeta("hello"); err != nil {
		t.Fatal(err)
	}
	if err := b.Remove(t.Context()); !errors.Is(err, ErrBusy) {
		t.Fatalf("remove of a busy box: %v", err)
	}
	kill(t, b, "task-1")
	if p, _ := b.Populated("task-2"); !p {
		t.Fatal("task-2 died with task-1")
	}
	kill(t, b, "")
	remove(t, m, b)
}

// What systemd would replace in a unit file reaches the anchor as it was.
func TestAnchorArguments(t *testing.T) {
	m := manager(t)
	s := spec()
	s.Description = "a\nb %n $HOME"
	s.Anchor = append(s.Anchor, "$HOME", "${HOME}x", "%n", "a b", "", "$$", "\"q\\")
	s.AnchorEnv = []string{"GREETING=100% $HOME \"hello\""}
	b := create(t, m, s)
	for range 2 {
		pid := anchorPID(t, b)
		if got := proc.Args(pid); !slices.Equal(got, s.Anchor) {
			t.Errorf("%q, want %q", got, s.Anchor)
		}
		env, err := proc.Env(pid, "GREETING")
		if err != nil || "GREETING="+env["GREETING"] != s.AnchorEnv[0] {
			t.Errorf("%q, %v", env, err)
		}
		if v, err := m.stringProperty(t.Context(), b.Unit, "Unit", "Description"); err != nil || v != "a b %n $HOME" {
			t.Errorf("description %q, %v", v, err)
		}
		// The same after the manager has read its own files again.
		err = m.do(t.Context(), func(ctx context.Context, l *link, _ bool) error { return l.sd.ReloadContext(ctx) })
		if err != nil {
			t.Fatal(err)
		}
		kill(t, b, "")
		if err := b.EnsureAnchor(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRemoveWithOnlyTheAnchor(t *testing.T) {
	m := manager(t)
	b := create(t, m, spec())
	remove(t, m, b)
	if err := b.Remove(t.Context()); err != nil {
		t.Fatalf("a second time: %v", err)
	}
}

func TestOpenTalksToNobody(t *testing.T) {
	m := manager(t)
	made := create(t, m, spec())
	ref := made.Ref()
	ref.Dial = func(context.Context) (*Manager, error) {
		t.Error("dialled")
		return nil, errors.New("no")
	}
	b, err := Open(ref)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.EnsureAnchor(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Prepare(t.Context(), "task-1"); err != nil {
		t.Fatal(err)
	}
	if b.WorkDir().MayEnter() {
		start(t, b, "task-1")
	}
	kill(t, b, "")
	ref.Inode++
	if _, err := Open(ref); !errors.Is(err, cgroup.ErrReplaced) {
		t.Errorf("another inode: %v", err)
	}
	ref.Inode--
	remove(t, m, made)
	if _, err := Open(ref); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a box that is gone: %v", err)
	}
}

func TestStartSaysWhatIsWrongWithTheCommand(t *testing.T) {
	m := manager(t)
	b := create(t, m, spec())
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		want error
	}{
		{"/does/not/exist", fs.ErrNotExist},
		{plain, fs.ErrPermission},
		{"/proc/self/maps/x", syscall.ENOTDIR},
	} {
		cmd := &exec.Cmd{Path: c.path, Args: []string{"x"}}
		if err := b.Start(t.Context(), "task-1", cmd); !errors.Is(err, c.want) {
			t.Errorf("start %s: %v, want %v", c.path, err, c.want)
		}
	}
	for _, leaf := range []string{"", "a/b", ".."} {
		if err := b.Start(t.Context(), leaf, exec.Command("true")); err == nil {
			t.Errorf("started in leaf %q", leaf)
		}
	}
}

func TestStartKeepsThePipes(t *testing.T) {
	m := manager(t)
	b := create(t, m, spec())
	cmd := exec.Command("sh", "-c", "cat; echo $GREETING; exit 7")
	cmd.Env = append(os.Environ(), "GREETING=world")
	cmd.Stdin = strings.NewReader("hello ")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := b.Start(t.Context(), "task-1", cmd); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 7 || out.String() != "hello world\n" {
		t.Fatalf("%q, %v", out.String(), err)
	}
}

func TestEnter(t *testing.T) {
	m := manager(t)
	b := create(t, m, spec())
	ref, err := json.Marshal(b.Ref())
	if err != nil {
		t.Fatal(err)
	}
	exe, _ := os.Executable()
	out, err := exec.Command(exe, "__enter", string(ref), "task-9").CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), b.Unit+"/"+b.AnchorUnit()+"/task-9") {
		t.Fatalf("%s, %v", out, err)
	}
}

// The anchor may be killed at any time; the unit lives while a task does, and
// gets a new anchor with the next start.
func TestAnchorKilled(t *testing.T) {
	m := manager(t)
	b := create(t, m, spec())
	start(t, b, "task-1")
	old, first := b.WorkDir(), anchorPID(t, b)
	killPID(t, first)
	start(t, b, "task-2")
	if b.WorkDir() != old || anchorPID(t, b) == first {
		t.Fatal("no new anchor in the old unit")
	}
	state, err := m.stringProperty(t.Context(), b.AnchorUnit(), "Unit", "ActiveState")
	if err != nil || state != "active" {
		t.Fatalf("the unit is %q, %v", state, err)
	}
	// The new one holds the unit as the old one did.
	kill(t, b, "task-1")
	kill(t, b, "task-2")
	if err := b.EnsureAnchor(t.Context()); err != nil || b.WorkDir() != old {
		t.Fatalf("the unit was collected: %v", err)
	}
	kill(t, b, "")
	eventually(t, "the unit to be collected", old.Gone)
	if b.Top.Gone() {
		t.Fatal("the slice went with it")
	}
	start(t, b, "task-3")
	if anchorPID(t, b) == 0 || b.WorkDir() == old {
		t.Fatal("no new unit")
	}
	kill(t, b, "")
	remove(t, m, b)
}

// Starting again and again right after everything was killed meets the unit in
// all states of being collected.
func TestStartWhileCollected(t *testing.T) {
	m := manager(t)
	b := create(t, m, spec())
	for range 30 {
		kill(t, b, "")
		cmd := start(t, b, "task-1")
		// Nobody ends it by mistake.
		time.Sleep(5 * time.Millisecond)
		if s, err := proc.ReadStat(cmd.Process.Pid); err != nil || s.State == 'Z' {
			t.Fatalf("the command was ended: %v", err)
		}
	}
	kill(t, b, "")
	remove(t, m, b)
}

func TestConcurrentStarts(t *testing.T) {
	m := manager(t)
	b := create(t, m, spec())
	kill(t, b, "")
	eventually(t, "the unit to be collected", b.WorkDir().Gone)
	ref := b.Ref()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			box := b
			if i%2 == 1 { // as another program would
				var err error
				if box, err = Open(ref); err != nil {
					t.Error(err)
					return
				}
				defer box.Close()
			}
			cmd := exec.Command("sleep", "1000")
			if err := box.Start(t.Context(), "task-1", cmd); err != nil {
				t.Error(err)
				return
			}
			go cmd.Wait()
		})
	}
	wg.Wait()
	members, err := b.Members("")
	if err != nil || len(members) != 21 {
		t.Errorf("%d members, %v", len(members), err)
	}
	kill(t, b, "")
	remove(t, m, b)
}

func TestNestedBoxes(t *testing.T) {
	m := manager(t)
	var boxes []*Box
	var ids []string
	for range 3 {
		s := spec(ids...)
		b := create(t, m, s)
		if len(boxes) > 0 {
			if want := filepath.Join(boxes[len(boxes)-1].Path(), s.SliceUnit()); b.Path() != want {
				t.Fatalf("path %s, want %s", b.Path(), want)
			}
		}
		start(t, b, "task-1")
		boxes, ids = append(boxes, b), append(ids, s.ID)
	}
	found, err := m.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range found {
		for _, b := range boxes {
			if f.Unit == b.Unit && f.Path == b.Path() && f.ActiveState == "active" {
				n++
			}
		}
	}
	if n != 3 {
		t.Errorf("listed %d of 3: %+v", n, found)
	}
	// The innermost one ends alone, the outermost one with all that is in it.
	kill(t, boxes[2], "")
	remove(t, m, boxes[2])
	if p, _ := boxes[1].Populated(""); !p {
		t.Fatal("the box around it died")
	}
	kill(t, boxes[0], "")
	if p, _ := boxes[1].Populated(""); p {
		t.Fatal("the box in it lives")
	}
	remove(t, m, boxes[0])
	nothingLeft(t, m, boxes[1].spec)
	s := spec(ids[0])
	if _, err := m.Create(t.Context(), s); !errors.Is(err, ErrParentGone) {
		t.Errorf("a box in one that is gone: %v", err)
	}
	if loaded(t, m, boxes[0].Unit) {
		t.Error("the parent came back")
	}
}

// The anchor unit may be collected and made again by another program: a box that
// was opened before does not take what is in the new one for nothing.
func TestAnchorMadeAgainByAnother(t *testing.T) {
	m := manager(t)
	b := create(t, m, spec())
	ref := b.Ref()
	collect := func() {
		t.Helper()
		kill(t, b, "")
		eventually(t, "the unit to be collected", func() bool {
			w, err := b.FindWork()
			return w == nil && err == nil
		})
	}
	open := func() *Box {
		t.Helper()
		other, err := Open(ref)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { other.Close() })
		return other
	}
	for what, ask := range map[string]func(b *Box) (any, bool){
		"populated": func(b *Box) (any, bool) { p, err := b.Populated("task-5"); return err, p },
		"leaves":    func(b *Box) (any, bool) { l, err := b.Leaves(); return err, slices.Equal(l, []string{"task-5"}) },
		"usage": func(b *Box) (any, bool) {
			u, err := b.Usage("task-5")
			return err, u.Pids != nil && *u.Pids == 1
		},
		"signal": func(b *Box) (any, bool) {
			n, err := b.Signal(t.Context(), "task-5", syscall.SIGCONT)
			return err, n == 1
		},
		"signal all": func(b *Box) (any, bool) {
			n, err := b.Signal(t.Context(), "", syscall.SIGCONT)
			return err, n == 1
		},
		"members": func(b *Box) (any, bool) { l, err := b.Members("task-5"); return err, len(l) == 1 },
		"all members": func(b *Box) (any, bool) {
			l, err := b.Members("")
			return err, len(l) == 2 && l[0].Leaf != l[1].Leaf && len(l[0].Leaf+l[1].Leaf) == len("anchortask-5")
		},
		"wait": func(b *Box) (any, bool) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			err := b.WaitEmpty(ctx, "task-5")
			return err, errors.Is(err, context.DeadlineExceeded)
		},
		"remove": func(b *Box) (any, bool) {
			err := b.Remove(t.Context())
			return err, errors.Is(err, ErrBusy)
		},
		"kill": func(b *Box) (any, bool) {
			err := b.Kill(t.Context(), "task-5")
			l, _ := b.Members("")
			return err, err == nil && len(l) == 1
		},
	} {
		stale := open()
		collect()
		never := open() // while there was none
		another := open()
		start(t, another, "task-5")
		for name, box := range map[string]*Box{"stale": stale, "never": never} {
			if name == "never" && what == "kill" {
				continue
			}
			if got, ok := ask(box); !ok {
				t.Errorf("%s of the %s one: %v", what, name, got)
			}
		}
		if stale.AnchorUnit() == "" {
			t.Errorf("%s: no anchor", what)
		}
	}
	// No manager is needed to find the anchor that another has made.
	ref.Dial = func(context.Context) (*Manager, error) { return nil, errors.New("asked") }
	alone := open()
	collect()
	start(t, b, "task-6")
	if err := alone.EnsureAnchor(t.Context()); err != nil {
		t.Error(err)
	}
	kill(t, b, "")
	remove(t, m, b)
}

// With the manager unreachable a box is killed and removed all the same.
func TestNoManagerAfterOpen(t *testing.T) {
	m := manager(t)
	made := create(t, m, spec())
	start(t, made, "task-1")
	if err := made.SetMeta("hello"); err != nil {
		t.Fatal(err)
	}
	ref := made.Ref()
	ref.Dial = func(ctx context.Context) (*Manager, error) {
		return dial(ctx, sockets(1, t.TempDir()))
	}
	b, err := Open(ref)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	kill(t, b, "")
	err = b.Remove(t.Context())
	if !errors.Is(err, ErrUnitLeft) || !errors.Is(err, ErrNoManager) {
		t.Fatalf("remove: %v", err)
	}
	if !b.Top.Gone() {
		t.Fatal("the directory is left")
	}
	if _, err := b.SetLimits(t.Context(), nil); !errors.Is(err, ErrNoManager) {
		t.Errorf("limits: %v", err)
	}
	found, err := m.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	left := false
	for _, f := range found {
		// The manager may have made the directory anew.
		if f.Unit == b.Unit && f.Inode != b.Inode() && f.Meta == "" && !f.Populated {
			left = true
			t.Logf("the manager has it in %q", f.Path)
		}
	}
	if !left {
		t.Fatalf("the unit that is left is not listed: %+v", found)
	}
	if err := m.Sweep(t.Context(), b.Unit); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, m, made.spec)
}
