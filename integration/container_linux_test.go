package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A default container as this suite can make one: pid and mount namespaces of its own, a cgroup tree that is mounted read-only, no systemd, its own /proc. What sets it up is
// replaced by the command, so that the command is pid 1.
const container = `
export PATH="$0:$PATH"
unset SESSIONBOX_CGROUP_ROOT
mount -t proc proc /proc
for m in $(awk '$5 ~ "^/sys/fs/cgroup" {print $5}' /proc/self/mountinfo | sort -r); do
	mount -o remount,bind,ro "$m" || mount --bind -o ro "$m" "$m"
done
exec "$@"
`

// inContainer runs a command as pid 1.
func (r *rig) inContainer(argv ...string) output {
	r.t.Helper()
	if os.Geteuid() != 0 {
		r.t.Skip("needs root, to make namespaces without users")
	}
	if exists("/run/systemd/system") {
		r.t.Skip("its systemd manager would be seen inside, too")
	}
	if _, err := exec.LookPath("mount"); err != nil {
		r.t.Skip("needs mount(8)")
	}
	// Unshared, mounts are made private before: what is mounted inside is not seen outside.
	attr := syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
	return r.startWith(attr, nil, "/bin/sh", append([]string{"-ec", container, filepath.Dir(bin())}, argv...)...).wait()
}

// zombies are the lines of ps that show one.
var zombies = regexp.MustCompile(`(?m)^ *[0-9]+ +[0-9]+ +Z.*$`)

// TestContainerInit: sessionbox itself is pid 1. It gets the lineage box, collects all
// orphans, ends what the command left, and takes over its status.
func TestContainerInit(t *testing.T) {
	r := newRig(t)
	p := r.payloads("payload")
	script := strings.Join([]string{
		"test $PPID -gt 1", // the command's parent is its keeper
		shellWords(p.argv("E05")),
		"for i in 1 2 3; do (setsid true &); done",
		"sleep 0.3; ps axo pid,ppid,stat,args; sessionbox ls; exit 6",
	}, "\n")
	o := r.inContainer(bin(), "run", "--", "sh", "-c", script)
	o.must(t, 6, "run as pid 1")
	if z := zombies.Find(o.stdout); z != nil {
		t.Errorf("a zombie: %s", z)
	}
	if !strings.Contains(string(o.stdout), "lineage") {
		t.Errorf("not the lineage box:\n%s", o.stdout)
	}
	if !strings.Contains(string(o.stderr), "1 process ended") {
		t.Errorf("the receipt does not tell of the one that was left: %s", o.stderr)
	}
	p.stopped()
}

// TestContainerChild: another program is pid 1, and never waits for anybody. No command
// leaves a zombie, nor does what a close has ended.
func TestContainerChild(t *testing.T) {
	r := newRig(t)
	p := r.payloads("payload")
	script := strings.Join([]string{
		"sessionbox open --name x",
		"for i in 1 2 3; do sessionbox exec x -- true; done",
		"sessionbox exec x -- " + shellWords(p.argv("E05")),
		"sessionbox close --json x",
		"sleep 0.2; ps axo pid,ppid,stat,args",
	}, "\n")
	o := r.inContainer("/bin/sh", "-ec", script)
	o.must(t, 0, "sessionbox below another pid 1")
	if z := zombies.Find(o.stdout); z != nil {
		t.Errorf("a zombie: %s", z)
	}
	if !strings.Contains(string(o.stdout), `"containment": "best effort"`) {
		t.Errorf("the receipt does not say what kind of box it was:\n%s", o.stdout)
	}
	p.stopped()
}

// TestContainerSignal: what is sent to pid 1 reaches the run, which closes its session.
func TestContainerSignal(t *testing.T) {
	r := newRig(t)
	p := r.payloads("payload")
	o := r.inContainer(bin(), "run", "--grace", "1s", "--", "sh", "-c", shellWords(p.argv("E05"))+"\nkill -TERM 1; sleep 60")
	o.must(t, 128+15, "run as pid 1 that was told to end")
	p.stopped()
}

// TestWithoutClone3: where a seccomp filter refuses clone3, as a container's may, commands get
// into their box another way, and none stays.
func TestWithoutClone3(t *testing.T) {
	for _, errno := range []string{"ENOSYS", "EPERM"} {
		for _, inside := range []bool{false, true} {
			where := map[bool]string{false: "host", true: "container"}[inside]
			t.Run(errno+"/"+where, func(t *testing.T) {
				r := newRig(t)
				p, q := r.payloads("exec"), r.payloads("run")
				me := shellWords([]string{bin()})
				script := strings.Join([]string{
					me + " open --name x",
					me + " exec x -- " + shellWords(p.argv("E05")),
					me + " exec -d x -- sleep 600",
					me + " exec x -- sh -c 'exit 4' || test $? = 4",
					me + " run -- " + shellWords(q.argv("E05")),
					me + " ps x",
					me + " close --json x",
				}, "\n")
				argv := []string{escape(), "seccomp", "--dir", r.home, "--label", errno, "--arg", script}
				var o output
				if inside {
					o = r.inContainer(argv...)
				} else {
					o = r.start(argv[0], argv[1:]...).wait()
				}
				o.must(t, 0, "sessionbox without clone3")
				p.stopped()
				q.stopped()
			})
		}
	}
}

// shellWords quotes a command line for a shell.
func shellWords(argv []string) string {
	quoted := make([]string, len(argv))
	for i, a := range argv {
		quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// TestContainerForgotten: a container was killed, and its records are there for the next one. Of
// their processes nothing can be told; who knows better has the record dropped.
func TestContainerForgotten(t *testing.T) {
	r := newRig(t)
	r.inContainer("sh", "-c", bin()+" open --name work --private-tmp && exec kill -9 $$")
	o := r.inContainer("sh", "-c", "sessionbox close work >/dev/null; echo \"$?\"; sessionbox close --forget work >/dev/null; echo \"$?\"; sessionbox close work >/dev/null; echo \"$?\"; sessionbox open --name work >/dev/null && sessionbox close work >/dev/null; echo \"$?\"; sessionbox ls -q")
	if got := strings.Fields(string(o.stdout)); !slices.Equal(got, []string{"5", "5", "3", "0"}) {
		t.Errorf("exit codes %q, want 5 5 3 0\n%s", got, o.stderr)
	}
	if !strings.Contains(string(o.stderr), "close --forget") {
		t.Errorf("the way out is not named: %s", o.stderr)
	}
}
