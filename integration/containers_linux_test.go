package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sessionbox/sessionbox/integration/hosts"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// realEngines is a machine with engines on it, each with an image bb.
type realEngines struct {
	r *rig
	// outside is the environment of who has nothing to do with any session: what podman
	// leaves running is his.
	outside []string
}

// realEngines are only on the hosts that are made for it, see hosts.Containers.
func (r *rig) realEngines(tools ...string) *realEngines {
	r.t.Helper()
	if os.Getenv("SESSIONBOX_TEST_CONTAINERS") == "" {
		r.t.Skip("no host with docker and podman: TestSystemdContainers and TestVMContainers run it")
	}
	e := &realEngines{r: r}
	for _, k := range []string{"HOME", "PATH", "USER", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"} {
		if v := os.Getenv(k); v != "" {
			e.outside = append(e.outside, k+"="+v)
		}
	}
	for _, tool := range tools {
		if start := []string{"sudo", "-n", "systemctl", "start", "docker"}; tool == "docker" {
			if os.Geteuid() == 0 {
				start = start[2:]
			}
			e.must(start...)
		}
		if e.run(tool, "images", "-q", "bb") == "" {
			e.must(tool, "import", hosts.ContainersImage, "bb")
		}
	}
	r.t.Cleanup(func() {
		for _, tool := range tools {
			// As nothing else is to be there, everything goes.
			for id := range strings.FieldsSeq(e.run(tool, "ps", "-aq")) {
				e.run(tool, "rm", "-f", id)
			}
		}
	})
	return e
}

func (e *realEngines) command(argv ...string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir = e.outside, "/"
	return cmd
}

func (e *realEngines) must(argv ...string) string {
	e.r.t.Helper()
	out, err := e.command(argv...).CombinedOutput()
	if err != nil {
		e.r.t.Fatalf("%q: %v\n%s", argv, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (e *realEngines) run(argv ...string) string {
	out, _ := e.command(argv...).Output()
	return strings.TrimSpace(string(out))
}

// names are the containers that an engine has.
func (e *realEngines) names(tool string) []string {
	names := strings.Fields(e.run(tool, "ps", "-a", "--format", "{{.Names}}"))
	slices.Sort(names)
	return names
}

// userFlag is what systemd-run and systemctl need to reach the manager of this user.
func userFlag() []string {
	if os.Geteuid() == 0 {
		return nil
	}
	return []string{"--user"}
}

// placing is the tool whose containers can be in a session's slice here: rootless podman's
// in the user's manager, docker's in the system's.
func placing() string {
	if os.Geteuid() == 0 {
		return "docker"
	}
	return "podman"
}

// TestContainers: an agent has containers, units and jobs started in every way; the close
// ends those of its session, and nobody else's, and says what became of each.
func TestContainers(t *testing.T) {
	r := newRig(t)
	e := r.realEngines("docker", "podman")
	for _, tool := range []string{"docker", "podman"} {
		e.must(tool, "run", "-d", "--name", "canary", "--network", "none", "bb", "sleep", "3600")
	}
	e.must("podman", "run", "-d", "--name", "canary2", "--network", "none", "bb", "sleep", "3600") // the session restarts it
	if tierName() != "vm" {
		e.must("podman", "create", "--name", "canary3", "--network", "none", "bb", "sleep", "3600") // and starts this one
	}
	r.tmuxServer() // outside, with a window that must live
	e.must(append(append([]string{"systemd-run"}, userFlag()...), "--unit=sbx-canary", "sleep", "3600")...)
	t.Cleanup(func() { e.run(append(append([]string{"systemctl"}, userFlag()...), "stop", "sbx-canary.service")...) })
	const foreign = "1 1 1 1 * true"
	e.must("sh", "-c", "echo '"+foreign+"' | crontab -")
	t.Cleanup(func() { e.run("crontab", "-r") })
	user := strings.Join(userFlag(), " ")
	id := r.open("containers", "--shims")
	// An emulated guest takes ten seconds for each call of an engine: what does not depend on
	// the kernel is left to the namespaced host.
	whole := tierName() != "vm"
	for _, line := range []string{
		`docker run -d --name plain --network none bb sleep 600`,
		`docker run -d --name deaf --restart=always --network none bb sh -c 'trap "" TERM; while :; do sleep 1; done'`,
		`docker create --name made --network none bb true`,
		`podman run -d --name pplain --network none bb sleep 600`,
		`podman exec -d canary sleep 600`,
		`podman restart --time 0 canary2`,
		`podman start canary3`,
		`/usr/bin/podman run -d --name ppast --network none bb sleep 600`,
		`/usr/bin/docker run -d --name past --network none bb sleep 600`,
		`printf 'services:\n  web:\n    image: bb\n    command: sleep 600\n    network_mode: none\n' >compose.yaml`,
		`if docker compose version >/dev/null 2>&1; then docker compose up -d; fi`,
		`systemd-run ` + user + ` --unit=sbx-again -p Restart=always sleep 600`,
		`systemd-run ` + user + ` --unit=sbx-later --on-active=3600 true`,
		`/usr/bin/systemd-run ` + user + ` --unit=sbx-past sleep 600`,
		`echo 'sleep 600' | at now + 60 minutes`,
		`(crontab -l; echo '5 5 5 5 * true') | crontab -`,
		`tmux -L own -f /dev/null new-session -d 'sleep 600'`,
		`"$SESSIONBOX_BIN" open --shims --name inner`,
		`"$SESSIONBOX_BIN" exec inner -- docker run -d --name nested --network none bb sleep 600`,
	} {
		if !whole && slices.ContainsFunc([]string{"made", "compose", "inner", "canary3"}, func(w string) bool { return strings.Contains(line, w) }) {
			continue
		}
		r.exec(id, "bash", "-c", "cd "+r.home+" && "+line).must(t, 0, line)
	}
	t.Cleanup(func() { e.run(append(append([]string{"systemctl"}, userFlag()...), "stop", "sbx-past.service")...) })
	composed := whole && e.command("docker", "compose", "version").Run() == nil
	box := r.inspect(id).Box.Path
	pid := e.must(placing(), "inspect", "-f", "{{.State.Pid}}", map[string]string{"docker": "plain", "podman": "pplain"}[placing()])
	cg, err := os.ReadFile(filepath.Join("/proc", pid, "cgroup"))
	if err != nil || !strings.Contains(string(cg), "/"+filepath.Base(box)+"/") {
		t.Errorf("a container of %s is not in the session's slice but in %s (%v)", placing(), cg, err)
	}

	// Old podmans (3.0) give their conmon a bare environment: nothing proves then whose it is.
	conmon := e.must("podman", "inspect", "-f", "{{.State.ConmonPid}}", "ppast")
	env, _ := os.ReadFile(filepath.Join("/proc", conmon, "environ"))
	proven := strings.Contains(string(env), session.EnvCookie+"=")

	receipt := r.closed(id, "--grace", "2s")
	want := map[string]string{"plain": "ended", "deaf": "killed", "pplain": "ended", "ppast": "ended", "past": session.FateSuspect}
	if whole {
		want["made"] = session.FateRemoved
	}
	podmans := []string{"canary", "canary2"}
	if whole {
		podmans = append(podmans, "canary3")
	}
	if !proven {
		want["ppast"], podmans = session.FateSuspect, append(podmans, "ppast")
	}
	if composed {
		dir := strings.ToLower(filepath.Base(r.home))
		want[dir+"-web-1"] = "ended"
	}
	for name, fate := range want {
		i := slices.IndexFunc(receipt.Containers, func(c session.HiredContainer) bool { return c.Name == name })
		switch {
		case i < 0:
			t.Errorf("the receipt does not know %s: %+v", name, receipt.Containers)
		case fate == "ended" && receipt.Containers[i].Fate == "killed": // with the box, when the engine was slower
		case receipt.Containers[i].Fate != fate:
			t.Errorf("%s: %+v, want %s", name, receipt.Containers[i], fate)
		}
	}
	if whole && (len(receipt.Nested) != 1 || len(receipt.Nested[0].Containers) == 0 || receipt.Nested[0].Containers[0].Name != "nested") {
		t.Errorf("the receipt of the session inside: %+v", receipt.Nested)
	}
	if got := e.names("docker"); !slices.Equal(got, []string{"canary", "past"}) {
		t.Errorf("docker has %q left", got)
	}
	if got := e.names("podman"); !slices.Equal(got, podmans) {
		t.Errorf("podman has %q left", got)
	}
	for _, tool := range []string{"docker", "podman"} {
		if got := e.must(tool, "exec", "canary", "echo", "alive"); got != "alive" {
			t.Errorf("the canary of %s says %q", tool, got)
		}
	}
	// What the session has restarted or started is stopped with it, as podman's process beside it
	// was the session's, and is there for whoever made it.
	for _, name := range []string{"canary2", "canary3"} {
		if !slices.Contains(podmans, name) {
			continue
		}
		i := slices.IndexFunc(receipt.Containers, func(c session.HiredContainer) bool { return c.Name == name })
		if proven && (i < 0 || receipt.Containers[i].Why == "") {
			t.Errorf("the receipt says of %s: %+v", name, receipt.Containers)
		}
		e.must("podman", "start", name)
		if got := e.must("podman", "exec", name, "echo", "alive"); got != "alive" {
			t.Errorf("%s, which the session has started, says %q", name, got)
		}
	}
	units := map[string]string{}
	for _, u := range receipt.Units {
		units[u.Name] = u.Fate
	}
	for name, fates := range map[string][]string{"sbx-again.service": {"ended", "killed"}, "sbx-later.timer": {"ended", "killed"}, "sbx-past.service": {session.FateSuspect}} {
		if !slices.Contains(fates, units[name]) {
			t.Errorf("unit %s: %q, want one of %q", name, units[name], fates)
		}
	}
	state := func(unit string) string {
		return e.run(append(append([]string{"systemctl"}, userFlag()...), "is-active", unit)...)
	}
	for unit, want := range map[string]bool{"sbx-again.service": false, "sbx-later.timer": false, "sbx-past.service": true, "sbx-canary.service": true} {
		if got := state(unit); (got == "active") != want {
			t.Errorf("unit %s is %s", unit, got)
		}
	}
	if len(receipt.Jobs) != 2 || receipt.Jobs[0].Fate != session.FateRemoved || receipt.Jobs[1].Fate != session.FateRemoved {
		t.Errorf("jobs: %+v", receipt.Jobs)
	}
	if queued, table := e.run("atq"), e.run("crontab", "-l"); queued != "" || table != foreign {
		t.Errorf("queued: %q; crontab: %q", queued, table)
	}
	// And podman still works for everybody else.
	if got := e.must("podman", "run", "--rm", "--network", "none", "bb", "echo", "works"); got != "works" {
		t.Errorf("podman afterwards: %q", got)
	}
}

// TestContainerMemory: a container that a session started counts against the session's
// ceiling, and what the kernel kills in it there is told as the session's.
func TestContainerMemory(t *testing.T) {
	r := newRig(t)
	r.realEngines(placing())
	id := r.open("ceiling", "--shims", "--memory-max", "96M", "--swap-max", "0")
	if i := r.inspect(id); len(i.Limits) == 0 || !i.Limits[0].InForce {
		t.Skipf("no memory ceiling here: %+v", i.Limits)
	}
	o := r.exec(id, placing(), "run", "--name", "hog", "--network", "none", "bb", "dd", "if=/dev/zero", "of=/dev/null", "bs=256M", "count=1")
	if o.code == 0 {
		t.Fatalf("256 MiB fit below a ceiling of 96: %s", o.stdout)
	}
	if i := r.inspect(id); i.OOM == nil || !strings.Contains(i.OOM.String(), "limit of ceiling") {
		t.Errorf("inspect does not tell that the kernel killed in the session: %v", i.OOM)
	}
	receipt := r.closed(id, graceFlags()...)
	if receipt.OOM == nil {
		t.Error("the receipt does not tell that the kernel killed for want of memory")
	}
}
