package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"
)

// hired are started by somebody else, on request: they never were in the box.
func hired() []technique {
	return []technique{
		{ID: "E29", Description: "transient service: systemd-run", Payloads: 1, SeenBy: "", Needs: []string{"systemd"},
			RootExits: true, Expect: reported, run: service},
		{ID: "E29b", Description: "at now: atd replays the environment, cookie included", Payloads: 1, SeenBy: "E", Needs: []string{"at"},
			RootExits: true, Expect: stray, run: viaAt},
		{ID: "E29c", Description: "ssh to the same machine", Payloads: 1, SeenBy: "", Needs: []string{"ssh"}, Fixtures: []string{"ssh"},
			RootExits: true, Expect: reported, run: viaSSH},
		{ID: "E30", Description: "container daemon: work started on request over a socket", Payloads: 1, SeenBy: "", Fixtures: []string{"daemon"},
			RootExits: true, Expect: reported, run: viaDaemon},
	}
}

// service has the manager start a payload; its environment is the manager's.
func service(p params) error {
	args := append(managerFlags(), "--quiet", "--collect", "--unit", unitName("service"), self(), "payload")
	if err := run("systemd-run", append(args, p.args()...)...); err != nil {
		return err
	}
	return waitUntil(20*time.Second, "payload in a service", func() bool { return recorded(p, p.label) > 0 })
}

// viaAt queues a job for now.
func viaAt(p params) error {
	line, err := p.shellLine()
	if err != nil {
		return err
	}
	cmd := exec.Command("at", "now")
	cmd.Stdin = strings.NewReader(line + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("at: %w: %s", err, out)
	}
	return waitUntil(90*time.Second, "payload of at", func() bool { return recorded(p, p.label) > 0 })
}

// viaSSH logs in again.
func viaSSH(p params) error {
	line, err := p.shellLine()
	if err != nil {
		return err
	}
	if err := run("ssh", "-n", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", p.ssh,
		"nohup "+line+" >/dev/null 2>&1 </dev/null &"); err != nil {
		return err
	}
	return waitUntil(20*time.Second, "payload of ssh", func() bool { return recorded(p, p.label) > 0 })
}

// viaDaemon sends the daemon one line of JSON: the argv to start.
func viaDaemon(p params) error {
	c, err := net.DialTimeout("unix", p.socket, 10*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := json.NewEncoder(c).Encode(append([]string{self(), "payload"}, p.args()...)); err != nil {
		return err
	}
	answer, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || strings.TrimSpace(answer) != "started" {
		return fmt.Errorf("daemon answered %q: %w", answer, err)
	}
	return waitUntil(10*time.Second, "payload of the daemon", func() bool { return recorded(p, p.label) > 0 })
}

// runDaemon is a container daemon as far as the process tree is concerned: it starts
// what a client asks for, as its own child, with its own environment. It ticks, for
// it is a canary as well.
func runDaemon(p params) error {
	l, err := net.Listen("unix", p.socket)
	if err != nil {
		return err
	}
	// The socket file is removed with the directory of the test.
	go func() {
		for range 1000 {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
		}
	}()
	return runPayload(p)
}

// runClient stays connected to a daemon, and ticks.
func runClient(p params) error {
	c, err := net.DialTimeout("unix", p.socket, 10*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	return runPayload(p)
}

// serve starts the argv of one request.
func serve(c net.Conn) {
	defer c.Close()
	var argv []string
	if err := json.NewDecoder(c).Decode(&argv); err != nil || len(argv) == 0 {
		fmt.Fprintln(c, "bad request")
		return
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	attr := session().attr
	cmd.SysProcAttr = &attr
	cmd.Env = os.Environ()
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(c, err)
		return
	}
	go func() { _ = cmd.Wait() }()
	fmt.Fprintln(c, "started")
}
