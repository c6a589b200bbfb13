package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

func TestParseMemory1(t *testing.T) {
	const hybrid = `31 24 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/x /sys/fs/cgroup/mem\040ory rw,relatime - cgroup cgroup rw,memory
`
	m, err := parseMemory1([]byte(hybrid))
	if want := (Mount{Point: "/sys/fs/cgroup/mem ory", Root: "/docker/x"}); err != nil || m.mount != want {
		t.Errorf("%+v, %v; want %+v", m.mount, err, want)
	}
	for _, text := range []string{"", "31 24 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,memory_recursiveprot\n", "x\n", "1 2 3 / /x rw - cgroup cgroup rw,memoryless\n"} {
		if m, err := parseMemory1([]byte(text)); !errors.Is(err, ErrNoMemory) {
			t.Errorf("%q: %+v, %v", text, m, err)
		}
	}
}

// A group counts for a session only while nobody else is in it.
func TestMemory1Alone(t *testing.T) {
	m, err := FindMemory1()
	if err != nil {
		t.Skip(err)
	}
	own, err := m.Dir(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(own, "sbxtest-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip(err) // not ours to write
	}
	defer os.Remove(dir)
	start := func() int {
		t.Helper()
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Signal(unix.SIGKILL)
			cmd.Wait()
			os.Remove(dir)
		})
		return cmd.Process.Pid
	}
	put := func(pid int) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	a, b := start(), start()
	all := []memlimit.Process{{PID: a, Anon: 64 << 20}, {PID: b, Anon: 1 << 20}}
	if m.Alone(dir, all) || m.Alone(own, all) {
		t.Error("with none of them in it, or with others, it is theirs")
	}
	put(a)
	if got, err := m.Dir(a); err != nil || got != dir {
		t.Errorf("it lies in %s, %v", got, err)
	}
	if !m.Alone(dir, all) {
		t.Error("with the one that holds nearly all it is not theirs")
	}
	all[1].Anon = 32 << 20
	if m.Alone(dir, all) {
		t.Error("it is theirs though another holds half as much outside")
	}
	put(b)
	if !m.Alone(dir, all) {
		t.Error("with both in it it is not theirs")
	}
	put(start())
	if m.Alone(dir, all) {
		t.Error("with a stranger in it it is theirs")
	}
}
