package main

import (
	"os"
	"os/exec"
	"time"
)

// multiplexers hand their work to a server that may be the session's or not.
func multiplexers() []technique {
	return []technique{
		{ID: "E24", Description: "tmux server of its own socket", Payloads: 1, SeenBy: "EC", Needs: []string{"tmux"},
			RootExits: true, Expect: dies, run: func(p params) error { return inTmux(p, p.path("tmux")) }},
		{ID: "E24b", Description: "window of a tmux server that was there before", Payloads: 1, SeenBy: "", Needs: []string{"tmux"},
			Fixtures: []string{"tmux-server"}, RootExits: true, Expect: reported,
			run: func(p params) error { return inTmux(p, p.socket) }},
	}
}

// inTmux runs a payload in a detached window. tmux starts a server when there is none
// on the socket, and that server has left every group and session by then.
func inTmux(p params, socket string) error {
	line, err := p.shellLine()
	if err != nil {
		return err
	}
	cmd := exec.Command("tmux", "-S", socket, "-f", "/dev/null", "new-session", "-d", "exec "+line)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return err
	}
	return waitUntil(10*time.Second, "payload in tmux", func() bool { return recorded(p, p.label) > 0 })
}
