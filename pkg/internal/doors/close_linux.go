package doors

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Main closes the doors and becomes the command: args are what follows [Arg]. It returns
// only when there is no command, or it does not run.
func Main(args []string) int {
	runtime.LockOSThread() // capabilities and no_new_privs are those of the thread that execs
	switch {
	case len(args) == 2 && args[0] == probeArg:
		return probe(args[1])
	case len(args) > 3:
	default:
		fmt.Fprintln(os.Stderr, "sessionbox: strict: not understood")
		return 125
	}
	fd, err := strconv.Atoi(args[0])
	if err != nil {
		return 125
	}
	unix.CloseOnExec(fd)
	if _, err := closeAll(args[1]); err != nil {
		unix.Write(fd, []byte(err.Error()))
		return 125
	}
	err = unix.Exec(args[2], args[3:], os.Environ())
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		errno = syscall.ENOEXEC
	}
	unix.Write(fd, []byte(strconv.Itoa(int(errno))))
	return 126
}

// closeAll closes all doors for the calling thread and what it becomes, and says where
// they were.
func closeAll(records string) ([]place, error) {
	// What is mounted outside from now on stays outside: a runtime directory that is
	// made anew at the next login has a bus again.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make the mounts private: %w", err)
	}
	there := here(places(os.Geteuid(), os.Getenv))
	for _, p := range there {
		if err := hide(p.path); err != nil {
			return nil, fmt.Errorf("hide %s: %w", p.path, err)
		}
	}
	mounts, err := mountsOf(unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.BINFMTFS_MAGIC)
	if err != nil {
		return nil, err
	}
	for _, at := range mounts {
		if err := readOnly(at); err != nil {
			return nil, fmt.Errorf("make %s read-only: %w", at, err)
		}
	}
	// Root's files are root's also without capabilities, those in /proc/sys among them.
	for _, dir := range append(recordDirs(records, os.Geteuid(), os.Getenv), "/proc/sys") {
		if err := protect(dir); err != nil {
			return nil, fmt.Errorf("make %s read-only: %w", dir, err)
		}
	}
	if os.Geteuid() != 0 {
		if err := ownCopies(sshIncludes); err != nil {
			return nil, fmt.Errorf("copy %s: %w", sshIncludes, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("no_new_privs: %w", err)
	}
	if err := dropAdmin(); err != nil {
		return nil, fmt.Errorf("give up capabilities: %w", err)
	}
	return there, nil
}

// hide covers a path: who connects to it is refused, who looks into it finds nothing.
func hide(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has just ended
	}
	if err != nil {
		return err
	}
	if fi.IsDir() {
		return unix.Mount("tmpfs", path, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0555,size=4k")
	}
	return unix.Mount("/dev/null", path, "", unix.MS_BIND, "")
}

// mountsOf are where file systems of these types are mounted.
func mountsOf(types ...int64) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var at []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		kind, _, _ := strings.Cut(after, " ")
		if !ok || len(fields) < 5 || !slices.Contains([]string{"cgroup", "cgroup2", "sysfs", "binfmt_misc"}, kind) {
			continue // of another type: asking one whose server does not answer would hang
		}
		path := unescape(fields[4])
		var st unix.Statfs_t
		if unix.Statfs(path, &st) == nil && slices.Contains(types, st.Type) {
			at = append(at, path) // else something is mounted over it
		}
	}
	return at, lines.Err()
}

// unescape undoes what the kernel does to blanks in mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// readOnly makes a mount read-only and leaves the rest of it as it is: what more
// privileged ones have set may not be taken off.
func readOnly(at string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil {
		return err
	}
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY)
	for have, set := range map[int64]uintptr{
		unix.ST_NOSUID: unix.MS_NOSUID, unix.ST_NODEV: unix.MS_NODEV, unix.ST_NOEXEC: unix.MS_NOEXEC,
		unix.ST_NOATIME: unix.MS_NOATIME, unix.ST_NODIRATIME: unix.MS_NODIRATIME, unix.ST_RELATIME: unix.MS_RELATIME,
	} {
		if st.Flags&have != 0 {
			flags |= set
		}
	}
	return unix.Mount("", at, "", flags, "")
}

// protect makes a directory read-only.
func protect(dir string) error {
	err := unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, "")
	if errors.Is(err, unix.ENOENT) {
		return nil // no session was opened there yet
	}
	if err != nil {
		return err
	}
	return readOnly(dir)
}

// sshIncludes is what the configuration of ssh includes on Debian, Fedora and others. ssh
// reads none of it that is neither root's nor the user's, and root is nobody in here.
const sshIncludes = "/etc/ssh/ssh_config.d"

// maxCopy bounds each file that is copied, in bytes.
const maxCopy = 1 << 20

// ownCopies covers a directory by copies of its files that are the user's.
func ownCopies(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // there is none, or none for this user
	}
	files := map[string][]byte{}
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // not for this user
		}
		if fi, err := f.Stat(); err == nil && fi.Mode().IsRegular() {
			if b, err := io.ReadAll(io.LimitReader(f, maxCopy)); err == nil {
				files[e.Name()] = b
			}
		}
		f.Close()
	}
	if len(files) == 0 {
		return nil
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0755"); err != nil {
		return err
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return err
		}
	}
	return readOnly(dir)
}

// dropAdmin gives up what could undo all that: a user all capabilities, root the one that
// mounts, for good.
func dropAdmin() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if os.Geteuid() == 0 {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN, 0, 0, 0); err != nil {
			return err
		}
		if err := unix.Capget(&head, &caps[0]); err != nil {
			return err
		}
		const bit = 1 << unix.CAP_SYS_ADMIN
		caps[0].Effective &^= bit
		caps[0].Permitted &^= bit
		caps[0].Inheritable &^= bit
	}
	return unix.Capset(&head, &caps[0])
}

// probe closes the doors, tries them, and prints what they are.
func probe(records string) int {
	parent := os.Getppid() // one who is outside
	there, err := closeAll(records)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	doors := closed(there)
	for i := range doors {
		if how := try(doors[i].Name, there, records, parent); how != "" {
			doors[i].Closed, doors[i].Text = false, how
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(doors); err != nil {
		return 1
	}
	return 0
}

// try goes for a door and says how it got through.
func try(door string, there []place, records string, parent int) string {
	for _, p := range there {
		if p.door == door {
			if c, err := net.Dial("unix", p.path); err == nil {
				c.Close()
				return p.path + " answers"
			}
		}
	}
	var path string
	switch door {
	case Cgroups:
		mounts, err := mountsOf(unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC)
		if err != nil {
			return err.Error()
		}
		for _, m := range mounts {
			if unix.Access(filepath.Join(m, "cgroup.procs"), unix.W_OK) == nil {
				return m + " may be written"
			}
		}
	case Settings:
		if path = "/proc/sys/kernel/core_pattern"; unix.Access(path, unix.W_OK) == nil {
			return path + " may be written"
		}
	case Records:
		for _, dir := range recordDirs(records, os.Geteuid(), os.Getenv) {
			if unix.Access(dir, unix.W_OK) == nil {
				return dir + " may be written"
			}
		}
	case Processes:
		path = fmt.Sprintf("/proc/%d/root/", parent)
		if _, err := os.Stat(path); err == nil {
			return path + " can be used"
		}
	case Privileges:
		if on, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || on != 1 {
			return "no_new_privs does not hold"
		}
	}
	return ""
}
