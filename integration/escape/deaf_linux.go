package main

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// deaf are those that do not hear a polite request, or whose parents hear it alone.
func deaf() []technique {
	return []technique{
		{ID: "E08", Description: "wrapper that dies alone: its shell and server live on", Payloads: 1, SeenBy: "GSEC", Needs: []string{"sh"},
			RootExits: true, Expect: dies, run: deafWrapper},
		{ID: "E09", Description: "immune to TERM, HUP, INT and QUIT", Payloads: 1, SeenBy: "EC",
			RootExits: true, Expect: dies, run: func(p params) error { return leave(p.deaf("TERM", "HUP", "INT", "QUIT"), session()) }},
		{ID: "E10", Description: "polite leader, immune child: the group's number names nobody", Payloads: 2, SeenBy: "EC",
			RootExits: true, Expect: dies, run: polite},
		{ID: "E11", Description: "late spawn: TERM makes the root start a new one", Payloads: 1, SeenBy: "EC",
			RootExits: false, Expect: dies, run: lateSpawn},
		{ID: "E12", Description: "respawner: what is killed comes back", Payloads: 3, SeenBy: "EC",
			RootExits: true, Expect: dies, run: respawn},
	}
}

// deafWrapper stops its wrapper the way a harness with one pid does.
func deafWrapper(p params) error {
	w, err := spawn("wrapper", p, how{})
	if err != nil {
		return err
	}
	if err := waitUntil(10*time.Second, "payload", func() bool { return recorded(p, p.label) > 0 }); err != nil {
		return err
	}
	if err := w.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	_, err = w.Wait()
	return err
}

// runWrapper is "sh -c 'server; true'" below a program that just waits.
func runWrapper(p params) error {
	line, err := p.shellLine()
	if err != nil {
		return err
	}
	cmd := exec.Command("sh", "-c", line+"; true")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// polite ends the leader of a group by TERM to the group; its child stays in a group
// whose number no longer belongs to a process.
func polite(p params) error {
	leader, err := spawn("politeleader", p, session())
	if err != nil {
		return err
	}
	if err := waitUntil(10*time.Second, "leader and child", func() bool {
		return recorded(p, "leader") > 0 && recorded(p, p.label) > 0
	}); err != nil {
		return err
	}
	if err := syscall.Kill(-leader.Pid, syscall.SIGTERM); err != nil {
		return err
	}
	_, err = leader.Wait()
	return err
}

func runPoliteLeader(p params) error {
	if _, err := payload(p.deaf("TERM"), how{null: true}); err != nil {
		return err
	}
	return runPayload(p.called("leader"))
}

// lateSpawn answers TERM with one more process that is out of the group.
func lateSpawn(p params) error {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	t, err := begin(p)
	if err != nil {
		return err
	}
	for time.Now().Before(p.until) {
		select {
		case <-asked:
			return leave(p.called("late"), session())
		case <-time.After(tick):
			t.once(p)
		}
	}
	return nil
}

// respawn leaves a respawner and kills its server once, to see that it returns.
func respawn(p params) error {
	_, err := spawn("respawner", p, session())
	return err
}

// runRespawner starts its server anew 200 ms after each death, and kills the first
// one itself.
func runRespawner(p params) error {
	if err := record(p.called("respawner")); err != nil {
		return err
	}
	for n := 0; time.Now().Before(p.until); n++ {
		server, err := payload(p, how{})
		if err != nil {
			return err
		}
		if n == 0 {
			if err := waitUntil(10*time.Second, "server", func() bool { return recorded(p, p.label) > 0 }); err != nil {
				return err
			}
			if err := server.Kill(); err != nil {
				return err
			}
		}
		_, _ = server.Wait()
		time.Sleep(200 * time.Millisecond)
	}
	return nil
}
