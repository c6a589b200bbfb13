// Command demo shows the main job on this machine: a session that leaves three
// processes behind, each in a way that process-group cleaners miss, and a close
// that ends them and says so. It prints each command before it runs it.
//
//	go run ./integration/demo bin/sessionbox
package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "serve" {
		serve()
		return
	}
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: demo PATH-OF-SESSIONBOX")
		os.Exit(2)
	}
	if err := demo(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// demo is the story; the last step proves that nothing is left.
func demo(bin string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	name := fmt.Sprintf("demo-%d", os.Getpid())
	show := strings.NewReplacer(bin, "sessionbox", self, "dev-server")
	run := func(args ...string) error {
		cmd := exec.Command(bin, args...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		fmt.Printf("\n$ %s\n", show.Replace(shell(append([]string{bin}, args...))))
		return cmd.Run()
	}
	if err := run("open", "--name", name, "--grace", "2s"); err != nil {
		return err
	}
	defer exec.Command(bin, "close", "--now", name).Run() // when a step fails
	for _, script := range []string{
		"setsid sleep 600 </dev/null >/dev/null 2>&1 &",
		"( ( sleep 601 </dev/null >/dev/null 2>&1 & ) & )",
		self + " serve >/dev/null 2>&1 &",
	} {
		if err := run("exec", name, "--", "sh", "-c", script); err != nil {
			return err
		}
	}
	pids, err := settled(bin, name)
	if err != nil {
		return err
	}
	if err := run("ls"); err != nil {
		return err
	}
	if err := run("close", name); err != nil {
		return err
	}
	if err := run("ls"); err != nil {
		return err
	}
	for _, pid := range pids {
		if running(pid) {
			return fmt.Errorf("process %d is still there", pid)
		}
	}
	fmt.Printf("\nAll %d processes are gone.\n", len(pids))
	return nil
}

// shell writes a command line as one would type it.
func shell(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = a
		if strings.ContainsAny(a, " <>&()") {
			words[i] = "'" + a + "'"
		}
	}
	return strings.Join(words, " ")
}

// running says whether a process runs; a zombie that init has not reaped yet does
// not.
func running(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// settled waits until the three are there and gives their pids.
func settled(bin, name string) ([]int, error) {
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		out, err := exec.Command(bin, "ps", "--json", name).Output()
		if err != nil {
			return nil, fmt.Errorf("sessionbox ps: %w", err)
		}
		pids, listening := processes(out)
		if len(pids) == 3 && listening {
			return pids, nil
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("the three processes did not come up: %s", out)
		}
	}
}

// serve is a dev server: it holds a port and ignores being asked to stop.
func serve() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer l.Close()
	time.Sleep(10 * time.Minute)
}
