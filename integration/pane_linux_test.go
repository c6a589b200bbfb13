package integration_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// pane is a terminal with a program in it: a tmux server of its own.
type pane struct {
	r              *rig
	socket, status string
}

// pane starts a program in a terminal of that size.
func (r *rig) pane(cols, rows int, argv ...string) *pane {
	r.t.Helper()
	need(r.t, "tmux")
	dir, err := os.MkdirTemp(r.home, "pane-")
	if err != nil {
		r.t.Fatal(err)
	}
	p := &pane{r: r, socket: filepath.Join(dir, "socket"), status: filepath.Join(dir, "status")}
	// Ctrl-C ends the program and not the shell that tells how it ended.
	script := fmt.Sprintf(`trap : INT; "$@"; echo $? >%s.new; mv %s.new %s; exec sleep 1000`, p.status, p.status, p.status)
	p.tmux(append([]string{"-u", "-f", "/dev/null", "new-session", "-d", "-x", strconv.Itoa(cols), "-y", strconv.Itoa(rows), "sh", "-c", script, "sh"}, argv...)...)
	r.t.Cleanup(func() {
		r.start("tmux", "-S", p.socket, "kill-server").wait()
		eventually(r.t, "end of the tmux server", func() bool { return exec.Command("tmux", "-S", p.socket, "has-session").Run() != nil })
	})
	return p
}

func (p *pane) tmux(args ...string) string {
	p.r.t.Helper()
	return string(p.r.start("tmux", append([]string{"-S", p.socket}, args...)...).wait().must(p.r.t, 0, "tmux").stdout)
}

// text is what is on the screen; the flag -e gives its colours, too.
func (p *pane) text(flags ...string) string {
	p.r.t.Helper()
	return p.tmux(append([]string{"capture-pane", "-p"}, flags...)...)
}

// sees waits for a text on the screen.
func (p *pane) sees(text string) {
	p.r.t.Helper()
	p.until(fmt.Sprintf("%q on the screen", text), func(screen string) bool { return strings.Contains(screen, text) })
}

func (p *pane) until(what string, ok func(screen string) bool) {
	p.r.t.Helper()
	var screen string
	defer func() {
		if p.r.t.Failed() {
			p.r.t.Log(screen)
		}
	}()
	eventually(p.r.t, what, func() bool {
		screen = p.text()
		return ok(screen)
	})
}

// keys presses keys, named as tmux does.
func (p *pane) keys(keys ...string) {
	p.r.t.Helper()
	p.tmux(append([]string{"send-keys"}, keys...)...)
}

// exits waits for the end of the program.
func (p *pane) exits(t *testing.T, code int) {
	t.Helper()
	var got string
	eventually(t, "end of the program", func() bool {
		b, err := os.ReadFile(p.status)
		got = strings.TrimSpace(string(b))
		return err == nil
	})
	if got != strconv.Itoa(code) {
		t.Errorf("exit code %s, want %d\n%s", got, code, p.text())
	}
}
