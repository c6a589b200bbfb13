package main

import (
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
)

// background are the ordinary ways of leaving work behind: what a shell's & does, up
// to the classic daemon.
func background() []technique {
	return []technique{
		{ID: "E01", Description: "plain background child", Payloads: 1, SeenBy: "GSEC",
			RootExits: true, Expect: dies, run: func(p params) error { return leave(p, how{}) }},
		{ID: "E02", Description: "nohup: HUP ignored, output redirected", Payloads: 1, SeenBy: "GSEC",
			RootExits: true, Expect: dies, run: nohup},
		{ID: "E03", Description: "double subshell: child of a child that is gone", Payloads: 1, SeenBy: "GSEC",
			RootExits: true, Expect: dies, run: func(p params) error { return again(p, how{}, 2) }},
		{ID: "E03b", Description: "the same by sh: ( ( payload & ) & )", Payloads: 1, SeenBy: "GSEC", Needs: []string{"sh"},
			RootExits: true, Expect: dies, run: subshell},
		{ID: "E04", Description: "own process group, as a job of an interactive shell", Payloads: 1, SeenBy: "SEC",
			RootExits: true, Expect: dies, run: func(p params) error { return leave(p, how{attr: syscall.SysProcAttr{Setpgid: true}}) }},
		{ID: "E05", Description: "new session: setsid payload &", Payloads: 1, SeenBy: "EC",
			RootExits: true, Expect: dies, run: func(p params) error { return leave(p, session()) }},
		{ID: "E06", Description: "classic daemon: fork, setsid, fork, chdir /", Payloads: 1, SeenBy: "EC",
			RootExits: true, Expect: dies, run: func(p params) error { h := session(); h.cwd = "/"; return again(p, h, 2) }},
		{ID: "E07", Description: "harness crash: HUP-deaf child, root kills itself", Payloads: 1, SeenBy: "GSEC",
			RootExits: true, Expect: dies, run: crash},
	}
}

// nohup starts its payload as nohup(1) does; an ignored signal stays ignored over
// exec.
func nohup(p params) error {
	signal.Ignore(syscall.SIGHUP)
	return leave(p, how{null: true})
}

// again starts n intermediate processes, each of which starts the next and exits, and
// then a payload.
func again(p params, h how, n int) error {
	_, err := spawn("again", p.with(strconv.Itoa(n)), h)
	return err
}

func runAgain(p params) error {
	n, err := strconv.Atoi(p.arg)
	if err != nil {
		return err
	}
	if n <= 1 {
		return leave(p, how{})
	}
	return again(p, how{}, n-1)
}

// subshell leaves through a real shell.
func subshell(p params) error {
	line, err := p.shellLine()
	if err != nil {
		return err
	}
	cmd := exec.Command("sh", "-c", "( ( "+line+" & ) & ); exit 0")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// crash dies as a harness does that was killed for its memory.
func crash(p params) error {
	if err := leave(p.deaf("HUP"), how{}); err != nil {
		return err
	}
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}
