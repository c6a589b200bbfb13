package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The tests run themselves again for what needs processes of its own.
const helperEnv = "STORE_TEST_HELPER"

func TestMain(m *testing.M) {
	if what := os.Getenv(helperEnv); what != "" {
		if err := helper(what, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	before := openFDs()
	code := m.Run()
	if left := openFDs(); code == 0 && left > before {
		fmt.Fprintf(os.Stderr, "%d descriptors were open before the tests, %d after\n", before, left)
		code = 1
	}
	os.Exit(code)
}

func openFDs() int {
	entries, _ := os.ReadDir("/dev/fd")
	n := 0
	for _, e := range entries {
		if link, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(link, "eventpoll") || strings.Contains(link, "eventfd") {
			continue // the runtime's own, made at first use
		}
		n++
	}
	return n
}

func helper(what string, args []string) error {
	s, err := Open(Dirs{State: args[0], History: args[0] + "/history", UID: os.Geteuid()})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	switch what {
	case "claim": // names…: prints those it got
		for _, name := range args[1:] {
			switch err := s.Claim(ctx, newSession(name)); {
			case err == nil:
				fmt.Println(name)
			case !errors.Is(err, ErrNameTaken):
				return err
			}
		}
	case "tasks": // id count: prints the numbers
		count, _ := strconv.Atoi(args[2])
		for range count {
			l, err := s.Lock(ctx, args[1], LockStart)
			if err != nil {
				return err
			}
			task := newTask()
			err = l.AddTask(&task)
			l.Unlock()
			if err != nil {
				return err
			}
			fmt.Println(task.N)
		}
	case "put": // id: rewrites the record and a task until it is killed
		for i := 0; ; i++ {
			if _, err := s.Update(ctx, args[1], func(rec *Session) error {
				rec.Cwd = strings.Repeat("/deep", 200+i%200)
				return nil
			}); err != nil {
				return err
			}
			if err := s.Append(ctx, Event{Event: "put", ID: args[1]}); err != nil {
				return err
			}
		}
	case "hold": // id: says so when it holds the lock, for ever
		if _, err := s.Lock(ctx, args[1], LockChange); err != nil {
			return err
		}
		fmt.Println("held")
		select {}
	default:
		return inNamespace(what, s)
	}
	return nil
}

func helperCommand(t testing.TB, attr *syscall.SysProcAttr, what string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Env = append(os.Environ(), helperEnv+"="+what)
	cmd.SysProcAttr = attr
	cmd.Stderr = os.Stderr
	return cmd
}
