package doors

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// asUser makes this program, as the user that it is started as, print what a probe with the
// records in a directory finds.
const asUser = "probe-as-user"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Arg {
		os.Exit(Main(os.Args[2:]))
	}
	if len(os.Args) == 3 && os.Args[1] == asUser {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		doors, err := Probe(ctx, os.Args[0], Order{Records: os.Args[2]}, os.Environ())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		json.NewEncoder(os.Stdout).Encode(doors)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// user is who has no privileges.
const user = 65534

// TestProbeAsUser: a directory that is another user's keeps nobody from closing his doors,
// one for records that can be put elsewhere is held, and where that cannot be it is said.
func TestProbeAsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be two users")
	}
	dir, err := os.MkdirTemp("", "doors-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	self := filepath.Join(dir, "self")
	copyFile(t, self)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	foreign, home := filepath.Join(dir, "foreign"), filepath.Join(dir, "home")
	state := filepath.Join(home, "sub", "state")
	for _, d := range []string{filepath.Join(foreign, "sessionbox", "sessions"), filepath.Join(state, "sessions"), filepath.Join(state, "names")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{home, filepath.Dir(state), state, filepath.Join(state, "sessions"), filepath.Join(state, "names")} {
		if err := os.Chown(d, user, user); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("sub", filepath.Join(home, "link")); err != nil {
		t.Fatal(err)
	}
	for at, closed := range map[string]bool{state: true, filepath.Join(home, "link", "state"): false} {
		cmd := exec.Command(self, asUser, at)
		cmd.Dir, cmd.Env = "/", []string{"XDG_RUNTIME_DIR=" + foreign, "HOME=" + home}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		var doors []Door
		if err := json.Unmarshal(out, &doors); err != nil {
			t.Fatal(err)
		}
		for _, d := range doors[:len(doors)-len(Open())] {
			if want := d.Name != Records || closed; d.Closed != want {
				t.Errorf("records in %s: %s: closed %v, %s", at, d.Name, d.Closed, d.Text)
			}
		}
	}
}

func copyFile(t *testing.T, to string) {
	t.Helper()
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err == nil {
		_, err = io.Copy(f, from)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}
