package cgroup

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// Errors of samplers; test with errors.Is.
var (
	// ErrGone: the cgroup was removed.
	ErrGone = errors.New("the cgroup was removed")
	// ErrNoMemory: the memory controller is not here, or no more.
	ErrNoMemory = errors.New("the memory controller is not available in this cgroup")
)

// Sampler reads the memory of one cgroup again and again. It holds its files open and
// allocates nothing: one sample costs two to eight short reads.
type Sampler struct {
	path string
	buf  [8 << 10]byte // a memory.stat of 6.12 takes 2 KiB
	look memlimit.Look
	// still is that of Still.
	still memlimit.Look

	current, stat, swap, most, high, swapMost held
	events, pressure, state                   held
	cpu                                       held // where there is no memory controller

	last memlimit.Sample
}

// Sampler opens the group's files. A sampler of a group without the memory
// controller can be had, and says so in each sample.
func (g *Group) Sampler() (*Sampler, error) { return newSampler(g.fd(), g.path) }

func newSampler(dir int, path string) (*Sampler, error) {
	s := &Sampler{path: path}
	for _, f := range []struct {
		h    *held
		name string
	}{
		{&s.current, "memory.current"}, {&s.stat, "memory.stat"}, {&s.swap, "memory.swap.current"}, {&s.most, "memory.max"},
		{&s.high, "memory.high"}, {&s.swapMost, "memory.swap.max"}, {&s.events, "memory.events"},
		{&s.pressure, "memory.pressure"}, {&s.state, "cgroup.events"},
	} {
		h, err := hold(dir, f.name, unix.O_RDONLY|unix.O_NOFOLLOW)
		if errors.Is(err, unix.EOPNOTSUPP) && f.h == &s.pressure { // PSI is off
			h, err = held{-1, f.name}, nil
		}
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("sample %s: %w", path, err)
		}
		*f.h = h
	}
	s.cpu = held{-1, "cpu.stat"}
	if !s.stat.here() {
		var err error
		if s.cpu, err = hold(dir, s.cpu.path, unix.O_RDONLY|unix.O_NOFOLLOW); err != nil {
			s.Close()
			return nil, fmt.Errorf("sample %s: %w", path, err)
		}
	}
	return s, nil
}

// Sample reads the figures into out, but for its room in swap and its bound, which
// are not the group's own (see memlimit.SpreadSwap). Without the memory controller
// the error is ErrNoMemory, and pressure and the freezer's state are set all the
// same; ErrGone when the group was removed.
func (s *Sampler) Sample(out *memlimit.Sample) error {
	s.last.At = proc.Clock()
	err := s.read()
	s.last.Done = proc.Clock()
	*out = s.last
	if err == nil || errors.Is(err, ErrNoMemory) {
		return err
	}
	if errors.Is(err, unix.ENODEV) { // of an open file: it, or all of the group, is gone
		if _, e := s.state.read(s.buf[:256]); errors.Is(e, unix.ENODEV) {
			return fmt.Errorf("%s: %w", s.path, ErrGone)
		}
		return fmt.Errorf("%s: %w", s.path, ErrNoMemory)
	}
	return fmt.Errorf("sample %s: %w", s.path, err)
}

// Still takes the sample before for one of now, at a fifth of the cost, when what is
// charged has hardly moved since. Not ok when it has, when half of the ceiling is
// charged, and every tenth time: then it is time for a Sample.
func (s *Sampler) Still(out *memlimit.Sample) bool {
	if !s.current.here() || s.last.At == 0 {
		return false
	}
	at := proc.Clock()
	current, err := s.current.amount(s.buf[:])
	if err != nil || s.still.Want(current, s.last.Max) {
		s.Fresh()
		return false
	}
	s.last.At, s.last.Done = at, proc.Clock()
	*out = s.last
	return true
}

// CPU is the processor time that the group has used, where nothing cheaper tells
// whether its memory has moved: without the memory controller. Who takes memory needs
// some.
func (s *Sampler) CPU() (used time.Duration, ok bool) {
	if !s.cpu.here() {
		return 0, false
	}
	b, err := s.cpu.read(s.buf[:32]) // its first line is what is wanted
	if err != nil {
		return 0, false
	}
	usec, ok := flatKey(b, "usage_usec")
	return time.Duration(usec) * time.Microsecond, ok
}

func (s *Sampler) read() error {
	l := &s.last
	if s.state.here() {
		b, err := s.state.read(s.buf[:])
		if err != nil {
			return err
		}
		frozen, _ := flatKey(b, "frozen")
		l.Frozen = frozen != 0
	}
	if s.pressure.here() {
		b, err := s.pressure.read(s.buf[:])
		if errors.Is(err, unix.EOPNOTSUPP) { // it is there and PSI is off (psi=0)
			s.pressure.close()
		} else if err != nil {
			return err
		} else if l.Pressure, err = memlimit.ParsePressure(b); err != nil {
			return err
		}
	}
	if !s.stat.here() {
		l.Tier, l.Max, l.High, l.SwapMax = memlimit.TierProcesses, memlimit.Infinity, memlimit.Infinity, memlimit.Infinity
		return ErrNoMemory
	}
	l.Tier = memlimit.TierCgroup
	var err error
	if l.Max, err = s.most.amount(s.buf[:]); err != nil {
		return err
	}
	if s.events.here() {
		b, err := s.events.read(s.buf[:])
		if err != nil {
			return err
		}
		if l.Events, err = memlimit.ParseEvents(b); err != nil {
			return err
		}
	}
	// The root of the tree has no memory.current, and memory.stat then is asked for.
	if s.current.here() {
		current, err := s.current.amount(s.buf[:])
		if err != nil {
			return err
		}
		if !s.look.Want(current, l.Max) {
			return nil
		}
	}
	b, err := s.stat.read(s.buf[:])
	if err != nil {
		return err
	}
	stat, err := memlimit.ParseStat(b)
	if err != nil {
		return err
	}
	l.Of(&stat)
	l.Swap = 0
	if s.swap.here() { // it is not without CONFIG_SWAP, or with swapaccount=0
		if l.Swap, err = s.swap.amount(s.buf[:]); err != nil {
			return err
		}
	}
	if l.High, err = s.high.amount(s.buf[:]); err != nil {
		return err
	}
	l.SwapMax, err = s.swapMost.amount(s.buf[:])
	return err
}

// Fresh has the next sample read everything.
func (s *Sampler) Fresh() { s.look = memlimit.Look{} }

// Close releases the files.
func (s *Sampler) Close() error {
	for _, h := range []*held{&s.current, &s.stat, &s.swap, &s.most, &s.high, &s.swapMost, &s.events, &s.pressure, &s.state, &s.cpu} {
		h.close()
	}
	return nil
}
