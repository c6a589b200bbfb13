package cgroup

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// Sampler1 reads the memory of one directory of a cgroup v1 memory hierarchy, for
// hosts whose memory controller still is there: it is what lies around our boxes.
type Sampler1 struct {
	path string
	buf  [8 << 10]byte

	stat, kernel, oom held
}

// OpenSampler1 opens the files of the directory at an absolute path, such as
// "/sys/fs/cgroup/memory/user.slice".
func OpenSampler1(path string) (*Sampler1, error) {
	dir, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(dir)
	s := &Sampler1{path: path}
	for _, f := range []struct {
		h    *held
		name string
	}{{&s.stat, "memory.stat"}, {&s.kernel, "memory.kmem.usage_in_bytes"}, {&s.oom, "memory.oom_control"}} {
		h, err := hold(dir, f.name, unix.O_RDONLY)
		*f.h = h
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("sample %s: %w", path, err)
		}
	}
	if !s.stat.here() {
		s.Close()
		return nil, fmt.Errorf("%s: %w", path, ErrNoMemory)
	}
	return s, nil
}

// Sample reads the figures into out. v1 does not tell the pressure of a cgroup, nor
// how often it was throttled or hit its limit.
func (s *Sampler1) Sample(out *memlimit.Sample) error {
	*out = memlimit.Sample{At: proc.Clock()}
	b, err := s.stat.read(s.buf[:])
	if err != nil {
		return s.fail(err)
	}
	stat, err := memlimit.ParseStat1(b)
	if err != nil {
		return s.fail(err)
	}
	kernel := uint64(0)
	if s.kernel.here() {
		if kernel, err = s.kernel.amount(s.buf[:]); err != nil {
			return s.fail(err)
		}
	}
	stat.Fill(out, kernel)
	if s.oom.here() {
		if b, err = s.oom.read(s.buf[:]); err != nil {
			return s.fail(err)
		}
		if out.Events.OOMKill, err = memlimit.ParseOOMControl(b); err != nil {
			return s.fail(err)
		}
	}
	out.Done = proc.Clock()
	return nil
}

func (s *Sampler1) fail(err error) error { return fmt.Errorf("sample %s: %w", s.path, err) }

// Close releases the files.
func (s *Sampler1) Close() error {
	for _, h := range []*held{&s.stat, &s.kernel, &s.oom} {
		h.close()
	}
	return nil
}
