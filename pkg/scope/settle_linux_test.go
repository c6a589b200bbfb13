package scope

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/internal/testcgroup"
)

// A manager that is slow puts the anchor into its unit's directory once more when that
// has run for a while. The anchor waits for it to be through.
func TestSettleAgainstSlowManager(t *testing.T) {
	unit, err := testcgroup.Root(t).Ensure("unit")
	if err != nil {
		t.Fatal(err)
	}
	defer unit.Close()
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fd, err := unix.Open(unit.Path(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	anchor := exec.Command(os.Args[0], "__anchor")
	anchor.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket)
	anchor.Stderr = os.Stderr
	anchor.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
	if err := anchor.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		anchor.Process.Kill()
		anchor.Wait()
	}()
	for slow := true; ; slow = false {
		buf, oob := make([]byte, 256), make([]byte, 256)
		conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		n, m, _, _, err := conn.ReadMsgUnix(buf, oob)
		if err != nil {
			t.Fatal(err)
		}
		if slow {
			time.Sleep(200 * time.Millisecond)
			if err := unit.Add(anchor.Process.Pid); err != nil {
				t.Fatal(err)
			}
		}
		closeRights(t, oob[:m])
		if strings.Contains(string(buf[:n]), "READY=1") {
			break
		}
	}
	leaf, err := unit.Child(cgroup.AnchorLeaf)
	if err != nil {
		t.Fatal(err)
	}
	defer leaf.Close()
	if err := leaf.Verify(anchor.Process.Pid); err != nil {
		t.Errorf("the anchor says that it is ready: %v", err)
	}
}

// closeRights closes the descriptors that came with a message.
func closeRights(t *testing.T, oob []byte) {
	t.Helper()
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
}
