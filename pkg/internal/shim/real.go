package shim

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// real gives the command that a shim stands before: the next one in the PATH that is
// not this very program, and in no directory of shims.
func real(name string) (string, error) {
	self, _ := os.Executable()
	own, _ := os.Stat(self)
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if dir == "" {
			dir = "."
		}
		if isBin(dir) {
			continue
		}
		path := filepath.Join(dir, name)
		fi, err := os.Stat(path)
		if err != nil || fi.IsDir() || fi.Mode()&0o111 == 0 || own != nil && os.SameFile(fi, own) {
			continue
		}
		return filepath.Abs(path)
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

// isBin says whether a directory is the bin of shims, of this session or another.
func isBin(dir string) bool {
	above := filepath.Dir(dir)
	if filepath.Base(dir) != "bin" || filepath.Base(above) != dirName {
		return false
	}
	c, err := Dir(above).Config()
	return err == nil && len(c.ID) == 10 && strings.Trim(c.ID, "0123456789abcdefghijklmnopqrstuvwxyz") == ""
}

// around finds the directory of the shims that the process runs under: the first in
// the PATH, or the one that the environment names.
func around() (Dir, bool) {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(dir) && isBin(dir) {
			return Dir(filepath.Dir(dir)), true
		}
	}
	if dir := os.Getenv(EnvDir); filepath.IsAbs(dir) && isBin(filepath.Join(dir, "bin")) {
		return Dir(dir), true
	}
	return "", false
}

// Environ puts the shims of a session into an environment, in place of those of any
// other; dir "" takes all away.
func Environ(env []string, dir Dir) []string {
	path, found := "", false
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path, found = v, true // the last one counts
			return true
		}
		return strings.HasPrefix(kv, EnvDir+"=")
	})
	var dirs []string
	if found {
		dirs = slices.DeleteFunc(filepath.SplitList(path), func(d string) bool { return filepath.IsAbs(d) && isBin(d) })
	} else if dir != "" {
		dirs = []string{"/usr/local/bin", "/usr/bin", "/bin"} // as a shell has it
	}
	if dir != "" {
		dirs = append([]string{dir.Bin()}, dirs...)
		env = append(env, EnvDir+"="+string(dir))
	}
	if found || dir != "" {
		env = append(env, "PATH="+strings.Join(dirs, string(filepath.ListSeparator)))
	}
	return env
}

// In says whether a directory of the PATH is one of shims.
func In(dir string) bool { return isBin(dir) }
