package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// VMOptions are what a guest may be asked for.
type VMOptions struct {
	Files     []File        // Dst below PayloadDir
	Steps     []Step        // what it does, in turn
	MemoryMiB int           // 0 is 1024
	SwapMiB   int           // swap on a disk of its own, 0 for none
	Append    string        // more of the kernel's command line: the last word on a matter counts
	Timeout   time.Duration // from power on to power off, 0 is 5 minutes
	Output    io.Writer     // gets the output of the steps as it comes; nil discards
}

// VMResult is what came of a guest that was booted.
type VMResult struct {
	Steps   []StepResult
	State   string        // what systemctl is-system-running said
	Console string        // the end of the kernel's console
	Took    time.Duration // from power on to power off
}

// BootVM boots a guest with the kernel of root's generation, has it run the steps
// and power off. An error means that the guest did not get through; the result then
// holds what was seen of it. A step that ran and failed is no error.
//
// The guest's disk is a snapshot of one image per root, kept in the cache; what it
// gets is on a second, small disk, made for the occasion.
func BootVM(ctx context.Context, root *Root, opts VMOptions) (_ *VMResult, err error) {
	if err := ensureTools(ctx, vmTools(), os.Stderr); err != nil {
		return nil, err
	}
	image, release, err := root.image(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	tmp, err := root.cache.temp()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	g, err := newGroup()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.close()) }()

	vm := &vm{group: g, root: root, image: image, tmp: tmp, opts: opts}
	if err := vm.makeDisks(ctx); err != nil {
		return nil, err
	}
	res, err := vm.run(ctx)
	if err != nil {
		err = fmt.Errorf("guest %s: %w", root.Generation, err)
	}
	return res, err
}

// vm is a guest while BootVM is at work.
type vm struct {
	group *group
	root  *Root
	image string
	tmp   string
	opts  VMOptions
}

// makeDisks makes the disk with the guest's script, its steps and files, and the
// one to swap on.
func (v *vm) makeDisks(ctx context.Context) error {
	dir := filepath.Join(v.tmp, "payload")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	payload, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer payload.Close()
	for _, f := range v.opts.Files {
		rel, err := filepath.Rel(PayloadDir, f.Dst)
		if err != nil || !filepath.IsLocal(rel) {
			return fmt.Errorf("copy %s: a guest takes files below %s only, not %s", f.Src, PayloadDir, f.Dst)
		}
		if err := f.copyTo(payload, rel); err != nil {
			return err
		}
	}
	script := guestScript(v.opts.Steps)
	if v.opts.SwapMiB > 0 {
		script = "mkswap -q /dev/vdc && swapon /dev/vdc\n" + script
		if err := sparse(filepath.Join(v.tmp, "swap.img"), int64(v.opts.SwapMiB)<<20); err != nil {
			return err
		}
	}
	files := []recipeFile{{Path: guestScriptName, Mode: 0o755, Body: script}}
	for i, s := range v.opts.Steps {
		files = append(files, recipeFile{
			Path: fmt.Sprintf("steps/%d", i), Mode: 0o755,
			Body: commandScript(s.Route, s.Args, s.Env, s.Dir),
		})
	}
	for _, f := range files {
		if err := writeNew(payload, f); err != nil {
			return err
		}
	}
	size, err := treeSize(dir)
	if err != nil {
		return err
	}
	return makeImage(ctx, v.group, dir, filepath.Join(v.tmp, "payload.img"), size*5/4+(64<<20))
}

// run runs QEMU until the guest powers off.
func (v *vm) run(ctx context.Context) (*VMResult, error) {
	timeout := v.opts.Timeout
	if timeout == 0 {
		timeout = 5 * time.Minute
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not over after %s", timeout))
	defer cancel()
	forward := v.opts.Output
	if forward == nil {
		forward = io.Discard
	}
	reader := newGuestReader(v.opts.Steps, forward)
	errOut := &tail{max: 4 << 10}
	cmd, closeAt, err := v.command(ctx)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = reader, errOut
	began := time.Now()
	p, err := startTied(cmd)
	closeAt()
	if err != nil {
		return nil, fmt.Errorf("start qemu: %w", err)
	}
	<-p.done

	console, consoleErr := os.ReadFile(v.consolePath())
	res := &VMResult{Console: lastLines(string(console), 60), State: reader.state, Took: time.Since(began)}
	err = reader.finish()
	res.Steps = reader.results
	switch {
	case ctx.Err() != nil:
		err = errors.Join(context.Cause(ctx), err)
	case p.err != nil:
		err = errors.Join(fmt.Errorf("qemu: %w: %s", p.err, strings.TrimSpace(errOut.String())), err)
	}
	if err != nil {
		err = errors.Join(err, consoleErr)
	}
	return res, err
}

func (v *vm) consolePath() string { return filepath.Join(v.tmp, "console.log") }

// command is the QEMU to start. TCG is named outright: nested KVM that is there but
// does not work would make the guest hang instead of merely slow.
func (v *vm) command(ctx context.Context) (*exec.Cmd, func(), error) {
	qemu, err := vmTools()[0].find()
	if err != nil {
		return nil, nil, err
	}
	kernel, err := v.bootFile("vmlinuz-*")
	if err != nil {
		return nil, nil, err
	}
	initrd, err := v.bootFile("initrd.img-*")
	if err != nil {
		return nil, nil, err
	}
	at, err := v.group.open("")
	if err != nil {
		return nil, nil, err
	}
	memory := v.opts.MemoryMiB
	if memory == 0 {
		memory = 1024
	}
	line := "console=ttyS0 root=/dev/vda rw quiet psi=1 panic=-1"
	if v.opts.Append != "" {
		line += " " + v.opts.Append
	}
	args := []string{
		"-accel", "tcg,thread=multi", "-cpu", "max", "-m", strconv.Itoa(memory), "-smp", "2",
		"-display", "none", "-monitor", "none", "-nodefaults", "-no-user-config",
		"-serial", "file:" + v.consolePath(), "-serial", "file:/dev/stdout",
		"-kernel", kernel, "-initrd", initrd,
		"-append", line,
		"-drive", "file=" + v.image + ",format=raw,if=virtio,snapshot=on",
		"-drive", "file=" + filepath.Join(v.tmp, "payload.img") + ",format=raw,if=virtio",
	}
	if v.opts.SwapMiB > 0 {
		args = append(args, "-drive", "file="+filepath.Join(v.tmp, "swap.img")+",format=raw,if=virtio")
	}
	if !v.reboots() {
		args = append(args, "-no-reboot") // so a panic ends it at once
	}
	cmd := exec.CommandContext(ctx, qemu, args...)
	// The snapshot's temporary file must go where the next run sweeps.
	cmd.Env = append(os.Environ(), "TMPDIR="+v.tmp)
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(at.Fd()), Setsid: true}
	return cmd, func() { at.Close() }, nil
}

func (v *vm) reboots() bool {
	for _, s := range v.opts.Steps {
		if s.Reboot {
			return true
		}
	}
	return false
}

func (v *vm) bootFile(pattern string) (string, error) {
	found, err := filepath.Glob(filepath.Join(v.root.Dir, "boot", pattern))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("want one /boot/%s in the root file system, found %q: %w", pattern, found, err)
	}
	return found[0], nil
}

// image returns the disk image of the root, made at first use, and how to say that
// it is no longer used.
func (r *Root) image(ctx context.Context) (string, func(), error) {
	key := r.key + ".img"
	lock, err := r.cache.ensure(ctx, key, func(tmp string) (_ string, err error) {
		g, err := newGroup()
		if err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, g.close()) }()
		size, err := treeSize(r.Dir)
		if err != nil {
			return "", err
		}
		// Room for what tests write; the file is sparse.
		made := filepath.Join(tmp, "root.img")
		return made, makeImage(ctx, g, r.Dir, made, size*5/4+(2<<30))
	})
	if err != nil {
		return "", nil, fmt.Errorf("disk image of %s: %w", r.Generation, err)
	}
	return r.cache.path(key), func() { lock.Close() }, nil
}

// makeImage makes an ext4 image of dir, without a mount.
func makeImage(ctx context.Context, g *group, dir, image string, size int64) error {
	if err := sparse(image, size); err != nil {
		return err
	}
	return runBuild(ctx, g, []string{"mke2fs", "-q", "-F", "-t", "ext4", "-d", dir, image})
}

// sparse makes a file of that size that takes no room yet.
func sparse(path string, size int64) error {
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		return err
	}
	return os.Truncate(path, size)
}

// treeSize returns what the files below dir take.
func treeSize(dir string) (int64, error) {
	var total int64
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return &os.PathError{Op: "lstat", Path: path, Err: err}
		}
		total += max(st.Blocks*512, 4096)
		return nil
	})
	return total, err
}
