package memlimit

import (
	"testing"
	"time"
)

// What a Mac of 16 GiB says, and the level that this is.
func TestMacLevels(t *testing.T) {
	const gib = 1 << 30
	// share gives figures whose r is that.
	share := func(r float64) MacFigures {
		return MacFigures{Level: 1, Total: 16 * gib, Available: .25, Compressor: uint64(4 * gib * (1/r - 1)), SwapDisk: 100 * gib}
	}
	with := func(f MacFigures, change func(*MacFigures)) MacFigures { change(&f); return f }
	for _, c := range []struct {
		name string
		f    MacFigures
		want Level
	}{
		{"nothing compressed", share(1), OK},
		{"half of it would be compressed", share(.7), OK},
		{"notice", share(.59), Notice},
		{"just above the kernel's warning", share(.505), Notice},
		{"where the kernel warns", share(.499), Warn},
		{"just above critical", share(.35), Warn},
		{"where the kernel is critical", share(.342), Critical},
		{"next to nothing", share(.01), Critical},
		{"the kernel's word is enough: warn", with(share(1), func(f *MacFigures) { f.Level = 2 }), Warn},
		{"the kernel's word is enough: critical", with(share(1), func(f *MacFigures) { f.Level = 4 }), Critical},
		{"the compressor is nearly full", with(share(.8), func(f *MacFigures) { f.Compressed = .91 }), Emergency},
		{"the share is not told", MacFigures{Level: 1, Total: 16 * gib}, OK},
		{"the share is not told, the level is", MacFigures{Level: 4, Total: 16 * gib}, Critical},
		{"nonsense", MacFigures{Level: 7, Total: 16 * gib, Available: 40}, Critical},
	} {
		var m Mac
		j := Judge{Host: true}
		s := Sample{At: time.Hour, Done: time.Hour}
		m.Fill(&s, &c.f)
		if v := j.Observe(&s); v.Level != c.want || s.Hard > s.Max {
			t.Errorf("%s: %v at %.3f, want %v", c.name, v.Level, v.Used, c.want)
		}
	}
}

// Swap that grows on a disk which is nearly full is the end; a disk that is full while it does not
// grow is not.
func TestMacSwap(t *testing.T) {
	const gib = 1 << 30
	var m Mac
	level := func(at time.Duration, swap, disk uint64) Level {
		j := Judge{Host: true}
		s := Sample{At: at, Done: at}
		m.Fill(&s, &MacFigures{Level: 1, Total: 16 * gib, Available: .5, Swap: swap, SwapDisk: disk})
		return j.Observe(&s).Level
	}
	at := time.Hour
	for _, c := range []struct {
		after      time.Duration
		swap, disk uint64
		want       Level
	}{
		{0, 2 * gib, gib, OK},
		{time.Second, 2 * gib, gib, OK},
		{time.Second, 2*gib + 1<<20, gib, Emergency},
		{time.Second, 2*gib + 1<<20, 10 * gib, OK},
		{time.Second, 8 * gib, 11 * gib, Emergency}, // 6 GiB in a minute
		{time.Second, 8 * gib, 13 * gib, OK},
		{2 * time.Minute, 8 * gib, gib, OK},
	} {
		at += c.after
		if got := level(at, c.swap, c.disk); got != c.want {
			t.Errorf("at %v, %d in swap, %d free: %v, want %v", at-time.Hour, c.swap, c.disk, got, c.want)
		}
	}
}

// What is used on the scale only rises as the share that is available falls.
func TestMacScale(t *testing.T) {
	before := -1.0
	for c := uint64(0); c < 64<<30; c += 16 << 20 {
		f := MacFigures{Total: 16 << 30, Available: .25, Compressor: c}
		used := macUsed(&f)
		if used < before || used < 0 || used >= .95 {
			t.Fatalf("%d compressed: %v after %v", c, used, before)
		}
		before = used
	}
}
