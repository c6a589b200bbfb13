package cgroup

import (
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"golang.org/x/sys/unix"
)

// NewSampler opens the files of any directory.
func NewSampler(dir int, path string) (*Sampler, error) { return newSampler(dir, path) }

// WakeOn wakes for another file than memory.events, which not every test host has.
func (g *Group) WakeOn(file string) (*Wake, error) { return g.wakeOn(file) }

// NewTrigger is a pressure trigger on any file, armed at that reading.
func NewTrigger(path string, armed memlimit.Pressure) (*Wake, error) {
	h, err := hold(unix.AT_FDCWD, path, unix.O_RDONLY)
	return &Wake{file: h, trigger: true, armed: armed}, err
}
