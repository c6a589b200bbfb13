package hosts

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A tool is a program of the machine, and the Debian package that has it.
type tool struct {
	program, pkg string
}

func buildTools() []tool {
	return []tool{{"debootstrap", "debootstrap"}, {"chroot", "coreutils"}}
}

func systemdTools() []tool {
	return []tool{{"nsenter", "util-linux"}, {"setpriv", "util-linux"}, {"mount", "mount"}, {"pivot_root", "util-linux"}, {"chroot", "coreutils"}}
}

func vmTools() []tool {
	return []tool{{"qemu-system-x86_64", "qemu-system-x86"}, {"mke2fs", "e2fsprogs"}}
}

// find returns where a program is. Root's PATH does not always name the sbin
// directories, which is where half of these live.
func (t tool) find() (string, error) {
	if path, err := exec.LookPath(t.program); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/bin", "/bin"} {
		if path, err := exec.LookPath(filepath.Join(dir, t.program)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed", t.program)
}

// ensureTools installs what is missing where that is possible without asking (root
// on Debian), and says what is missing otherwise.
func ensureTools(ctx context.Context, tools []tool, log io.Writer) error {
	var (
		packages []string
		missing  error
	)
	for _, t := range tools {
		if _, err := t.find(); err != nil {
			packages, missing = append(packages, t.pkg), err
		}
	}
	if missing == nil {
		return nil
	}
	apt, err := tool{"apt-get", "apt"}.find()
	if err != nil || os.Geteuid() != 0 {
		return missing
	}
	fmt.Fprintf(log, "hosts: installing %s\n", strings.Join(packages, " "))
	for _, args := range [][]string{{"update", "-q"}, concat([]string{"install", "-q", "-y", "--no-install-recommends"}, packages)} {
		cmd := exec.CommandContext(ctx, apt, args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w, and apt-get %s failed: %w\n%s", missing, args[0], err, out)
		}
	}
	return nil
}
