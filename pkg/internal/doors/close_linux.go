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
	// By its name, of which the kernel says "(unreachable)" where it has none here.
	dir, err := unix.Getwd()
	if err != nil {
		dir = "(unreachable)"
	}
	if _, err := closeAll(args[1]); err != nil {
		unix.Write(fd, []byte(err.Error()))
		return 125
	}
	// Who is in a directory is below what was mounted over it, so he enters it anew.
	if err := unix.Chdir(dir); err != nil || !filepath.IsAbs(dir) {
		unix.Write(fd, []byte(noDir+dir))
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
// they were. The order is an [Order] as it was handed on.
func closeAll(order string) ([]place, error) {
	var o Order
	if err := json.Unmarshal([]byte(order), &o); err != nil {
		return nil, fmt.Errorf("read what is to be closed: %w", err)
	}
	// What is mounted outside from now on stays outside: a runtime directory that is
	// made anew at the next login has a bus again.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make the mounts private: %w", err)
	}
	records := o.recordDirs()
	if err := hold(records); err != nil {
		return nil, err
	}
	there := here(o.places())
	for _, p := range there {
		if err := hide(p.path); err != nil {
			return nil, fmt.Errorf("hide %s: %w", p.path, err)
		}
	}
	mounts, err := mountsOf(controls)
	if err != nil {
		return nil, err
	}
	// Root's files are root's also without capabilities, those in /proc/sys among them.
	for _, m := range mounts {
		switch {
		case m.kind != "proc" || m.root == "/sys" || strings.HasPrefix(m.root, "/sys/"):
			err = readOnly(m.at)
		case m.root == "/":
			err = protect(filepath.Join(m.at, "sys"))
		}
		if err != nil {
			return nil, fmt.Errorf("make %s (%s) read-only: %w", m.at, m.kind, err)
		}
	}
	for _, dir := range records {
		err := protect(dir)
		if errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOTDIR) {
			if filepath.Dir(dir) != o.Records {
				continue // another user's: no door of this one
			}
		}
		if err != nil {
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
	if err := untyped(); err != nil {
		return nil, fmt.Errorf("refuse typing into terminals (seccomp): %w", err)
	}
	if err := dropAdmin(); err != nil {
		return nil, fmt.Errorf("give up capabilities: %w", err)
	}
	return there, nil
}

// hold makes mount points of the directories above others that the caller may rename: a
// copy put in the place of one would be what those outside read. The kernel renames no
// mount point.
func hold(dirs []string) error {
	mounts, err := mountPoints()
	if err != nil {
		return err
	}
	var above []string
	for _, dir := range dirs {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			for _, d := range renamable(real, mounts) {
				if d != real && !slices.Contains(above, d) {
					above = append(above, d)
				}
			}
		}
	}
	slices.Sort(above) // from above: what is mounted over another hides the mounts in it
	for _, d := range above {
		if err := unix.Mount(d, d, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("hold %s where it is: %w", d, err)
		}
	}
	return nil
}

// renamable are those of a directory and what is above it that the caller may rename.
func renamable(dir string, mounts map[string]bool) []string {
	var all []string
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if !mounts[dir] && unix.Access(filepath.Dir(dir), unix.W_OK) == nil {
			all = append(all, dir)
		}
	}
	return all
}

// movable is what of a path may be put elsewhere, "" if nothing: links among it cannot be
// held.
func movable(path string, mounts map[string]bool) string {
	for p := path; p != "/"; p = filepath.Dir(p) {
		fi, err := os.Lstat(p)
		if err == nil && fi.Mode()&fs.ModeSymlink != 0 && unix.Access(filepath.Dir(p), unix.W_OK) == nil {
			return p
		}
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		if all := renamable(real, mounts); len(all) > 0 {
			return all[0]
		}
	}
	return ""
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

// configfsMagic is CONFIGFS_MAGIC of Linux.
const configfsMagic = 0x62656570

// controls are the file systems by which the kernel, or others by way of it, are told what
// to do: names in mountinfo, with the types that statfs gives.
var controls = map[string]int64{
	"cgroup": unix.CGROUP_SUPER_MAGIC, "cgroup2": unix.CGROUP2_SUPER_MAGIC, "sysfs": unix.SYSFS_MAGIC, "binfmt_misc": unix.BINFMTFS_MAGIC,
	"debugfs": unix.DEBUGFS_MAGIC, "tracefs": unix.TRACEFS_MAGIC, "securityfs": unix.SECURITYFS_MAGIC, "configfs": configfsMagic,
	"proc": unix.PROC_SUPER_MAGIC,
}

// mounted is a file system that is mounted, or the part of one below root.
type mounted struct{ at, root, kind string }

// mountsOf are the mounts of these types that can be reached.
func mountsOf(kinds map[string]int64) ([]mounted, error) {
	all, err := mountinfo()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(m mounted) bool {
		want, ok := kinds[m.kind] // of another type: asking one whose server does not answer would hang
		var st unix.Statfs_t
		return !ok || unix.Statfs(m.at, &st) != nil || st.Type != want // something is mounted over it
	}), nil
}

// mountPoints are all places where something is mounted.
func mountPoints() (map[string]bool, error) {
	all, err := mountinfo()
	points := map[string]bool{}
	for _, m := range all {
		points[m.at] = true
	}
	return points, err
}

func mountinfo() ([]mounted, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []mounted
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		kind, _, _ := strings.Cut(after, " ")
		if ok && len(fields) >= 5 {
			all = append(all, mounted{at: unescape(fields[4]), root: unescape(fields[3]), kind: kind})
		}
	}
	return all, lines.Err()
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

// protect makes a directory read-only, if it is there.
func protect(dir string) error {
	err := unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, "")
	if errors.Is(err, unix.ENOENT) {
		return nil
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
func probe(order string) int {
	parent := os.Getppid() // one who is outside
	there, err := closeAll(order)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var o Order
	if err := json.Unmarshal([]byte(order), &o); err != nil {
		return 1
	}
	doors := closed(there)
	for i := range doors {
		if how := try(doors[i].Name, there, &o, parent); how != "" {
			doors[i].Closed, doors[i].Text = false, how
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(doors); err != nil {
		return 1
	}
	return 0
}

// try goes for a door and says how it got through.
func try(door string, there []place, o *Order, parent int) string {
	for _, p := range there {
		if p.door != door {
			continue
		}
		if c, err := net.Dial("unix", p.path); err == nil {
			c.Close()
			return p.path + " answers"
		}
		if in, err := os.ReadDir(p.path); err == nil && len(in) > 0 {
			return filepath.Join(p.path, in[0].Name()) + " is seen"
		}
	}
	switch door {
	case Cgroups, Settings:
		return tryControls(door == Cgroups)
	case Records:
		mounts, err := mountPoints()
		if err != nil {
			return err.Error()
		}
		for _, dir := range o.recordDirs() {
			if _, err := os.Stat(dir); err != nil {
				continue // there is none, or none of this user
			}
			if unix.Access(dir, unix.W_OK) == nil {
				return dir + " may be written"
			}
			if p := movable(dir, mounts); p != "" {
				return p + " may be replaced"
			}
		}
	case Typing:
		return tryTyping()
	case Processes:
		path := fmt.Sprintf("/proc/%d/root/", parent)
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

// tryControls goes for the file systems in which the kernel is told what to do: for the
// cgroups, or for all others.
func tryControls(cgroups bool) string {
	mounts, err := mountsOf(controls)
	if err != nil {
		return err.Error()
	}
	for _, m := range mounts {
		path := m.at
		switch {
		case strings.HasPrefix(m.kind, "cgroup") != cgroups:
			continue
		case cgroups:
			path = filepath.Join(m.at, "cgroup.procs")
		case m.kind == "proc" && m.root != "/":
			continue
		case m.kind == "proc":
			path = filepath.Join(m.at, "sys", "kernel", "core_pattern")
		}
		if unix.Access(path, unix.W_OK) == nil {
			return path + " may be written"
		}
	}
	return ""
}
