package hosts

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// openConsole opens a new terminal for a host to have as its console, and copies what
// is written to it to log until the last who holds it is gone. systemd takes nothing
// but a terminal for a console, and without one a failed boot says nothing.
func openConsole(log io.Writer) (*os.File, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a console: %w", err)
	}
	slave, err := openSlave(master)
	if err != nil {
		master.Close()
		return nil, fmt.Errorf("open a console: %w", err)
	}
	go func() {
		defer master.Close()
		// It ends with EIO when nobody holds the other side any more.
		_, _ = io.Copy(log, master)
	}()
	return slave, nil
}

func openSlave(master *os.File) (*os.File, error) {
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, os.NewSyscallError("TIOCSPTLCK", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, os.NewSyscallError("TIOCGPTN", err)
	}
	return os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
}
