package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
)

// haveCgroup says whether a real box can be made here.
var haveCgroup = sync.OnceValue(func() bool {
	m, err := cgroup.FindMount()
	return err == nil && os.Geteuid() == 0 && !m.ReadOnly && unix.Access(filepath.Join(m.Point, "cgroup.procs"), unix.W_OK) == nil
})

// haveMemory says whether a box that is made here can have a ceiling for memory.
var haveMemory = sync.OnceValue(func() bool {
	m, err := cgroup.FindMount()
	if err != nil {
		return false
	}
	b, err := os.ReadFile(filepath.Join(m.Point, "cgroup.subtree_control"))
	return err == nil && slices.Contains(strings.Fields(string(b)), "memory")
})

func makeCgroup() (string, error) {
	m, err := cgroup.FindMount()
	if err != nil {
		return "", err
	}
	return os.MkdirTemp(m.Point, "sbxtest-cli-")
}

// removeCgroup ends what is in a cgroup and removes it.
func removeCgroup(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0); err != nil {
		return err
	}
	var err error
	for range 200 {
		err = nil
		var dirs []string
		filepath.WalkDir(dir, func(p string, d fs.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				dirs = append(dirs, p)
			}
			return nil
		})
		for _, d := range slices.Backward(dirs) {
			if e := unix.Rmdir(d); e != nil && !errors.Is(e, unix.ENOENT) {
				err = fmt.Errorf("rmdir %s: %w", d, e)
			}
		}
		if err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}
