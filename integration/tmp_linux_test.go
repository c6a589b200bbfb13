package integration_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tmpRig gives the sessions of a test a place of their own for temporary files.
func tmpRig(t *testing.T) (r *rig, base string) {
	r = newRig(t)
	base = filepath.Join(r.home, "tmp")
	if err := os.Mkdir(base, 0o777); err != nil {
		t.Fatal(err)
	}
	r.env = append(r.env, "TMPDIR="+base)
	t.Cleanup(func() {
		if left, _ := filepath.Glob(filepath.Join(base, "*", "*")); len(left) > 0 && !t.Failed() {
			t.Errorf("left in the place for temporary files: %v", left)
		}
	})
	return r, base
}

// shell runs a script in a session and gives what it prints.
func (r *rig) shell(id, script string) string {
	r.t.Helper()
	return r.exec(id, "sh", "-c", script).must(r.t, 0, script).text()
}

func TestTmpPrivate(t *testing.T) {
	r, base := tmpRig(t)
	id := r.open("tmp", "--private-tmp")
	dir := filepath.Join(base, fmt.Sprintf("sessionbox-%d", os.Geteuid()), id)
	if got := r.inspect(id).TmpDir; got != dir {
		t.Errorf("tmp_dir = %q; want %q", got, dir)
	}
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Fatalf("%s: %v, %v; want mode 0700", dir, fi, err)
	}
	if got, want := r.shell(id, `f=$(mktemp); echo "$SESSIONBOX_TMPDIR ${f%/*} $TMPDIR"`), dir+" "+dir+" "+dir; got != want {
		t.Errorf("a command sees %q; want %q", got, want)
	}
	if got := r.run("exec", id, "-e", "TMPDIR=/", "--", "sh", "-c", "echo $TMPDIR").text(); got != "/" {
		t.Errorf("a TMPDIR given with -e: %q; want /", got)
	}
	out := filepath.Join(r.home, "detached")
	r.detach(id, "sh", "-c", `echo "$TMPDIR" >"$0.x" && mv "$0.x" "$0"`, out)
	eventually(t, "the detached command", func() bool { return exists(out) })
	if b, _ := os.ReadFile(out); strings.TrimSpace(string(b)) != dir {
		t.Errorf("a detached command sees %q; want %q", b, dir)
	}
	canary := filepath.Join(r.home, "canary")
	if err := os.MkdirAll(filepath.Join(canary, "nest"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.shell(id, `cd $TMPDIR && mkdir -p a/b/c && ln -s `+canary+` a/out && touch a/b/c/f && chmod 000 a/b/c a/b`)
	// Another TMPDIR when it is closed changes nothing.
	r.env = append(r.env, "TMPDIR="+r.home)
	if receipt := r.closed(id); len(receipt.Notes) > 0 {
		t.Errorf("notes: %v", receipt.Notes)
	}
	if exists(filepath.Dir(dir)) {
		t.Errorf("%s is left", filepath.Dir(dir))
	}
	if !exists(filepath.Join(canary, "nest")) {
		t.Error("the canary at the end of a link is gone")
	}
}

// Without the flag TMPDIR is the caller's, and the directory is there all the same.
func TestTmpPlain(t *testing.T) {
	r, base := tmpRig(t)
	r.env = append(r.env, "SESSIONBOX_TMPDIR=/of/another/session")
	id := r.open("plain")
	dir := r.inspect(id).TmpDir
	if got, want := r.shell(id, `echo "$SESSIONBOX_TMPDIR $TMPDIR"`), dir+" "+base; got != want || dir == "" {
		t.Errorf("a command sees %q; want %q", got, want)
	}
	r.closed(id)
	if exists(dir) {
		t.Error(dir, "is left")
	}
	// run closes its own.
	r.run("run", "--private-tmp", "--backend", r.box, "--", "sh", "-c", "touch $TMPDIR/x").must(t, 0, "run")
	if left, _ := os.ReadDir(base); len(left) > 0 {
		t.Errorf("run left %v", left)
	}
}

// A session inside another has a directory of its own, beside that one's.
func TestTmpNested(t *testing.T) {
	r, base := tmpRig(t)
	outer := r.open("outer", "--private-tmp")
	script := fmt.Sprintf(`%s open --name inner --private-tmp && %[1]s exec inner -- sh -c 'echo $TMPDIR; touch $TMPDIR/x'`, bin())
	lines := strings.Fields(r.shell(outer, script))
	if len(lines) != 2 {
		t.Fatalf("%q", lines)
	}
	parent := filepath.Join(base, fmt.Sprintf("sessionbox-%d", os.Geteuid()))
	if want := filepath.Join(parent, lines[0]); lines[1] != want {
		t.Errorf("TMPDIR of the inner one: %q; want %q", lines[1], want)
	}
	r.closed("inner")
	if !exists(filepath.Join(parent, outer)) || exists(lines[1]) {
		t.Error("closing the inner one takes its own directory, and no other")
	}
	r.closed(outer)
}

// The names that we would use may be taken by somebody else.
func TestTmpTaken(t *testing.T) {
	r, base := tmpRig(t)
	trap := filepath.Join(r.home, "trap")
	if err := os.Mkdir(trap, 0o777); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("sessionbox-%d", os.Geteuid())
	if err := os.Symlink(trap, filepath.Join(base, name)); err != nil {
		t.Fatal(err)
	}
	id := r.open("second", "--private-tmp")
	if got, want := r.inspect(id).TmpDir, filepath.Join(base, name+".1", id); got != want {
		t.Errorf("tmp_dir = %q; want %q", got, want)
	}
	r.closed(id)
	for n := 1; n < 8; n++ {
		if err := os.WriteFile(filepath.Join(base, fmt.Sprintf("%s.%d", name, n)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := r.run("open", "--name", "none", "--private-tmp", "--backend", r.box).must(t, 6, "open with all names taken")
	if !strings.Contains(string(o.stderr), "TMPDIR") {
		t.Errorf("no hint: %s", o.stderr)
	}
	// Who did not ask for it is opened without.
	id = r.open("none")
	if got := r.shell(id, "echo ${SESSIONBOX_TMPDIR-none}"); got != "none" {
		t.Errorf("SESSIONBOX_TMPDIR = %q; want none", got)
	}
	r.closed(id)
	if left, _ := os.ReadDir(trap); len(left) > 0 {
		t.Errorf("%v was made at the end of a link", left)
	}
	r.nothing("at the end")
}

// A process of another session that stands in the directory does not keep it, nor is it
// ended.
func TestTmpInUse(t *testing.T) {
	r, _ := tmpRig(t)
	id := r.open("used", "--private-tmp")
	dir := r.inspect(id).TmpDir
	other := r.open("other")
	p := r.payloads("p-" + tag())
	r.run(append([]string{"exec", "-d", "-w", dir, other, "--"}, p.argv("payload")...)...).must(t, 0, "exec -d")
	p.await(1)
	r.detach(id, "sh", "-c", "cd $TMPDIR && exec sleep 600 >held")
	eventually(t, "the file", func() bool { return exists(filepath.Join(dir, "held")) })
	r.closed(id, graceFlags()...)
	if exists(dir) {
		t.Error(dir, "is left")
	}
	if len(livingIn(p.dir)) != 1 {
		t.Error("who stood in it was ended")
	}
	r.closed(other, graceFlags()...)
}

// What cannot be removed is told, and the session is closed all the same.
func TestTmpKept(t *testing.T) {
	r, base := tmpRig(t)
	if os.Geteuid() != 0 {
		t.Skip("only root makes a file immutable")
	}
	id := r.open("kept")
	file := filepath.Join(r.inspect(id).TmpDir, "kept")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := immutable(file, true); err != nil {
		t.Logf("%s cannot be made immutable: %v", file, err)
		t.Skip("no file system with immutable files here")
	}
	defer immutable(file, false)
	receipt := r.closed(id)
	if len(receipt.Notes) != 1 || !strings.Contains(receipt.Notes[0], file) {
		t.Errorf("notes: %q; want one that names %s", receipt.Notes, file)
	}
	r.nothing("at the end")
	if err := immutable(file, false); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(base, filepath.Base(filepath.Dir(filepath.Dir(file))))); err != nil {
		t.Fatal(err)
	}
}

// immutable sets or clears what chattr +i does.
func immutable(path string, on bool) error {
	const flag = 0x10 // FS_IMMUTABLE_FL
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	v, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err
	}
	if v &^= flag; on {
		v |= flag
	}
	return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(v))
}

// After a reboot /tmp may be empty.
func TestTmpGone(t *testing.T) {
	r, base := tmpRig(t)
	id := r.open("gone")
	if err := os.RemoveAll(filepath.Dir(r.inspect(id).TmpDir)); err != nil {
		t.Fatal(err)
	}
	if receipt := r.closed(id); len(receipt.Notes) > 0 {
		t.Errorf("notes: %v", receipt.Notes)
	}
	id = r.open("base-gone")
	if err := os.RemoveAll(base); err != nil {
		t.Fatal(err)
	}
	r.closed(id)
	// Nor is there a place for the next one.
	r.run("open", "--name", "p", "--private-tmp", "--backend", r.box).must(t, 6, "open --private-tmp without a TMPDIR")
	r.closed(r.open("without"))
	r.nothing("at the end")
}

// A removal that was killed is finished by the next close; the record waits for it.
func TestTmpCloseKilled(t *testing.T) {
	r, base := tmpRig(t)
	const files = 1200
	fill := fmt.Sprintf(`cd $SESSIONBOX_TMPDIR && for d in 1 2 3; do mkdir $d && (cd $d && seq %d | xargs touch); done`, files/3)
	met := 0
	var took time.Duration
	for n := range 8 {
		id := r.open("killed")
		r.shell(id, fill)
		dir := r.inspect(id).TmpDir
		count := func() int {
			all, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
			return len(all)
		}
		began := time.Now()
		e := r.start(bin(), "close", "--now", id)
		if n == 0 {
			e.wait()
			took = time.Since(began)
			continue
		}
		// Half of them when the first file is gone, the others at any moment.
		if n%2 == 0 {
			for end := time.Now().Add(patience()); count() >= files && time.Now().Before(end); {
			}
		} else {
			time.Sleep(somewhere(took))
		}
		if err := e.id.kill(); err != nil {
			t.Fatal(err)
		}
		e.wait()
		left := count()
		_, listed := r.listed(id)
		if left > 0 && !listed {
			t.Fatalf("%d files are left and the session is not listed", left)
		}
		if left > 0 && left < files {
			met++
		}
		if listed {
			r.closed(id)
		}
		if exists(dir) {
			t.Fatalf("%s is left", dir)
		}
		r.nothing("close killed")
	}
	t.Logf("%d of 7 were killed in the middle of the removal", met)
	if met == 0 {
		t.Error("no close was killed in the middle: the test proves nothing")
	}
	if left, _ := os.ReadDir(base); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// An open that was killed leaves no directory that the next close does not find.
func TestTmpOpenKilled(t *testing.T) {
	r, base := tmpRig(t)
	began := time.Now()
	r.closed(r.open("measured"))
	took := time.Since(began)
	for range moments() / 2 {
		e := r.start(bin(), "open", "--name", "victim", "--backend", r.box)
		time.Sleep(somewhere(took))
		if err := e.id.kill(); err != nil {
			t.Fatal(err)
		}
		e.wait()
		r.sweep("open killed")
		if left, _ := filepath.Glob(filepath.Join(base, "*", "*")); len(left) > 0 {
			t.Fatalf("left: %v", left)
		}
	}
}

// Directories whose session is lost are removed by a later open, if that is proven.
func TestTmpSweep(t *testing.T) {
	r, base := tmpRig(t)
	keeper := r.open("keeper")
	parent := filepath.Dir(r.inspect(keeper).TmpDir)
	mark := func(dir string) map[string]any {
		t.Helper()
		var m map[string]any
		b, err := os.ReadFile(filepath.Join(dir, ".sessionbox"))
		if err == nil {
			err = json.Unmarshal(b, &m)
		}
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	age := func(dir string) {
		t.Helper()
		old := time.Now().Add(-25 * time.Hour)
		if err := os.Chtimes(filepath.Join(dir, ".sessionbox"), old, old); err != nil {
			t.Fatal(err)
		}
	}
	age(filepath.Join(parent, keeper)) // it has a record
	ours := mark(filepath.Join(parent, keeper))
	// lose makes a directory of a session that there is no record of.
	lose := func(id string, old bool, change map[string]any) string {
		t.Helper()
		m := maps.Clone(ours)
		m["session"] = id
		maps.Copy(m, change)
		dir := filepath.Join(parent, id)
		b, err := json.Marshal(m)
		if err == nil {
			err = os.MkdirAll(filepath.Join(dir, "x"), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, ".sessionbox"), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if old {
			age(dir)
		}
		return dir
	}
	goes := []string{lose("aaaaaaaaaa", true, nil)}
	stays := []string{
		lose("bbbbbbbbbb", false, nil),
		lose("cccccccccc", true, map[string]any{"state_dir": "/of/another"}),
		lose("dddddddddd", true, map[string]any{"inode": 1}), // the same name in a container
		lose("eeeeeeeeee", true, map[string]any{"session": "ffffffffff"}),
	}
	unmarked := filepath.Join(parent, "gggggggggg")
	if err := os.Mkdir(unmarked, 0o700); err != nil {
		t.Fatal(err)
	}
	stays = append(stays, unmarked, filepath.Join(parent, keeper))
	rebooted := lose("hhhhhhhhhh", true, map[string]any{"boot": "00000000-0000-0000-0000-000000000000"})
	var fs unix.Statfs_t
	if err := unix.Statfs(base, &fs); err != nil {
		t.Fatal(err)
	}
	switch fs.Type {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC:
		goes = append(goes, rebooted)
	default:
		stays = append(stays, rebooted)
	}
	r.closed(r.open("sweeper"))
	for _, dir := range goes {
		if exists(dir) {
			t.Errorf("%s is left", dir)
		}
	}
	for _, dir := range stays {
		if !exists(dir) {
			t.Errorf("%s was removed", dir)
		} else if dir != filepath.Join(parent, keeper) {
			os.RemoveAll(dir)
		}
	}
	r.closed(keeper)
}

// What is kept of a session keeps its directory; the last one to be closed removes it.
func TestTmpOfKept(t *testing.T) {
	r, base := tmpRig(t)
	for _, last := range []string{"kept", "first"} {
		id := r.open("first", "--private-tmp")
		dir := r.inspect(id).TmpDir
		r.detach(id, "sh", "-c", "echo here >$TMPDIR/file; exec sleep 600")
		eventually(t, "the file", func() bool { return exists(filepath.Join(dir, "file")) })
		r.run("keep", id+"/1").must(t, 0, "keep")
		kept, ok := r.listed("first.kept-1")
		if !ok || kept.TmpDir == dir || kept.TmpDir == "" {
			t.Fatalf("kept session: %+v; want one with a directory of its own", kept)
		}
		order := []string{id, kept.ID}
		if last == "first" {
			order = []string{kept.ID, id}
		}
		receipt := r.closed(order[0], graceFlags()...)
		if !exists(filepath.Join(dir, "file")) {
			t.Errorf("the directory went with %s, before %s", order[0], order[1])
		}
		if len(receipt.Notes) != 1 || !strings.Contains(receipt.Notes[0], dir) {
			t.Errorf("notes: %q; want one about %s", receipt.Notes, dir)
		}
		r.closed(order[1], graceFlags()...)
		if left, _ := os.ReadDir(base); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	// A process that says itself that it stays.
	id := r.open("first", "--private-tmp")
	dir := r.inspect(id).TmpDir
	r.run("exec", "-d", "-e", "SESSIONBOX_KEEP=1", id, "--", "sh", "-c", "echo here >$TMPDIR/file; exec sleep 600").must(t, 0, "exec -d")
	eventually(t, "the file", func() bool { return exists(filepath.Join(dir, "file")) })
	r.closed(id, graceFlags()...)
	if !exists(filepath.Join(dir, "file")) {
		t.Error("the directory of a process that was kept is gone")
	}
	r.closed("first.kept-1", graceFlags()...)
	if exists(dir) {
		t.Errorf("%s is left", dir)
	}
	r.nothing("at the end")
}

// Two sessions that share a directory and are closed at once leave none of them.
func TestTmpOfKeptAtOnce(t *testing.T) {
	r, base := tmpRig(t)
	for range 8 {
		id := r.open("first")
		for range 3 {
			r.detach(id, "sleep", "600")
		}
		for n := range 3 {
			r.run("keep", fmt.Sprintf("%s/%d", id, n+1)).must(t, 0, "keep")
		}
		r.run("close", "--all", "--now").must(t, 0, "close --all")
		if left, _ := filepath.Glob(filepath.Join(base, "*", "*")); len(left) > 0 {
			t.Fatalf("left: %v", left)
		}
	}
	r.nothing("at the end")
}
