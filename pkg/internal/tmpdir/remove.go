package tmpdir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Left is what a removal could not remove.
type Left struct {
	Paths []string // the first few
	Count int
	Err   error // of the first one
}

func (l *Left) Error() string {
	more := ""
	if n := l.Count - 1; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%s%s could not be removed: %v", l.Paths[0], more, l.Err)
}

// Unwrap gives the cause.
func (l *Left) Unwrap() error { return l.Err }

const (
	// maxDepth is how deep a removal descends, with one descriptor for each level.
	// What is deeper is moved up.
	maxDepth = 64
	// maxPasses bounds how often one directory is read: somebody may fill it as fast
	// as we empty it.
	maxPasses = 10000
	batch     = 1024
	maxNamed  = 5
)

// Remove removes the directory of the session id with all that is in it, and the one
// around it if it was the last. One that is not there is no error, and a *[Left] says
// what is still there. It goes on after ctx is done only for as long as one system call
// takes.
func Remove(ctx context.Context, dir string, uid int, id string) error {
	if !valid(dir, uid, id) {
		return fmt.Errorf("%q is no directory of the session %s of uid %d: %w", dir, id, uid, ErrForeign)
	}
	top := filepath.Dir(dir)
	parent, err := openParent(top, uid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	r := remover{ctx: ctx, base: -1}
	if err := r.mountOf(parent); err != nil {
		return err
	}
	r.remove(parent, id, dir, 0)
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.left.Count > 0 {
		return &r.left
	}
	// That others are in it is the rule.
	if err := unix.Rmdir(top); err != nil && !isNotEmpty(err) && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "rmdir", Path: top, Err: err}
	}
	return nil
}

// remover is one removal under way.
type remover struct {
	ctx   context.Context
	mount mount
	base  int // the session's directory: what is too deep is moved here
	moved int // how often that was done
	left  Left
}

func (r *remover) mountOf(fd int) (err error) {
	r.mount, _, err = stat(fd)
	return err
}

// remove removes one name from a directory, and says whether it is gone. Which kind of
// thing it is the calls say themselves: what was looked at before may be another thing
// now.
func (r *remover) remove(dir int, name, path string, depth int) bool {
	err := unix.Unlinkat(dir, name, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) { // POSIX says EPERM of a directory
		derr := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		if isNotEmpty(derr) {
			derr = r.descend(dir, name, path, depth)
		}
		if !errors.Is(derr, unix.ENOTDIR) { // else it is a file, and EPERM is the truth
			err = derr
		}
	}
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return true
	case errors.Is(err, errInside), r.ctx.Err() != nil: // what it is has been noted
		return false
	}
	r.note(path, err)
	return false
}

// errInside says that a directory stays for what is left in it.
var errInside = errors.New("something inside could not be removed")

// descend empties a directory and removes it.
func (r *remover) descend(dir int, name, path string, depth int) error {
	if depth > maxDepth {
		return r.lift(dir, name)
	}
	fd, err := r.open(dir, name)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if depth == 0 {
		r.base = fd
	}
	for range maxPasses {
		moved := r.moved
		gone, left, err := r.pass(f, fd, path, depth)
		if err != nil {
			return err
		}
		if r.ctx.Err() != nil {
			return errInside
		}
		// Names may be passed over while others are removed, and deep ones were moved
		// here: only a pass that changes nothing has seen all.
		if gone == 0 && (depth > 0 || moved == r.moved) {
			if left > 0 {
				return errInside
			}
			break
		}
	}
	if depth == 0 {
		// The mark goes last: while anything is left it says whose that is.
		if !r.remove(fd, markFile, filepath.Join(path, markFile), 1) {
			return errInside
		}
	}
	return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
}

// pass reads a directory once and removes what it reads.
func (r *remover) pass(f *os.File, fd int, path string, depth int) (gone, left int, err error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return 0, 0, err
	}
	// What an earlier pass could not remove is noted by the last one alone.
	before := r.left
	defer func() {
		if gone > 0 {
			r.left = before
		}
	}()
	for {
		names, err := f.Readdirnames(batch)
		for _, name := range names {
			if r.ctx.Err() != nil {
				return gone, left, nil
			}
			if depth == 0 && name == markFile {
				continue
			}
			if r.remove(fd, name, filepath.Join(path, name), depth+1) {
				gone++
			} else {
				left++
			}
		}
		if errors.Is(err, io.EOF) {
			return gone, left, nil
		}
		if err != nil {
			return gone, left, err
		}
	}
}

// lift moves a directory that lies too deep to where it does not. A mount point cannot
// be moved (EBUSY).
func (r *remover) lift(dir int, name string) error {
	for {
		r.moved++
		to := fmt.Sprintf(".lifted-%d", r.moved)
		err := unix.Renameat(dir, name, r.base, to)
		if isNotEmpty(err) || errors.Is(err, unix.ENOTDIR) { // of a removal that was killed
			if r.ctx.Err() != nil {
				return err
			}
			continue
		}
		return err
	}
}

// open opens a directory for reading, after making sure that nothing is mounted there.
// One without the permissions is given them.
func (r *remover) open(dir int, name string) (int, error) {
	at, err := openHere(dir, name)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	m, mode, err := stat(at)
	if err != nil {
		return -1, err
	}
	if m != r.mount {
		return -1, fmt.Errorf("something is mounted there: %w", unix.EBUSY)
	}
	if mode&0o700 != 0o700 {
		_ = chmod(at, mode|0o700) // if that fails, so does what needs it
	}
	return unix.Openat(at, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

func (r *remover) note(path string, err error) {
	if r.left.Count == 0 {
		r.left.Err = err
	}
	r.left.Count++
	if len(r.left.Paths) < maxNamed {
		r.left.Paths = append(slices.Clip(r.left.Paths), path) // an earlier state may be come back to
	}
}

func isNotEmpty(err error) bool {
	return errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST)
}
