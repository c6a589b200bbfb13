package integration_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/guard"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// TestGuardInstall: an installed guard takes over from one that runs on demand, is not
// touched by what is wrong, is started anew when it is killed, and gives way to one on
// demand when it is removed. At no time there are two.
func TestGuardInstall(t *testing.T) {
	r := newRig(t)
	if r.box != "systemd" {
		t.Skip("an installed guard is a service of a systemd manager: tier systemd has one")
	}
	r.guarded()
	r.env = append(r.env, "XDG_CONFIG_HOME=")
	var flags []string
	if os.Geteuid() == 0 {
		flags = []string{"--system"}
	}
	install := func(code int, more ...string) (i guard.Installed) {
		t.Helper()
		o := r.run(append(append([]string{"guard", "install", "--json"}, flags...), more...)...).must(t, code, "guard install")
		if code == 0 {
			if err := json.Unmarshal(o.stdout, &i); err != nil {
				t.Fatal(err)
			}
		}
		return i
	}
	defer install(0, "--uninstall")
	doctor := func() (text string) {
		t.Helper()
		var checks []session.Check
		if err := json.Unmarshal(r.run("doctor", "--json").stdout, &checks); err != nil {
			t.Fatal(err)
		}
		for _, c := range checks {
			if c.Name == "guard" {
				text = c.Text
			}
		}
		return text
	}
	owner := r.owner()
	id := r.open("work", "--owner-pid", owner.pid(), "--grace", "0.2")
	first, ok := r.guard()
	if !ok {
		t.Fatal("no guard was started on demand")
	}
	if i := install(0); i.Action != "installed" || !i.Running || len(i.Commands) > 0 || !exists(i.Path) {
		t.Errorf("%+v", i)
	}
	second, ok := r.guard()
	if !ok || second == first {
		t.Fatalf("after the install the guard is %v (%s), was %v", second, doctor(), first)
	}
	eventually(t, "the end of the guard that gave up the lock", func() bool { return !first.alive() })
	if i := install(0); i.Action != "unchanged" {
		t.Errorf("twice: %+v", i)
	}
	r.run("guard").must(t, 7, "a guard beside it")
	config := filepath.Join(r.home, "config", "sessionbox")
	if err := os.MkdirAll(config, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(config, "config.toml"), []byte("nonsense"), 0o644); err != nil {
		t.Fatal(err)
	}
	fine := r.env
	r.env = append(slices.Clip(r.env), "XDG_CONFIG_HOME="+filepath.Dir(config))
	install(2, "--metrics", "127.0.0.1:9499")
	r.env = fine
	if now, ok := r.guard(); !ok || now != second {
		t.Errorf("a broken config has changed the guard: %v, was %v", now, second)
	}
	if err := second.kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the guard to be started anew", func() bool { now, ok := r.guard(); return ok && now != second })
	owner.die()
	eventually(t, "the session to be closed", func() bool { return !exists(r.sessionRecord(id)) })

	other := r.owner()
	r.open("next", "--owner-pid", other.pid())
	third, _ := r.guard()
	if i := install(0, "--uninstall"); i.Action != "removed" || exists(i.Path) {
		t.Errorf("%+v", i)
	}
	if last, ok := r.guard(); !ok || last == third {
		t.Errorf("after it was removed the guard is %v (%s), was %v", last, doctor(), third)
	}
	eventually(t, "the end of the guard that was removed", func() bool { return !third.alive() })
	if i := install(0, "--uninstall"); i.Action != "absent" {
		t.Errorf("twice: %+v", i)
	}
	r.closed("next")
	other.die()
}
