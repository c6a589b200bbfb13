package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/integration/hosts"
	"github.com/sessionbox/sessionbox/integration/membench/plan"
	"github.com/sessionbox/sessionbox/integration/membench/score"
)

// box is sessionbox, as whom the scenario says.
type box struct {
	s     *plan.Scenario
	guard string
	tape  *tape
	on    chan string // what the guard did

	mu    sync.Mutex
	names map[string]string // of sessions, by id
}

const (
	program = hosts.PayloadDir + "/sessionbox"
	self    = hosts.PayloadDir + "/guest"
	// commandTime bounds a command, but for those of a run's length: under want of memory
	// everything takes its time.
	commandTime = 2 * time.Minute
)

func (b *box) guards() bool { return b.guard == "sessionbox" }

// command is one of sessionbox.
func (b *box) command(ctx context.Context, args ...string) *exec.Cmd {
	env := []string{"SESSIONBOX_GUARD=off"}
	if b.guards() {
		env = []string{"SESSIONBOX_GUARD=on"}
		if b.s.Steps != "" {
			env = append(env, "SESSIONBOX_MEMORY_STEPS=warn,"+b.s.Steps)
		}
	}
	argv := slices.Concat([]string{"env"}, env, []string{program}, args)
	if b.s.Host.Agent {
		argv = slices.Concat([]string{"ssh", "-q", hosts.AgentLogin}, argv)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

func (b *box) run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	cmd := b.command(ctx, args...)
	var talk strings.Builder
	cmd.Stderr = &talk
	out, err := cmd.Output()
	said := strings.TrimSpace(talk.String())
	if err != nil {
		return string(out), fmt.Errorf("sessionbox %s: %w: %s", strings.Join(args, " "), err, said)
	}
	if said != "" {
		fmt.Printf("sessionbox %s: %s\n", strings.Join(args, " "), said)
	}
	return string(out), nil
}

// configure writes the config file, and gives how to take it away.
func (b *box) configure() (undo func(), err error) {
	dir := "/etc/sessionbox"
	if b.s.Host.Agent {
		dir = filepath.Join("/home", hosts.AgentUser, ".config", "sessionbox")
	}
	path := filepath.Join(dir, "config.toml")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return func() { os.Remove(path) }, os.WriteFile(path, []byte(b.s.Config), 0o644)
}

// open opens a session and starts its command, which lives as long as ctx or the
// session.
func (b *box) open(ctx context.Context, dir string, x *plan.Session) error {
	args := append([]string{"open", "--name", x.Name}, x.Flags...)
	if b.guards() && !slices.Contains(x.Flags, "--memory-warn") {
		args = append(args, "--memory-warn", "on")
	}
	out, err := b.run(ctx, args...)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.names[strings.TrimSpace(out)] = x.Name
	b.mu.Unlock()
	lead := []string{self, "lead", dir, b.s.Name, x.Name}
	if x.Idle {
		_, err = b.run(ctx, slices.Concat([]string{"exec", "-d", x.Name, "--"}, lead)...)
		return err
	}
	return b.command(ctx, slices.Concat([]string{"exec", x.Name, "--"}, lead)...).Start()
}

// event is one line of sessionbox events.
type event struct {
	Event, Name string
	ID          string          `json:"session"`
	Msg         string          `json:"msg"`
	Detail      json.RawMessage `json:"detail"`
}

// listen tells what the guard says, as who listens to it hears it.
func (b *box) listen(ctx context.Context) error {
	cmd := b.command(ctx, "events", "-f", "--json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		b.hear(out)
		cmd.Wait()
	}()
	return nil
}

func (b *box) hear(r io.Reader) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		at := clock()
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		switch e.Event {
		case "memory_warning":
			b.warned(at, &e)
		case "memory_action":
			b.acted(at, &e)
		}
	}
}

func (b *box) warned(at time.Duration, e *event) {
	var w struct {
		Change, Level string
		Limit         struct{ Kind, Name, Session string }
		Sessions      []struct{ Name string }
	}
	if json.Unmarshal(e.Detail, &w) != nil {
		b.tape.say(score.Record{What: score.Fail, Text: "a warning that cannot be read: " + string(e.Detail)})
		return
	}
	b.tape.sayAt(at, score.Record{What: score.Warned, Name: w.Limit.Name, Level: w.Level, Change: w.Change, N: len(w.Sessions), Text: e.Msg})
}

func (b *box) acted(at time.Duration, e *event) {
	var a struct{ Do, Session, Error string }
	if json.Unmarshal(e.Detail, &a) != nil {
		b.tape.say(score.Record{What: score.Fail, Text: "an action that cannot be read: " + string(e.Detail)})
		return
	}
	b.tape.sayAt(at, score.Record{What: score.Acted, Do: a.Do, Session: b.name(a.Session), OK: a.Error == "", Text: e.Msg})
	if a.Error != "" {
		return
	}
	if a.Do == "thaw" {
		b.tape.sayAt(at, score.Record{What: score.Check, Name: "thawed", OK: true})
	}
	select {
	case b.on <- a.Do:
	default: // nobody waits for so many
	}
}

func (b *box) name(id string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n, ok := b.names[id]; ok {
		return n
	}
	return id
}

// sessionIn is the session whose name or id is in the path of a cgroup, "" for none.
func (b *box) sessionIn(path string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, name := range b.names {
		if strings.Contains(path, id) {
			return name
		}
	}
	return ""
}
