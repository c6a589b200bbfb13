package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A cache keeps what takes long to make, outside of any checkout.
//
//	KEY/        a root file system        KEY.img   the same as a disk image
//	KEY.lock    held shared by users, exclusively by the maker and the remover
//	debs/       packages as downloaded    tmp/      what is being made
//	mnt/        always empty here: a mount point inside the hosts' namespaces
type cache struct {
	dir string
}

// openCache finds or makes the cache and sweeps what killed runs left in it.
func openCache() (*cache, error) {
	dir := os.Getenv("SESSIONBOX_TEST_CACHE")
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("find the test cache: %w (set SESSIONBOX_TEST_CACHE)", err)
		}
		dir = filepath.Join(base, "sessionbox-test")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find the test cache: %w", err)
	}
	c := &cache{dir: dir}
	for _, sub := range []string{"debs", "tmp", "mnt"} {
		if err := os.MkdirAll(c.path(sub), 0o755); err != nil {
			return nil, fmt.Errorf("make the test cache: %w", err)
		}
	}
	// Cgroups first: what was left running there would go on writing.
	if err := sweepGroups(); err != nil {
		return nil, err
	}
	return c, c.sweep()
}

func (c *cache) path(name string) string { return filepath.Join(c.dir, name) }

// temp makes a directory that the next run removes if this one cannot.
func (c *cache) temp() (string, error) {
	name, err := ownName()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(c.path("tmp"), name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("make a working directory: %w", err)
	}
	return dir, nil
}

func (c *cache) sweep() error {
	entries, err := os.ReadDir(c.path("tmp"))
	if err != nil {
		return fmt.Errorf("sweep the test cache: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if IsStale(e.Name()) {
			errs = append(errs, os.RemoveAll(filepath.Join(c.path("tmp"), e.Name())))
		}
	}
	return errors.Join(errs...)
}

// lock takes the lock of key, exclusively or shared. The kernel drops it when the
// file is closed, by us or by our death.
func (c *cache) lock(ctx context.Context, key string, how int) (*os.File, error) {
	f, err := os.OpenFile(c.path(key+".lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", key, err)
	}
	if err := flock(ctx, f, how); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", key, err)
	}
	return f, nil
}

// flock waits for the lock without giving up on ctx, which a blocking flock would.
func flock(ctx context.Context, f *os.File, how int) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// ensure returns with the shared lock of key held and the thing named key present,
// made by build if need be. build gets a directory and returns the path in it of
// what is to be renamed.
func (c *cache) ensure(ctx context.Context, key string, build func(tmp string) (string, error)) (*os.File, error) {
	for {
		lock, err := c.lock(ctx, key, unix.LOCK_SH)
		if err != nil {
			return nil, err
		}
		if _, err := os.Lstat(c.path(key)); err == nil {
			return lock, nil
		}
		// A conversion may let another maker in between; who looks again after
		// it holds the lock is right either way.
		if err := flock(ctx, lock, unix.LOCK_EX); err != nil {
			lock.Close()
			return nil, fmt.Errorf("lock %s: %w", key, err)
		}
		_, err = os.Lstat(c.path(key))
		if err != nil {
			err = c.make(key, build)
		}
		lock.Close()
		if err != nil {
			return nil, err
		}
	}
}

func (c *cache) make(key string, build func(tmp string) (string, error)) (err error) {
	tmp, err := c.temp()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	made, err := build(tmp)
	if err != nil {
		return fmt.Errorf("make %s: %w", key, err)
	}
	return os.Rename(made, c.path(key))
}

// remove takes a thing away. One that is half removed is never found by its key, and goes
// with the next sweep. Its lock is held.
func (c *cache) remove(key string) error {
	tmp, err := c.temp()
	if err != nil {
		return err
	}
	return errors.Join(os.Rename(c.path(key), filepath.Join(tmp, key)), os.RemoveAll(tmp))
}

// prune removes what older recipes of the same kind left, those whose keys begin with
// prefix, unless somebody uses it.
func (c *cache) prune(prefix, keep string, log io.Writer) error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return fmt.Errorf("prune the test cache: %w", err)
	}
	var errs []error
	for _, e := range entries {
		key := e.Name()
		if !strings.HasPrefix(key, prefix) || strings.HasSuffix(key, ".lock") || strings.TrimSuffix(key, ".img") == keep {
			continue
		}
		lock, err := os.OpenFile(c.path(key+".lock"), os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			fmt.Fprintf(log, "hosts: removing %s of an older recipe\n", key)
			errs = append(errs, c.remove(key))
		}
		errs = append(errs, lock.Close())
	}
	return errors.Join(errs...)
}
