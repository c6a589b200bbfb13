// Command harness is a harness in small that uses the library: it takes tool calls from
// stdin, one a line, and answers each with a line. See ../README.md, "The example
// harness".
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/pkg/guard"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

func main() {
	// This program also is the helper that stays in each box, and the guard: nothing
	// comes before.
	if code, done := guard.Helper(os.Args); done {
		os.Exit(code)
	}
	if code, done := session.Helper(os.Args); done {
		os.Exit(code)
	}
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal("usage: harness NAME [close|keep]")
	}
	onExit := store.OwnerExitClose
	if len(os.Args) > 2 {
		onExit = store.OwnerExit(os.Args[2])
	}
	os.Exit(run(context.Background(), os.Args[1], onExit))
}

func run(ctx context.Context, name string, onExit store.OwnerExit) int {
	self, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	m, err := session.New(session.Config{Helper: self})
	if err != nil {
		log.Fatal(err)
	}
	found, err := m.Reconcile(ctx, session.ReconcileOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range found.Sessions {
		if s.Action != session.ActionNone {
			fmt.Println("reconciled", s.Name, s.Action)
		}
	}

	s, err := m.Open(ctx, session.OpenOptions{
		Name: name, Attach: true, Owner: &session.OwnerOptions{PID: os.Getpid()}, OnOwnerExit: onExit,
		Kind: store.Kind(os.Getenv("SESSIONBOX_BACKEND")), // the command reads it, the library does not
	})
	if e, ok := errors.AsType[*session.Error](err); ok && errors.Is(err, session.ErrHeld) && e.Info != nil {
		owner := 0
		if e.Info.Owner != nil {
			owner = e.Info.Owner.PID
		}
		fmt.Println("held", owner, "running", e.Info.Running)
		return 7
	}
	if err != nil {
		log.Fatal(err)
	}
	defer s.Release()
	s.ActFor(s.Generation()) // who takes the session over stops us
	info, err := m.Inspect(ctx, s.ID(), session.InspectOptions{})
	if err != nil {
		log.Fatal(err)
	}
	word := "opened"
	if len(info.Tasks) > 0 {
		word = "resumed" // do not start again what still runs
	}
	fmt.Println(word, s.ID(), "running", info.Running)

	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		answer, err := call(ctx, m, s, lines.Text())
		if err != nil {
			answer = "failed " + session.Code(err) + " " + err.Error()
		}
		fmt.Println(answer)
	}

	receipt, err := m.Close(ctx, s.ID(), session.CloseOptions{Generation: s.Generation()})
	if err != nil && !errors.Is(err, session.ErrSurvivors) {
		log.Fatal(err)
	}
	fmt.Print("closed ", len(receipt.Survivors))
	for _, p := range append(receipt.Processes, receipt.Strays...) {
		fmt.Print(" ", p.PID)
	}
	fmt.Println()
	if err != nil {
		return 4
	}
	return 0
}

// call carries out one tool call.
func call(ctx context.Context, m *session.Manager, s *session.Session, line string) (string, error) {
	verb, rest, _ := strings.Cut(line, " ")
	number := 0
	word, after, _ := strings.Cut(rest, " ")
	if n, err := strconv.Atoi(word); err == nil {
		number, rest = n, after
	}
	cmd := exec.Command("bash", "-c", rest)
	switch verb {
	case "run":
		r, out, err := runTask(ctx, s, cmd, session.StartOptions{Timeout: time.Duration(number) * time.Second, KillAfter: time.Second})
		switch {
		case err != nil:
			return "", err
		case r.State == store.TaskTimedOut:
			return "timeout", nil
		case r.Signal != 0:
			return fmt.Sprintf("exit %d %s", 128+int(r.Signal), out), nil
		}
		return fmt.Sprintf("exit %d %s", r.Exit, out), nil
	case "abort": // a person pressed Esc
		aborted, cancel := context.WithTimeout(ctx, time.Duration(number)*time.Millisecond)
		defer cancel()
		r, _, err := runTask(aborted, s, cmd, session.StartOptions{})
		if aborted.Err() != nil {
			return "aborted", err
		}
		return fmt.Sprintf("exit %d", r.Exit), err
	case "serve":
		_, n, err := s.StartDetached(ctx, cmd, session.StartOptions{Log: true})
		return fmt.Sprintf("started %s/%d", s.Name(), n), err
	case "log": // of task number
		words := []string{"logged"}
		for line, err := range m.Logs(ctx, s.ID(), number, session.LogOptions{}) {
			if err != nil {
				return "", err
			}
			words = append(words, string(line.Text))
		}
		return strings.Join(words, " "), nil
	case "left":
		info, err := m.Inspect(ctx, s.ID(), session.InspectOptions{})
		return fmt.Sprintf("left %d running %d", info.Leftovers, info.Running), err
	}
	return "", fmt.Errorf("no tool %q", verb)
}

// runTask runs a command as a task and gives its output. When ctx ends, the task ends
// with everything it started; when this process dies, so does it (Tie).
func runTask(ctx context.Context, s *session.Session, cmd *exec.Cmd, o session.StartOptions) (session.Result, string, error) {
	// A file: nobody waits for a background child that holds it, and none dies of SIGPIPE.
	out, err := os.CreateTemp("", "harness-")
	if err != nil {
		return session.Result{}, "", err
	}
	defer out.Close()
	if err := os.Remove(out.Name()); err != nil {
		return session.Result{}, "", err
	}
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	o.Tie = true
	t, err := s.Start(ctx, cmd, o)
	if err != nil {
		return session.Result{}, "", err
	}
	killed := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { killed <- s.KillTask(context.WithoutCancel(ctx), t.N(), "aborted") })
	r, err := t.Wait()
	if !stop() {
		err = errors.Join(err, <-killed)
	}
	text := make([]byte, 64<<10)
	n, _ := out.ReadAt(text, 0)
	return r, strings.ReplaceAll(strings.TrimSpace(string(text[:n])), "\n", " "), err
}
