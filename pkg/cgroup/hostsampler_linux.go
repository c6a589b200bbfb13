package cgroup

import (
	"bytes"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// HostSampler reads the memory of the machine again and again, without allocating.
type HostSampler struct {
	buf [32 << 10]byte // /proc/vmstat of 6.18 takes 6 KiB

	meminfo, vmstat, pressure, swaps held
}

// NewHostSampler opens the files of a procfs, "/proc".
func NewHostSampler(procfs string) (*HostSampler, error) {
	dir, err := unix.Open(procfs, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", procfs, err)
	}
	defer unix.Close(dir)
	h := &HostSampler{}
	for _, f := range []struct {
		h    *held
		name string
		need bool
	}{{&h.meminfo, "meminfo", true}, {&h.vmstat, "vmstat", false}, {&h.pressure, "pressure/memory", false}, {&h.swaps, "swaps", false}} {
		got, err := hold(dir, f.name, unix.O_RDONLY)
		*f.h = got
		if f.need && (err != nil || !got.here()) {
			h.Close()
			return nil, fmt.Errorf("sample the host: %s: %w", f.name, errors.Join(err, unix.ENOENT))
		}
	}
	return h, nil
}

// Sample reads the figures into out, and gives what is free of swap and what that is
// worth, for memlimit.SpreadSwap.
func (h *HostSampler) Sample(out *memlimit.Sample) (swapFree uint64, worth float64, err error) {
	out.At = proc.Clock()
	b, err := h.meminfo.read(h.buf[:])
	if err != nil {
		return 0, 0, fmt.Errorf("read meminfo: %w", err)
	}
	host, err := memlimit.ParseMeminfo(b)
	if err != nil {
		return 0, 0, fmt.Errorf("meminfo: %w", err)
	}
	host.Fill(out)
	out.SwapRoom, out.Bound = 0, 0
	if h.vmstat.here() {
		if b, err = h.vmstat.read(h.buf[:]); err == nil {
			err = memlimit.ParseVmstat(b, out)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("vmstat: %w", err)
		}
	}
	if h.pressure.here() {
		b, err = h.pressure.read(h.buf[:])
		if errors.Is(err, unix.EOPNOTSUPP) { // psi=0
			h.pressure.close()
		} else if err == nil {
			out.Pressure, err = memlimit.ParsePressure(b)
			if err != nil {
				return 0, 0, fmt.Errorf("pressure: %w", err)
			}
		}
	}
	out.Done = proc.Clock()
	return host.SwapFree, h.worth(host), nil
}

// Available is what of memory is left, and no more: it takes a tenth of a sample's time.
func (h *HostSampler) Available() (uint64, error) {
	b, err := h.meminfo.read(h.buf[:])
	if err != nil {
		return 0, fmt.Errorf("read meminfo: %w", err)
	}
	host, err := memlimit.ParseMeminfo(b)
	if err != nil {
		return 0, fmt.Errorf("meminfo: %w", err)
	}
	return host.Available, nil
}

// worth is that of compressed memory when any of the swap lies there.
func (h *HostSampler) worth(host memlimit.Host) float64 {
	if host.SwapTotal == 0 || !h.swaps.here() {
		return memlimit.WorthDisk
	}
	if b, err := h.swaps.read(h.buf[:]); err == nil && bytes.Contains(b, []byte("/zram")) {
		return memlimit.WorthZram
	}
	return memlimit.WorthDisk
}

// Close releases the files.
func (h *HostSampler) Close() error {
	for _, f := range []*held{&h.meminfo, &h.vmstat, &h.pressure, &h.swaps} {
		f.close()
	}
	return nil
}
