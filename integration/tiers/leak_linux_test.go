package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A process that left its group, session and parent is still found by its cookie,
// and ended.
func TestLeakedProcessIsFoundAndEnded(t *testing.T) {
	w := &leakWatch{cookie: newCookie()}
	in, toCat, err1 := os.Pipe()
	fromCat, out, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{in, toCat, fromCat, out} {
		defer f.Close() // not before: at the end of its input cat ends by itself
	}
	cmd := exec.Command("sh", "-c", "setsid cat <&3 >&4 &")
	cmd.Env = append(os.Environ(), w.env())
	cmd.ExtraFiles = []*os.File{in, out}
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	// What answers has got through fork and exec.
	if _, err := toCat.WriteString("?"); err != nil {
		t.Fatal(err)
	}
	if _, err := fromCat.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}

	var log strings.Builder
	leaks := w.find(false, &log)
	if len(leaks) != 1 || !strings.Contains(leaks[0], "(cat)") {
		t.Errorf("leaks = %q, %s; want the cat", leaks, log.String())
	}
	w.patience = leakPatience // a killed process takes its time
	if again := w.find(false, &log); len(again) != 0 {
		t.Errorf("after it was ended: %q, %s", again, log.String())
	}
}

func TestCookieOfAnotherIsNoLeak(t *testing.T) {
	w := &leakWatch{cookie: newCookie()}
	cmd := exec.Command("sleep", "600")
	cmd.Env = append(os.Environ(), w.env()+"x")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // ours, and not waited for yet
		_ = cmd.Wait()
	}()
	if leaks := w.processes(); len(leaks) != 0 {
		t.Errorf("processes = %v, want none", leaks)
	}
}
