package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// terminals are those behind a pseudo terminal, where a hang-up reaches the leader
// and the foreground group at most.
func terminals() []technique {
	return []technique{
		{ID: "E16b", Description: "stopped by SIGTTIN: background read of the terminal", Payloads: 2, Still: true, SeenBy: "EC",
			RootExits: false, Expect: dies, run: func(p params) error { return ptyHost(p, "ttyreader", true) }},
		{ID: "E22", Description: "background job of a shell on a terminal whose master was closed", Payloads: 1, SeenBy: "EC",
			RootExits: true, Expect: dies, run: func(p params) error { return ptyHost(p, "payload", false) }},
		{ID: "E22b", Description: "slave as descriptors 0 to 2, not the controlling terminal: no hang-up", Payloads: 1, SeenBy: "EC",
			RootExits: true, Expect: dies, run: slaveHolder},
	}
}

// openPty opens a new pair through /dev/ptmx.
func openPty() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, fmt.Errorf("unlock pty: %w", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, fmt.Errorf("number of pty: %w", err)
	}
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	return master, slave, err
}

// ptyHost starts a shell on a terminal that starts job in the background. It stays
// with the master open, or closes it when the job is there and exits.
func ptyHost(p params, job string, stay bool) error {
	master, slave, err := openPty()
	if err != nil {
		return err
	}
	shell, err := spawn("ptyshell", p.with(job), how{
		attr: syscall.SysProcAttr{Setsid: true, Setctty: true}, stdio: slave})
	if err != nil {
		return err
	}
	if err := waitUntil(10*time.Second, "background job", func() bool { return recorded(p, p.label) > 0 }); err != nil {
		return err
	}
	if stay {
		slave.Close()
		time.Sleep(time.Until(p.until))
		_ = shell.Kill() // a stopped orphan of the terminal gets HUP and CONT with it
		return master.Close()
	}
	slave.Close()
	if err := master.Close(); err != nil {
		return err
	}
	_, err = shell.Wait()
	return err
}

// runPtyShell is the interactive shell: leader of the terminal's session, one job in
// a group of its own in the background. It ends at the hang-up; the job does not hear
// it.
func runPtyShell(p params) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	job := p.arg
	start := payload
	if job != "payload" {
		start = func(p params, h how) (*os.Process, error) { return spawn(job, p, h) }
	}
	proc, err := start(p, how{attr: syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		return err
	}
	if job == "ttyreader" {
		if _, err := spawn("reaper", p.called("reaper").with(strconv.Itoa(proc.Pid)), session()); err != nil {
			return err
		}
	}
	select {
	case <-hangup:
	case <-time.After(time.Until(p.until)):
	}
	return nil
}

// runTTYReader reads the terminal from a background group and is stopped for it. One
// thread ticks before that.
func runTTYReader(p params) error {
	t, err := begin(p)
	if err != nil {
		return err
	}
	t.once(p)
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return err
	}
	defer tty.Close()
	_, err = tty.Read(make([]byte, 1))
	return err
}

// slaveHolder leaves a session of its own on a terminal that nobody else has open.
func slaveHolder(p params) error {
	master, slave, err := openPty()
	if err != nil {
		return err
	}
	defer master.Close()
	defer slave.Close()
	return leave(p, how{attr: syscall.SysProcAttr{Setsid: true}, stdio: slave})
}
