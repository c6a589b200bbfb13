package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/internal/anchor"
	"github.com/sessionbox/sessionbox/pkg/internal/keeper"
	"github.com/sessionbox/sessionbox/pkg/internal/park"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

// Which process may be the root of an adoption. Closing a session ends all that is in
// it, so what must not be ended with an agent must not be adopted with one:
//
//   - pid 1, threads of the kernel, zombies, other users' processes, our own helpers;
//   - a service manager, the main process of a service, and the daemons that give
//     others their sessions: sshd, cron, tmux, …;
//   - the interactive shell that leads a terminal's session, or a login shell: it is
//     the user's place, not the agent.
//
// The last two are looked for in the root and, if the root is an ancestor of the caller,
// in all between them: a hook that asks for its parent's parent may be given the
// terminal emulator. What the agent itself started is not judged that way: agents run
// shells in terminals of their own. Siblings and strangers of the same user may be
// adopted: whoever names them at a prompt means them.
//
// Names of programs are used here and nowhere else, as they can only make us refuse.

// checkRoot proves that a root is who it was when it was noted, and that it may be
// adopted.
func (a *adoption) checkRoot(r Root) (proc.Stat, error) {
	if err := proc.CheckPID(r.PID); err != nil {
		return proc.Stat{}, refusal(ErrUsage, r.PID, "", "it is no pid of a program that could be", "give the pid of the agent")
	}
	st, err := proc.ReadStat(r.PID)
	switch {
	case errors.Is(err, proc.ErrGone):
		return st, refusal(ErrNoProcess, r.PID, "", "there is none of this number", "it may have ended already")
	case err != nil:
		return st, err
	case r.Start != 0 && st.Start != r.Start:
		return st, refusal(ErrNoProcess, r.PID, st.Comm, fmt.Sprintf("it started at tick %d and not %d: the pid is another's now", st.Start, r.Start), "")
	case st.Kernel:
		return st, refusal(ErrPermission, r.PID, st.Comm, "it is a thread of the kernel", "")
	case isZombie(&st):
		return st, refusal(ErrNoProcess, r.PID, st.Comm, "it has ended and waits for its parent to take note", "")
	case r.PID == os.Getpid() && a.o.LeaveCaller:
		return st, refusal(ErrUsage, r.PID, st.Comm, "it is this very command", "give the pid of the agent; in a shell $PPID is its parent")
	}
	if err := a.checkUser(&st); err != nil {
		return st, err
	}
	if verb := ownHelper(st.PID); verb != "" {
		return st, refusal(ErrPermission, r.PID, st.Comm, "it is a process of sessionbox ("+verb+")", "give the pid of what it runs")
	}
	for _, pid := range a.between(r.PID) {
		if why := notAnAgent(pid); why != "" {
			if pid != r.PID {
				why = fmt.Sprintf("below it %s", why)
			}
			return st, refusal(ErrPermission, r.PID, st.Comm, why, "give the pid of the agent itself, or start it with `sessionbox run`")
		}
	}
	return st, nil
}

// between gives a root and, if it is an ancestor of ours, those on the way to us.
func (a *adoption) between(root int) []int {
	i := slices.Index(a.above, root)
	if i < 0 {
		return []int{root}
	}
	way := slices.Clone(a.above[:i+1])
	slices.Reverse(way)
	return way
}

// lineage gives the ancestors of a process, its parent first. One that ends meanwhile
// cuts it short.
func lineage(pid int) []int {
	var all []int
	for pid > 1 && len(all) < 1000 {
		st, err := proc.ReadStat(pid)
		if err != nil {
			break
		}
		pid = st.PPID
		all = append(all, pid)
	}
	return all
}

func isZombie(st *proc.Stat) bool {
	// A dead leader with live threads is a process; its state is Z.
	return st.State == 'X' || st.State == 'Z' && st.Threads <= 1
}

// checkUser refuses other users' processes. That the caller is root is no reason to
// move them: a setuid program or a dropped user in a tree is easily overlooked.
func (a *adoption) checkUser(st *proc.Stat) error {
	ruid, euid, err := proc.UIDs(st.PID)
	if errors.Is(err, proc.ErrGone) {
		return nil // whoever goes on with it finds that out
	}
	if err != nil {
		return refusal(ErrPermission, st.PID, st.Comm, "whose it is cannot be told: "+err.Error(), "")
	}
	own := os.Geteuid()
	if ruid == own && euid == own || own == 0 && a.o.OtherUsers {
		return nil
	}
	other := ruid
	if other == own {
		other = euid
	}
	hint := "only root can, with --other-users"
	if own == 0 {
		hint = "--other-users takes it all the same"
	}
	return refusal(ErrPermission, st.PID, st.Comm, fmt.Sprintf("it runs as user %d", other), hint)
}

// ownHelper says what a process of sessionbox is there for, "" for all others and for
// those that just look on. They end with what they serve; in another session's box they
// are that session's.
func ownHelper(pid int) string {
	argv := proc.Args(pid)
	if len(argv) < 2 {
		return ""
	}
	exe := filepath.Base(proc.Link(pid, "exe"))
	if !strings.HasPrefix(exe, "sessionbox") && !proc.SameProgram(pid) {
		return ""
	}
	switch argv[1] {
	case anchor.Arg, keeper.Arg, SuperviseArg, park.Arg:
		return argv[1]
	}
	if !strings.HasPrefix(exe, "sessionbox") {
		return "" // another program that has a verb of the same name
	}
	i := slices.IndexFunc(argv[1:], func(w string) bool { return !strings.HasPrefix(w, "-") })
	if i < 0 {
		return ""
	}
	switch verb := argv[1+i]; verb {
	case "run", "exec", "close", "kill", "adopt", "keep", "reconcile", "guard":
		return verb
	}
	return ""
}

// notAnAgent says why a process is none, "" when nothing speaks against it.
func notAnAgent(pid int) string {
	st, err := proc.ReadStat(pid)
	if err != nil {
		return ""
	}
	cg, _ := proc.Cgroup(pid)
	parent, _ := proc.Cgroup(st.PPID)
	if why := serviceOf(st.Comm, cg, parent); why != "" {
		return fmt.Sprintf("%d (%s) %s", pid, st.Comm, why)
	}
	if why := placeOf(&st, proc.Args(pid)); why != "" {
		return fmt.Sprintf("%d (%s) %s", pid, st.Comm, why)
	}
	return ""
}

// serviceOf judges by the cgroups of a process and of its parent. A manager of systemd
// runs in init.scope, though not alone on every system; what it starts itself in a
// service is the service's main process, or one that was given back to it.
func serviceOf(comm, cg, parent string) string {
	if filepath.Base(cg) == "init.scope" && (comm == "systemd" || comm == "(sd-pam)") {
		return "is a service manager, or its guardian"
	}
	if filepath.Base(parent) != "init.scope" {
		return ""
	}
	for part := range backward(cg) {
		switch filepath.Ext(part) {
		case ".service":
			return "is the service " + part
		case ".scope", ".slice":
			return ""
		}
	}
	return ""
}

// backward gives the parts of a path, the last one first.
func backward(path string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, p := range slices.Backward(strings.Split(path, "/")) {
			if !yield(p) {
				return
			}
		}
	}
}

// placeOf says whether a process is the place from which a user works.
func placeOf(st *proc.Stat, argv []string) string {
	switch st.Comm {
	case "sshd", "sshd-session", "sshd-auth", "login", "cron", "crond", "atd", "tmux: server", "screen", "SCREEN",
		"runsvdir", "s6-svscan", "dinit",
		"dbus-daemon", "dbus-broker", "dbus-broker-lau":
		return "gives others their sessions"
	}
	if len(argv) == 0 {
		return ""
	}
	if strings.HasPrefix(argv[0], "-") {
		return "is a login shell"
	}
	leads := st.TTY != 0 && st.SID == st.PID
	if leads && isShell(st.Comm) && !runsScript(argv[1:]) {
		return "is the shell of a terminal"
	}
	return ""
}

func isShell(comm string) bool {
	switch comm {
	case "sh", "bash", "dash", "ash", "busybox", "zsh", "fish", "ksh", "mksh", "csh", "tcsh", "nu", "pwsh", "elvish", "xonsh":
		return true
	}
	return false
}

// runsScript says whether a shell was given something to run: -c, or a file.
func runsScript(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		switch {
		case strings.HasPrefix(a, "--"):
			return false
		case strings.HasPrefix(a, "-"):
			return strings.Contains(a, "c")
		}
		return !strings.HasPrefix(a, "+")
	})
}
