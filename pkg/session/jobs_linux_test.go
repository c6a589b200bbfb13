package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/internal/shim"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// cron is a user's crontab: a command in the PATH that keeps the table in a file, and
// fails as the file "fail" says, once for each line of it.
type cron struct {
	t    *testing.T
	home string
	dir  shim.Dir
}

func newCron(t *testing.T, table string) *cron {
	t.Helper()
	c := &cron{t: t, home: t.TempDir()}
	script := `#!/bin/sh
cd "` + c.home + `"
if [ -s fail ]; then sed -i 1d fail; echo "fork: Cannot allocate memory" >&2; exit 1; fi
case "$1" in
-l) [ -e table ] || { echo "no crontab for root" >&2; exit 1; }; cat table;;
-r) rm table; [ ! -e after-write ] || sh ./after-write;;
-e) [ ! -e before-edit ] || . ./before-edit; cat edit >>table;;
-) cat >new.$$ && mv new.$$ table;;
*) exit 1;;
esac
`
	c.write("bin/crontab", script)
	if err := os.Chmod(filepath.Join(c.home, "bin/crontab"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(c.home, "bin")+":/usr/bin:/bin")
	d, err := shim.Make(filepath.Join(c.home, "sessions/abcdefghij/shims"), shim.Config{ID: "abcdefghij", TableLock: c.lock()}, "/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	c.dir = d
	if table != "" {
		c.write("table", table)
	}
	return c
}

func (c *cron) write(name, text string) {
	c.t.Helper()
	path := filepath.Join(c.home, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cron) lock() string { return filepath.Join(c.home, "crontab.lock") }

func (c *cron) table() string {
	b, err := os.ReadFile(filepath.Join(c.home, "table"))
	if err != nil {
		return ""
	}
	return string(b)
}

// session runs a line of shell as a command of the session does.
func (c *cron) session(line string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	link := filepath.Join(c.dir.Bin(), "crontab")
	os.Remove(link)
	if err := os.Symlink(self, link); err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir = c.home
	cmd.Env = shim.Environ(os.Environ(), c.dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c *cron) must(line string) {
	c.t.Helper()
	if out, err := c.session(line); err != nil {
		c.t.Fatalf("%s: %v: %s", line, err, out)
	}
}

// closed closes, and gives the fate of each line.
func (c *cron) closed() map[string]string {
	fates := map[string]string{}
	for _, j := range endCron(context.Background(), c.dir, c.lock(), false) {
		fates[j.Line] = j.Fate
	}
	return fates
}

// TestCrontab: of the user's table a close takes the lines that the session's calls have
// added, and no other, whatever came between.
func TestCrontab(t *testing.T) {
	const backup, own = "30 5 * * * my-backup", "1 1 * * * of-session"
	for name, c := range map[string]struct {
		before string
		calls  []string // what begins with "user " is done past the session
		after  string
		fates  map[string]string
	}{
		"added":             {backup, []string{`(crontab -l; echo "` + own + `") | crontab -`}, backup, map[string]string{own: FateRemoved}},
		"by a file":         {"", []string{`echo "` + own + `" >f; cp bin/crontab keep; sed -i 's/^\*) exit 1/*) cp "$1" table/' bin/crontab; crontab f`}, "", map[string]string{own: FateRemoved}},
		"no table":          {"", []string{`echo "` + own + `" | crontab -`}, "", map[string]string{own: FateRemoved}},
		"edited meanwhile":  {backup, []string{`echo "0 9 * * 1 users-new" >edit; crontab -e`}, backup + "\n0 9 * * 1 users-new", map[string]string{"0 9 * * 1 users-new": FateSuspect}},
		"line changed":      {backup, []string{`crontab -l | sed 's/30 5/30 6/' | crontab -`}, "30 6 * * * my-backup", map[string]string{"30 6 * * * my-backup": FateSuspect}},
		"changed in two":    {backup, []string{`crontab -l >f; crontab -r`, `sed 's/30 5/30 6/' f | crontab -`}, "30 6 * * * my-backup", map[string]string{"30 6 * * * my-backup": FateSuspect}},
		"put back":          {backup, []string{`crontab -l >f; crontab -r; (cat f; echo "` + own + `") | crontab -`}, backup, map[string]string{own: FateRemoved}},
		"taken back":        {backup, []string{`(crontab -l; echo "` + own + `") | crontab -`, `crontab -l | grep -v of-session | crontab -`, `user echo "` + own + `" >>table`}, backup + "\n" + own, nil},
		"own line replaced": {backup, []string{`(crontab -l; echo "` + own + `") | crontab -`, `crontab -l | sed 's/1 1/2 2/' | crontab -`}, backup, map[string]string{"2 2 * * * of-session": FateRemoved}},
		"removed by user":   {backup, []string{`(crontab -l; echo "` + own + `") | crontab -`, `user sed -i '$d' table`, `crontab -l | crontab -`, `user echo "` + own + `" >>table`}, backup + "\n" + own, nil},
		"user's beside":     {backup, []string{`(crontab -l; echo "` + own + `") | crontab -`, `user echo "7 7 * * * users-new" >>table`}, backup + "\n7 7 * * * users-new", map[string]string{own: FateRemoved}},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.before
			if before != "" {
				before += "\n"
			}
			r := newCron(t, before)
			for _, line := range c.calls {
				if user, ok := strings.CutPrefix(line, "user "); ok {
					cmd := exec.Command("sh", "-c", user)
					cmd.Dir = r.home
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Fatalf("%s: %v: %s", user, err, out)
					}
					continue
				}
				r.must(line)
			}
			fates := r.closed()
			if got := strings.TrimSpace(r.table()); got != c.after {
				t.Errorf("the table is %q, want %q", got, c.after)
			}
			if len(fates) != len(c.fates) {
				t.Errorf("fates %v, want %v", fates, c.fates)
			}
			for l, want := range c.fates {
				if fates[l] != want {
					t.Errorf("fates %v, want %v", fates, c.fates)
				}
			}
		})
	}
}

// TestCrontabUnread: a table that cannot be read is not an empty one: before a call, it is
// not made; at the close, nothing is done, and what is left is told.
func TestCrontabUnread(t *testing.T) {
	const backup = "30 5 * * * my-backup\n"
	r := newCron(t, backup)
	r.write("fail", "once\n")
	out, err := r.session(`printf '30 5 * * * my-backup\n1 1 * * * own\n' | crontab -`)
	if err == nil || !strings.Contains(out, "Cannot allocate memory") || !strings.Contains(out, "hint") {
		t.Errorf("the call with a table that cannot be read: %v: %s", err, out)
	}
	if fates := r.closed(); len(fates) > 0 || r.table() != backup {
		t.Errorf("fates %v, table %q", fates, r.table())
	}
	r.must(`(crontab -l; echo '1 1 * * * own') | crontab -`)
	r.write("fail", "once\n")
	if fates := r.closed(); fates[""] != FateSurvived || r.table() != backup+"1 1 * * * own\n" {
		t.Errorf("at a close that cannot read it: fates %v, table %q", fates, r.table())
	}
	if fates := r.closed(); fates["1 1 * * * own"] != FateRemoved || r.table() != backup {
		t.Errorf("at the next: fates %v, table %q", fates, r.table())
	}
	if all := endCron(context.Background(), r.dir, r.lock(), false); !slices.Equal(all, nil) {
		t.Errorf("and once more: %+v", all)
	}
}

// TestCrontabTwoCloses: of two closes at once each takes out its own lines alone, and says
// so; a call of another session waits.
func TestCrontabTwoCloses(t *testing.T) {
	const backup = "30 5 * * * my-backup\n"
	r := newCron(t, backup)
	dirs := []shim.Dir{r.dir}
	for _, name := range []string{"b", "c", "d"} {
		d, err := shim.Make(filepath.Join(r.home, "sessions", name, "shims"), shim.Config{ID: "abcdefghij", TableLock: r.lock()}, "/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, d)
	}
	for i, d := range dirs {
		r.dir = d
		r.must(fmt.Sprintf("(crontab -l; echo '%d 1 * * * own') | crontab -", i))
	}
	var wg sync.WaitGroup
	fates := make([][]JobInfo, len(dirs))
	for i, d := range dirs {
		wg.Go(func() { fates[i] = endCron(context.Background(), d, r.lock(), false) })
	}
	wg.Wait()
	for i, f := range fates {
		if len(f) != 1 || f[0].Fate != FateRemoved || f[0].Line != fmt.Sprintf("%d 1 * * * own", i) {
			t.Errorf("close %d says %+v", i, f)
		}
	}
	if got := r.table(); got != backup {
		t.Errorf("the table is %q", got)
	}
}

// TestCrontabWritten: somebody who knows nothing of the lock puts a line back: it is taken
// out again, and if he does not stop, it has survived.
func TestCrontabWritten(t *testing.T) {
	for tries, want := range map[string]string{"1": FateRemoved, "9": FateSurvived} {
		r := newCron(t, "")
		r.must("echo '1 1 * * * own' | crontab -")
		// Each time that the table is read behind this, the line is there again.
		r.write("tries", tries)
		r.write("after-write", `n=$(cat tries); [ "$n" = 0 ] || { echo '1 1 * * * own' >>table; echo $((n-1)) >tries; }`)
		if fates := r.closed(); fates["1 1 * * * own"] != want {
			t.Errorf("put back %s times: %v", tries, fates)
		}
	}
}

// TestCrontabHeld: a lock that is not let go of holds a close up for its time, and no longer.
func TestCrontabHeld(t *testing.T) {
	r := newCron(t, "")
	r.must("echo '1 1 * * * own' | crontab -")
	unlock, err := shim.LockTable(context.Background(), r.lock())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	all := endCron(ctx, r.dir, r.lock(), false)
	unlock()
	if len(all) != 1 || all[0].Fate != FateSurvived || !strings.Contains(all[0].Why, "under way") {
		t.Errorf("while another changes the table: %+v", all)
	}
	if fates := r.closed(); fates["1 1 * * * own"] != FateRemoved {
		t.Errorf("then: %v", fates)
	}
}

// TestAtPastShims: a job of at is proven by the cookie that at wrote down, whether it was
// queued through a shim of the session or not; others stay.
func TestAtPastShims(t *testing.T) {
	home := t.TempDir()
	for name, text := range map[string]string{
		"bin/atq":  `printf '1\tTue Dec  1 04:00:00 2026 a me\n2\tTue Dec  1 04:00:00 2026 a me\n5\tTue Dec  1 04:00:00 2026 a me\n4\tTue Dec  1 04:00:00 2026 a me\n3\tTue Dec  1 04:00:00 2026 = me\n' | while read -r n rest; do [ ! -e ` + home + `/$n ] || printf '%s\t%s\n' "$n" "$rest"; done`,
		"bin/at":   `shift; cd ` + home + `; echo "$*" >>asked; cat "$@"`,
		"bin/atrm": `rm ` + home + `/$1`,
		"1":        "SESSIONBOX_COOKIE=c00c1e; export SESSIONBOX_COOKIE\nrun one\n",
		"2":        "SESSIONBOX_COOKIE=another; export SESSIONBOX_COOKIE\nrun two\n",
		"3":        "SESSIONBOX_COOKIE=c00c1e; export SESSIONBOX_COOKIE\nruns\n",
		"5":        "SESSIONBOX_COOKIE=c00c1e; export SESSIONBOX_COOKIE\ncd / || {\n\t exit 1\n}\nSESSIONBOX_KEEP=1; export SESSIONBOX_KEEP\nrun five\n",
		"4":        "SESSIONBOX_COOKIE=c00c1e; export SESSIONBOX_COOKIE\nSESSIONBOX_KEEP=1; export SESSIONBOX_KEEP\nkept\n",
	} {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(name, "bin/") {
			text = "#!/bin/sh\n" + text
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", filepath.Join(home, "bin")+":/usr/bin:/bin")
	m, err := New(Config{StateDir: t.TempDir(), NoGuard: true})
	if err != nil {
		t.Fatal(err)
	}
	rec := store.Session{ID: "abcdefghij", Cookie: "c00c1e"} // without shims
	if all := m.endJobs(t.Context(), &rec, true); len(all) != 2 || all[0].Fate != fateAlive || all[0].ID != "1" || all[0].Line != "run one" || all[1].ID != "5" {
		t.Errorf("to be seen: %+v", all)
	}
	if all := m.endJobs(t.Context(), &rec, false); len(all) != 2 || all[0].Fate != FateRemoved || all[1].Fate != FateRemoved {
		t.Errorf("ended: %+v", all)
	}
	for job, want := range map[string]bool{"1": false, "2": true, "3": true, "4": true, "5": false} {
		if _, err := os.Stat(filepath.Join(home, job)); (err == nil) != want {
			t.Errorf("job %s is there: %t", job, !want)
		}
	}
	if all := m.endJobs(t.Context(), &store.Session{ID: "abcdefghij"}, false); len(all) > 0 {
		t.Errorf("of a session whose cookie is not known: %+v", all)
	}
	// Of a session that has none all are read at once.
	if err := os.Remove(filepath.Join(home, "asked")); err != nil {
		t.Fatal(err)
	}
	if all := m.endJobs(t.Context(), &store.Session{ID: "abcdefghij", Cookie: "third"}, false); len(all) > 0 {
		t.Errorf("of a session that has none: %+v", all)
	}
	if b, _ := os.ReadFile(filepath.Join(home, "asked")); string(b) != "2 4\n" {
		t.Errorf("at was asked for %q", b)
	}
}

// TestAtUnheard: jobs that cannot be listed, or read, may be the session's if it has called
// at. Of a session that has not, a list that fails says nothing, unless the close was cut short.
func TestAtUnheard(t *testing.T) {
	home := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(home, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", home+":/usr/bin:/bin")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	ask := func(ctx context.Context, queued bool) string {
		fate := ""
		for _, j := range endAt(ctx, "c00c1e", queued, false) {
			fate += j.ID + " " + j.Fate
			if j.Why == "" {
				t.Errorf("%+v", j)
			}
		}
		return fate
	}
	if _, err := toolPath("atq"); err == nil {
		t.Log("there is an atq here")
	} else if got := ask(over, false); got != "" {
		t.Errorf("where there is no at: %q", got)
	}
	write("atq", "echo 'atq: not setuid' >&2; exit 1")
	for _, c := range []struct {
		ctx    context.Context
		queued bool
		want   string
	}{{t.Context(), true, " " + FateSurvived}, {t.Context(), false, ""}, {over, false, " " + FateSurvived}} {
		if got := ask(c.ctx, c.queued); got != c.want {
			t.Errorf("a list that fails, queued %t: %q, want %q", c.queued, got, c.want)
		}
	}
	write("atq", `printf '7\tTue Dec  1 04:00:00 2026 a me\n'`)
	write("at", "exit 1")
	for queued, want := range map[bool]string{true: "7 " + FateSurvived, false: "7 " + FateSuspect} {
		if got := ask(t.Context(), queued); got != want {
			t.Errorf("a job that cannot be read, queued %t: %q, want %q", queued, got, want)
		}
	}
	write("at", "rm "+filepath.Join(home, "7")+"; exit 1")
	write("atq", `[ ! -e `+filepath.Join(home, "7")+` ] || printf '7\tTue Dec  1 04:00:00 2026 a me\n'`)
	write("7", "")
	if got := ask(t.Context(), true); got != "" {
		t.Errorf("a job that has begun meanwhile: %q", got)
	}
}

// TestCrontabSignals: the keys of a terminal do not end a shim under the editor; what asks
// it to end is handed on.
func TestCrontabSignals(t *testing.T) {
	r := newCron(t, "")
	r.write("edit", "1 1 * * * edited\n")
	r.write("before-edit", "kill -INT $PPID; kill -QUIT $PPID")
	r.must("crontab -e")
	if got := r.table(); got != "1 1 * * * edited\n" {
		t.Errorf("the table is %q", got)
	}
	for _, j := range endCron(t.Context(), r.dir, r.lock(), false) {
		if j.Fate != FateSuspect {
			t.Errorf("%+v", j)
		}
	}
	r.write("before-edit", "trap 'exit 7' TERM; kill -TERM $PPID; while :; do sleep 0.02; done")
	_, err := r.session("crontab -e")
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 7 {
		t.Errorf("asked to end: %v", err)
	}
}
