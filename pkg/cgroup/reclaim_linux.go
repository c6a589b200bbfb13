package cgroup

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"

	"github.com/sessionbox/sessionbox/pkg/internal/kfile"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"golang.org/x/sys/unix"
)

// reclaimFile (Linux 5.19) takes how many bytes are to be put out of memory.
const reclaimFile = "memory.reclaim"

// Reclaim puts what the frozen box holds out of memory, into swap and back into files, in
// steps between which it is seen whether it may go on: the room in swap, the disk and
// whether the box stands still. Each step blocks for as long as the kernel takes.
//
// The error is for what kept us from knowing. That something stays is none; Why says it.
func (b *Box) Reclaim(ctx context.Context) (r memlimit.Reclaimed, err error) {
	before, ok := b.Top.charged()
	if !ok {
		r.Why = memlimit.WhyNoController
		return r, nil
	}
	r.BeforeBytes = before
	defer func() { b.settleUp(&r) }()
	if !b.Top.Has(reclaimFile) {
		r.Why = memlimit.WhyNoReclaim
		return r, nil
	}
	room, err := b.newSwapRoom()
	if err != nil {
		return r, err
	}
	defer room.close()
	for r.Why == "" {
		if err := b.reclaimStep(ctx, room, &r); err != nil {
			return r, err
		}
	}
	return r, nil
}

// reclaimStep reclaims once, or sets Why when it is to be left at that.
func (b *Box) reclaimStep(ctx context.Context, room *swapRoom, r *memlimit.Reclaimed) error {
	if ctx.Err() != nil {
		r.Why = memlimit.WhyBrokenOff
		return nil
	}
	if frozen, err := b.Top.Frozen(); err == nil && !frozen {
		r.Why = memlimit.WhyThawed
		return nil
	}
	held, ok := b.Top.swappable()
	if !ok {
		r.Why = memlimit.WhyNoController // it was, a moment ago
		return nil
	}
	left, total, err := room.left()
	if err != nil {
		return err
	}
	n, why := memlimit.Chunk(held, left, diskBusy())
	if n == 0 {
		r.Why = why
		if total == 0 && why != memlimit.WhyDone {
			r.Why = memlimit.WhyNoSwap
		}
		return nil
	}
	// Never os.File: it would wait for ever for the file to be ready (facts/memory.md,
	// fact 6). EAGAIN: less than that could be had.
	switch err := b.Top.write(reclaimFile, strconv.FormatUint(n, 10)); {
	case errors.Is(err, unix.EAGAIN):
		r.Why = memlimit.WhyNoMore
		if held, ok := b.Top.swappable(); ok && held < 1<<20 {
			r.Why = memlimit.WhyDone
		}
	case isGone(err):
		r.Why = memlimit.WhyNoController
	case err != nil:
		return err
	}
	return nil
}

// settleUp fills in what is left when it is over.
func (b *Box) settleUp(r *memlimit.Reclaimed) {
	r.AfterBytes, _ = b.Top.charged()
	r.StayedBytes, _ = b.Top.swappable()
	if n := b.Top.number("memory.swap.current"); n != nil {
		r.SwapBytes = *n
	}
}

// charged is what g is charged, page cache included.
func (g *Group) charged() (uint64, bool) {
	n := g.number("memory.current")
	if n == nil {
		return 0, false
	}
	return *n, true
}

// swappable is what g holds that only swap can take.
func (g *Group) swappable() (uint64, bool) {
	text, err := g.read("memory.stat")
	if err != nil {
		return 0, false
	}
	stat, err := memlimit.ParseStat(text)
	return stat.Anon + stat.Shmem, err == nil
}

// diskBusy is the share of the last ten seconds in which something waited for the disk, 0
// where the kernel does not tell.
func diskBusy() float64 {
	text, err := kfile.ReadAt(unix.AT_FDCWD, "/proc/pressure/io")
	if err != nil {
		return 0
	}
	percent, _ := memlimit.Avg10(text)
	return percent / 100
}

// swapRoom tells how much more of a box can go to swap: what it, and all around it, may
// have there, and what is free.
type swapRoom struct {
	path []*Sampler // from the inside out
	host *HostSampler
}

func (b *Box) newSwapRoom() (*swapRoom, error) {
	host, err := NewHostSampler("/proc")
	if err != nil {
		return nil, err
	}
	r := &swapRoom{host: host}
	for dir, g := b.Top.path, b.Top; ; dir = filepath.Dir(dir) {
		if g == nil {
			if g, err = Open(dir); err != nil {
				return r, nil // above the mount, or not ours to read
			}
		}
		s, err := g.Sampler()
		if g != b.Top {
			g.Close()
		}
		if err != nil {
			r.close()
			return nil, err
		}
		r.path, g = append(r.path, s), nil
	}
}

// left is the room, and what the machine has of swap altogether.
func (r *swapRoom) left() (room, total uint64, err error) {
	samples := make([]memlimit.Sample, len(r.path))
	path := make([]*memlimit.Sample, len(r.path))
	for i, s := range r.path {
		s.Fresh()
		if err := s.Sample(&samples[i]); err != nil && !errors.Is(err, ErrNoMemory) {
			return 0, 0, err
		}
		path[i] = &samples[i]
	}
	var host memlimit.Sample
	free, worth, err := r.host.Sample(&host)
	if err != nil {
		return 0, 0, err
	}
	memlimit.SpreadSwap(path, free, worth)
	return path[0].SwapRoom, free + host.Swap, nil
}

func (r *swapRoom) close() {
	for _, s := range r.path {
		s.Close()
	}
	r.host.Close()
}
