package session

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/store"
)

// TestWatching: the conmon of a container that has survived is not ended as a stray: nothing
// else would prove to the next close whose the container is.
func TestWatching(t *testing.T) {
	dir := t.TempDir()
	sh, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"conmon": sh, "podman": []byte("#!/bin/sh\nexit 1\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	conmon := exec.Command(filepath.Join(dir, "conmon"), "-c", "echo; read x", "conmon", "-c", "container")
	conmon.Env = []string{EnvCookie + "=c00c1e"}
	in, err := conmon.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := conmon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := conmon.Start(); err != nil {
		t.Fatal(err)
	}
	defer conmon.Wait()
	defer in.Close()
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	found := conmonsOf(allConmons(), "c00c1e")
	if len(found) != 1 || found[0].pid != conmon.Process.Pid {
		t.Fatalf("found %+v", found)
	}
	c := closing{rec: store.Session{Cookie: "c00c1e"}}
	for fate, want := range map[string][]int{FateSurvived: {conmon.Process.Pid}, FateSuspect: {conmon.Process.Pid}, FateKilled: nil} {
		c.r.Containers = []HiredContainer{{ID: "another", Fate: FateSurvived}, {ID: found[0].id, Fate: fate}}
		if got := c.watching(); !slices.Equal(got, want) {
			t.Errorf("of a container that is %s: %v, want %v", fate, got, want)
		}
	}
}

// TestMadeBy: the conmon of `podman exec` is told its container as well, and proves nothing.
func TestMadeBy(t *testing.T) {
	for line, want := range map[string]string{
		"conmon --api-version 1 -c ID -u ID -n web -s --log-tag -e --exit-command /usr/bin/podman --exit-command-arg --root --exit-command-arg -c": "ID",
		"conmon --cid ID -u ID --exit-command-arg -e":                                       "ID",
		"conmon --api-version 1 -c ID -u EXEC -e --exec-attach --exec-process-spec /x/spec": "",
		"conmon -c ID -u EXEC --exec-process-spec /x/spec":                                  "",
		"conmon --version": "",
	} {
		if got := madeBy(strings.Fields(line)); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// pastRig is a podman with containers, each a file that holds what `inspect` says, and a conmon.
type pastRig struct {
	t   *testing.T
	dir string
}

func newPastRig(t *testing.T) *pastRig {
	t.Helper()
	r := &pastRig{t, t.TempDir()}
	sh, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	script := `#!/bin/sh
cd ` + r.dir + `
if [ -e broken ]; then echo "database is locked" >&2; exit 125; fi
case "$1 $2" in
"container inspect")
	shift 2
	all=
	for c; do [ -e "c-$c" ] || { echo "no such container $c" >&2; exit 125; }; all="$all${all:+,}$(cat "c-$c")"; done
	echo "[$all]";;
"stop "*|"rm "*) for c; do :; done; echo "$1 $c" >>ended; rm -f "c-$c";;
esac
`
	for name, b := range map[string][]byte{"conmon": sh, "podman": []byte(script), "wait": []byte("echo; read x")} {
		if err := os.WriteFile(filepath.Join(r.dir, name), b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", r.dir+":/usr/bin:/bin")
	return r
}

func (r *pastRig) put(id string, created time.Time, label string) {
	text := fmt.Sprintf(`{"Id":%q,"Created":%q,"State":{"Status":"running"},"Config":{"Labels":{%s}}}`, id, created.Format(time.RFC3339Nano), label)
	if err := os.WriteFile(filepath.Join(r.dir, "c-"+id), []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *pastRig) there(id string) bool {
	_, err := os.Stat(filepath.Join(r.dir, "c-"+id))
	return err == nil
}

// conmon runs one with arguments, and gives its pid and the way to end it.
func (r *pastRig) conmon(env []string, args ...string) (pid int, end func()) {
	r.t.Helper()
	cmd := exec.Command(filepath.Join(r.dir, "conmon"), append([]string{filepath.Join(r.dir, "wait")}, args...)...)
	cmd.Env = env
	in, err := cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	end = sync.OnceFunc(func() { in.Close(); cmd.Wait() })
	r.t.Cleanup(end)
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		r.t.Fatal(err)
	}
	return cmd.Process.Pid, end
}

// TestPast: a conmon proves that the session has started a container. That one is its own if it
// was made since the session was opened, and is not another's.
func TestPast(t *testing.T) {
	r := newPastRig(t)
	c := hiredSession(t)
	c.rec.Created = time.Now().Add(-time.Hour)
	mine := []string{EnvCookie + "=" + c.rec.Cookie}
	pids := map[string]int{}
	start := func(id string, created time.Time, label string, env []string, args ...string) {
		r.put(id, created, label)
		pids[id], _ = r.conmon(env, append([]string{"-c", id}, args...)...)
	}
	now, before := time.Now(), c.rec.Created.Add(-time.Hour)
	start("made", now, "", mine)
	start("labelled", now, `"sessionbox":"`+c.rec.ID+`"`, mine)
	start("executed", before, "", mine, "-u", "x", "-e", "--exec-attach", "--exec-process-spec", "/spec")
	start("restarted", before, "", mine)
	start("undated", time.Time{}, "", mine)
	start("others", now, `"sessionbox":"bbbbbbbbbb"`, mine)
	start("kept", now, "", append(mine, EnvKeep+"=1"))
	start("foreign", now, "", []string{EnvCookie + "=another"})
	grace := time.Second
	c.o = CloseOptions{Grace: &grace} // who is not the session's is not asked to stop either
	h := c.beginHired(t.Context())
	if err := h.finish(t.Context()); err != nil {
		t.Error(err)
	}
	for id, want := range map[string]string{"made": FateEnded, "labelled": FateEnded, "executed": "", "restarted": FateSuspect, "undated": FateSuspect, "others": FateSuspect, "kept": "", "foreign": ""} {
		if got := fates(c.r.Containers)[id]; got != want || r.there(id) != (want != FateEnded) {
			t.Errorf("%s: %q, want %q; it is there: %t", id, got, want, r.there(id))
		}
	}
	b, _ := os.ReadFile(filepath.Join(r.dir, "ended"))
	ended := slices.Sorted(strings.Lines(string(b)))
	if want := []string{"rm labelled\n", "rm made\n", "stop labelled\n", "stop made\n"}; !slices.Equal(ended, want) {
		t.Errorf("podman was told %q, want %q", ended, want)
	}
	// The conmons of those that run on are left alone.
	c.hired = h
	left := c.watching()
	slices.Sort(left)
	want := []int{pids["restarted"], pids["undated"], pids["others"]}
	slices.Sort(want)
	if !slices.Equal(left, want) {
		t.Errorf("left alone are %v, want %v", left, want)
	}
}

// TestPastUnheard: while podman does not answer, a container that its conmon proves may live,
// and the conmon stays. One whose conmon has ended since it was seen is asked for all the same.
func TestPastUnheard(t *testing.T) {
	r := newPastRig(t)
	c := hiredSession(t)
	c.rec.Created = time.Now().Add(-time.Hour)
	broken := filepath.Join(r.dir, "broken")
	if err := os.WriteFile(broken, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r.put("made", time.Now(), "")
	pid, end := r.conmon([]string{EnvCookie + "=" + c.rec.Cookie}, "-c", "made")
	c.hired = c.beginHired(t.Context())
	if err := c.hired.finish(t.Context()); !errors.Is(err, ErrSurvivors) || fates(c.r.Containers)["made"] != FateSurvived {
		t.Errorf("by a podman that does not answer: %v, %+v", err, c.r.Containers)
	}
	if got := c.watching(); !slices.Equal(got, []int{pid}) {
		t.Errorf("left alone are %v, want %d", got, pid)
	}
	end()
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	if err := c.hired.finish(t.Context()); err != nil || r.there("made") || len(c.r.Containers) != 1 {
		t.Errorf("when it answers: %v, %+v; it is there: %t", err, c.r.Containers, r.there("made"))
	}
}

// TestPastAtSweep: a container that came behind the last question is found by the conmon that
// is ended as a stray.
func TestPastAtSweep(t *testing.T) {
	r := newPastRig(t)
	c := hiredSession(t)
	c.rec.Created = time.Now().Add(-time.Hour)
	c.hired = c.beginHired(t.Context())
	if err := c.hired.finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.put("late", time.Now(), "")
	_, end := r.conmon([]string{EnvCookie + "=" + c.rec.Cookie}, "-c", "late")
	if got := c.watching(); len(got) > 0 {
		t.Errorf("left alone are %v", got)
	}
	end()
	if err := c.hired.finish(t.Context()); err != nil || r.there("late") {
		t.Errorf("%v, %+v; it is there: %t", err, c.r.Containers, r.there("late"))
	}
}
