package hosts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
)

// CheckCgroup returns why this machine has no cgroup v2 tree that tests can use;
// nil when it has one.
func CheckCgroup() error {
	if os.Geteuid() != 0 {
		return errors.New("not root")
	}
	g, err := newGroup()
	if err != nil {
		return err
	}
	_, statErr := os.Stat(filepath.Join(g.path, "cgroup.kill"))
	if statErr != nil {
		// Not close, which would need the file that is missing.
		return errors.Join(fmt.Errorf("this kernel has no cgroup.kill: %w", statErr), g.remove())
	}
	return g.close()
}

// CheckSystemd returns why this machine cannot run a namespaced systemd host; nil
// when it can. It installs missing packages where it may.
func CheckSystemd(ctx context.Context, log io.Writer) error {
	if err := CheckCgroup(); err != nil {
		return err
	}
	if err := checkNamespaces(ctx); err != nil {
		return err
	}
	return ensureTools(ctx, concatTools(buildTools(), systemdTools()), log)
}

// checkNamespaces returns why root here may not make the namespaces of a host, as in
// most containers.
func checkNamespaces(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", "mount --make-rprivate / && mount -t tmpfs none /mnt")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("no namespaces to be had: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// CheckVM returns why this machine cannot run a QEMU guest; nil when it can. It
// installs missing packages where it may.
func CheckVM(ctx context.Context, log io.Writer) error {
	if runtime.GOARCH != "amd64" {
		return errors.New("guests are amd64, and so are the programs they run")
	}
	if err := CheckCgroup(); err != nil {
		return err
	}
	return ensureTools(ctx, concatTools(buildTools(), vmTools()), log)
}

func concatTools(a, b []tool) []tool {
	return slices.Concat(a, b)
}
