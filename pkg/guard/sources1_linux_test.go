package guard

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// The memory of a session that has a group of cgroup v1 to itself is that of the group,
// and the sum again when it has not any more.
func TestAlone1(t *testing.T) {
	h, err := cgroup.FindMemory1()
	if err != nil {
		t.Skip(err)
	}
	own, err := h.Dir(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(own, "sbxtest-guard-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip(err) // not ours to write
	}
	cmd := exec.Command("sh", "-c", `echo $$ >"$0"; exec sleep 600`, filepath.Join(dir, "cgroup.procs"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Signal(unix.SIGKILL)
		cmd.Wait()
		os.Remove(dir)
	}()
	all := []memlimit.Process{{PID: cmd.Process.Pid, Anon: 1 << 20}}
	for began := time.Now(); !h.Alone(dir, all) && time.Since(began) < 10*time.Second; time.Sleep(time.Millisecond) {
		continue // until it is there
	}
	a := &alone1{hierarchy: h}
	defer a.close()
	a.find(all, 1)
	got := memlimit.Sample{At: 5, Frozen: true, Pressure: memlimit.Pressure{Some: 3}}
	if !a.sample(&got) || got.Tier != memlimit.TierCgroupV1 || got.Hard == 0 || got.At != 5 || !got.Frozen || got.Pressure.Some != 3 {
		t.Errorf("%+v", got)
	}
	a.find([]memlimit.Process{{PID: os.Getpid(), Anon: 1 << 20}}, 2)
	if a.sample(&got) {
		t.Error("a group that it shares is taken for its own")
	}
}
