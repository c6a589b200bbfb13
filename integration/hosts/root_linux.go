package hosts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A Root is the root file system of a generation, in use: it is not pruned before
// Close. It is never to be written to.
type Root struct {
	Generation Generation
	Dir        string

	cache *cache
	key   string
	lock  *os.File
}

// OpenRoot returns the root file system of gen, building it first if the cache has
// none of today's recipe. Who comes while it is built waits for it. log gets a line
// for what takes long.
func OpenRoot(ctx context.Context, gen Generation, log io.Writer) (*Root, error) {
	r, err := gen.recipe()
	if err != nil {
		return nil, err
	}
	return openRecipe(ctx, r, log)
}

// OpenVariant is [OpenRoot] for a variant of the generation's root.
func OpenVariant(ctx context.Context, gen Generation, v Variant, log io.Writer) (*Root, error) {
	r, err := gen.recipe()
	if err != nil {
		return nil, err
	}
	if r, err = r.with(v); err != nil {
		return nil, err
	}
	return openRecipe(ctx, r, log)
}

func openRecipe(ctx context.Context, r recipe, log io.Writer) (*Root, error) {
	gen := r.Suite
	key, err := r.key()
	if err != nil {
		return nil, err
	}
	c, err := openCache()
	if err != nil {
		return nil, err
	}
	lock, err := c.ensure(ctx, key, func(tmp string) (string, error) {
		if err := ensureTools(ctx, buildTools(), log); err != nil {
			return "", err
		}
		if err := c.prune(r.prefix(), key, log); err != nil {
			return "", err
		}
		fmt.Fprintf(log, "hosts: building %s, this takes a minute or two\n", c.path(key))
		began := time.Now()
		dir := filepath.Join(tmp, "root")
		if err := buildRoot(ctx, r, dir, c.path("debs"), log); err != nil {
			return "", err
		}
		fmt.Fprintf(log, "hosts: built %s in %s\n", key, time.Since(began).Round(time.Second))
		return dir, nil
	})
	if err != nil {
		return nil, fmt.Errorf("root file system of %s: %w", gen, err)
	}
	return &Root{Generation: gen, Dir: c.path(key), cache: c, key: key, lock: lock}, nil
}

// Close says that the root is no longer used.
func (r *Root) Close() error {
	err := r.lock.Close()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// buildRoot makes the root file system of the recipe in dir.
func buildRoot(ctx context.Context, r recipe, dir, debs string, log io.Writer) (err error) {
	g, err := newGroup()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()

	if err := bootstrap(ctx, g, r, dir, debs, log); err != nil {
		return err
	}
	for _, args := range r.Commands {
		if err := runBuild(ctx, g, concat([]string{"chroot", dir}, args)); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range r.Files {
		if err := writeNew(root, f); err != nil {
			return err
		}
	}
	for path, target := range r.Links {
		if err := link(root, path, target); err != nil {
			return err
		}
	}
	return nil
}

// bootstrap runs debootstrap with its own choice of mirror, and should that not be
// reachable, with the one that apt on this machine uses.
func bootstrap(ctx context.Context, g *group, r recipe, dir, debs string, log io.Writer) error {
	mirrors := []string{""}
	if m := os.Getenv("SESSIONBOX_TEST_MIRROR"); m != "" {
		mirrors = []string{m}
	} else if m := aptMirror(ctx); m != "" {
		mirrors = append(mirrors, m)
	}
	var errs []error
	for _, mirror := range mirrors {
		args := []string{
			"debootstrap", "--variant=minbase", "--cache-dir=" + debs,
			"--include=" + strings.Join(r.Packages, ","), string(r.Suite), dir,
		}
		if mirror != "" {
			args = append(args, mirror)
		}
		err := runBuild(ctx, g, args)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		errs = append(errs, err)
		fmt.Fprintf(log, "hosts: debootstrap of %s failed\n", r.Suite)
		if err := os.RemoveAll(dir); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(errs...)
}

// aptMirror returns where apt on this machine gets Debian from, "" if nowhere.
func aptMirror(ctx context.Context) string {
	cmd := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian", "Component: main")
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	uris := strings.Fields(string(out))
	i := slices.IndexFunc(uris, func(u string) bool { return !strings.Contains(u, "security") })
	if i < 0 {
		return ""
	}
	return uris[i]
}

// runBuild runs one step of a build in g, in a mount namespace of its own:
// debootstrap mounts proc and sysfs in the target, and a killed one leaves them.
func runBuild(ctx context.Context, g *group, args []string) error {
	path, err := tool{program: args[0]}.find()
	if err != nil {
		return err
	}
	at, err := g.open("")
	if err != nil {
		return err
	}
	defer at.Close()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 2 * time.Second
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", "HOME=/root"}
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(strings.ToLower(e), "="); strings.HasSuffix(name, "_proxy") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Unshareflags: syscall.CLONE_NEWNS,
		UseCgroupFD:  true,
		CgroupFD:     int(at.Fd()),
		Setsid:       true,
	}
	p, err := startTied(cmd)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	<-p.done
	if p.err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), p.err, lastLines(out.String(), 15))
	}
	return nil
}

// writeNew writes a file of the recipe in place of what is there, which may be a
// link that leads elsewhere.
func writeNew(root *os.Root, f recipeFile) error {
	name := strings.TrimPrefix(f.Path, "/")
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := root.WriteFile(name, []byte(f.Body), fs.FileMode(f.Mode)); err != nil {
		return err
	}
	return root.Chmod(name, fs.FileMode(f.Mode))
}

func link(root *os.Root, path, target string) error {
	name := strings.TrimPrefix(path, "/")
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return root.Symlink(target, name)
}

// lastLines returns at most n lines from the end of text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
