package proc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// knowsExits skips the test where the kernel cannot tell, if it is not new enough to.
func knowsExits(t *testing.T) {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PIDFD_GET_INFO, uintptr(unsafe.Pointer(&info)))
	if errno != 0 || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		var u unix.Utsname
		var major, minor int
		unix.Uname(&u)
		if n, _ := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); n == 2 && (major > 6 || major == 6 && minor >= 15) {
			t.Fatalf("kernel %d.%d must tell the exit status of a pidfd: %v, mask %#x", major, minor, errno, info.Mask)
		}
		t.Skipf("the kernel does not tell the exit status of a pidfd (6.15 does): %v, mask %#x", errno, info.Mask)
	}
}

// grandchild starts sh with a script as somebody else's child, who leaves it when told.
func grandchild(t *testing.T, script string) (id ID, release func()) {
	t.Helper()
	parent := exec.Command("sh", "-c", `sh -c "$0" & echo $!; read x; wait $!`, script)
	in, err := parent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { parent.Process.Kill(); parent.Wait() })
	line := make([]byte, 32)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
	if err != nil {
		t.Fatal(err)
	}
	if id, err = Lookup(pid); err != nil {
		t.Fatal(err)
	}
	return id, func() { in.Close() }
}

func TestExitStatus(t *testing.T) {
	for _, tt := range []struct {
		script string
		want   syscall.WaitStatus
	}{
		{"sleep 0.2; exit 0", 0},
		{"sleep 0.2; exit 7", 7 << 8},
		{"sleep 0.2; kill -KILL $$", syscall.WaitStatus(syscall.SIGKILL)},
		{"sleep 0.2; kill -TERM $$", syscall.WaitStatus(syscall.SIGTERM)},
	} {
		t.Run(tt.script, func(t *testing.T) {
			id, release := grandchild(t, tt.script)
			h, err := Open(id)
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			if ws, ok := h.ExitStatus(); ok {
				t.Errorf("of a living process: %v", ws)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := h.Wait(ctx); err != nil {
				t.Fatal(err)
			}
			if ws, ok := h.ExitStatus(); !ok || ws != tt.want {
				t.Errorf("of a zombie: ExitStatus = %#x, %v; want %#x", ws, ok, tt.want)
			}
			knowsExits(t)
			release()
			for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if _, err := ReadStat(id.PID); err != nil {
					break
				}
			}
			ws, ok := h.ExitStatus()
			if !ok || ws != tt.want {
				t.Errorf("after it was reaped: ExitStatus = %#x, %v; want %#x", ws, ok, tt.want)
			}
		})
	}
}

// The status of a process is the one it gave to exit, not that of its main thread.
func TestExitStatusWithoutLeader(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SBX_HEADLESS=1", "SBX_HEADLESS_EXIT=7")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := Lookup(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	h, err := Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	time.Sleep(100 * time.Millisecond) // its main thread has ended, the other one has not
	if ws, ok := h.ExitStatus(); ok {
		t.Errorf("without its main thread: %#x", ws)
	}
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ws, ok := h.ExitStatus(); !ok || ws.ExitStatus() != 7 {
		t.Errorf("of a zombie: ExitStatus = %#x, %v; want exit 7", ws, ok)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("it ended with status 0")
	}
	knowsExits(t)
	if ws, ok := h.ExitStatus(); !ok || ws.ExitStatus() != 7 {
		t.Errorf("ExitStatus = %#x, %v; want exit 7", ws, ok)
	}
}

// Who may not trace a zombie sees 0 for its status, which is not taken for one.
func TestExitStatusOfAnother(t *testing.T) {
	if os.Getenv("SBX_ANOTHER") == "" {
		if os.Geteuid() != 0 {
			t.Skip("only root makes a process of another user")
		}
		cmd := exec.Command("sh", "-c", "sleep 0.2; exit 7")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		id, err := Lookup(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		out, err := as(65534, "SBX_ANOTHER="+strconv.Itoa(id.PID), t.Name())
		cmd.Wait()
		if err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	pid, err := strconv.Atoi(os.Getenv("SBX_ANOTHER"))
	if err != nil {
		t.Fatal(err)
	}
	id, err := Lookup(pid)
	if err != nil {
		t.Fatal(err)
	}
	h, err := Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ws, ok := h.ExitStatus(); ok {
		t.Errorf("ExitStatus = %#x of another user's zombie; want none", ws)
	}
	if st, err := ReadStat(pid); err != nil || st.ExitCode != 0 {
		t.Errorf("what it guards against: %+v, %v; want 0", st, err)
	}
}

// as runs one test of this program as another user.
func as(uid uint32, env, test string) ([]byte, error) {
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd.CombinedOutput()
}

// A descriptor that is none knows nothing.
func TestExitStatusOfNothing(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := &Handle{fd: int(f.Fd())}
	if ws, ok := h.ExitStatus(); ok {
		t.Errorf("of /dev/null: %v", ws)
	}
}
