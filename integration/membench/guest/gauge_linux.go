package main

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/integration/membench/score"
)

// meminfo gives a line of /proc/meminfo in MiB, 0 for one that is not there.
func meminfo(name string) int {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name+":"); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n / 1024
		}
	}
	return 0
}

// stalled is for how long everything has waited for memory, ever; 0 where the kernel
// does not say.
func stalled() time.Duration {
	b, err := os.ReadFile("/proc/pressure/memory")
	if err != nil {
		return 0
	}
	_, full, _ := strings.Cut(string(b), "full ")
	_, total, _ := strings.Cut(full, "total=")
	n, _ := strconv.ParseInt(strings.TrimSpace(total), 10, 64)
	return time.Duration(n) * time.Microsecond
}

// thrashing is the share of two seconds in which everything waits for memory from which
// on a host is said to thrash.
const thrashing = .40

// gauge says once a second how it is.
func (r *stage) gauge(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	was := stalled()
	before, last := 0., clock()
	said := false
	guard := find(r.box.guard)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := clock()
		all := stalled()
		full := (all - was).Seconds() / (now - last).Seconds()
		was, last = all, now
		if !said && (full+before)/2 > thrashing {
			said = true
			r.tape.sayAt(now, score.Record{What: score.Thrash})
		}
		before = full
		r.tape.sayAt(now, score.Record{What: score.Progress, Full: full, MiB: r.taken(), Available: meminfo("MemAvailable"), SwapFree: meminfo("SwapFree"), Guard: used(guard)})
	}
}

// taken is what the actors of each session have.
func (r *stage) taken() map[string]int {
	all := map[string]int{}
	for _, m := range r.cast {
		all[m.session] += int(m.page.taken.Load() / mib)
	}
	return all
}

// find is the process of the guard of that name, 0 for none.
func find(guard string) int {
	// Ours is started on demand, as session.GuardArg has it.
	words := map[string]string{"sessionbox": "sessionbox\x00__guard", "earlyoom": "earlyoom", "nohang": "nohang", "systemd-oomd": "systemd-oomd"}
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || words[guard] == "" {
		return 0
	}
	for _, path := range all {
		b, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(b), words[guard]) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && pid != os.Getpid() {
			return pid
		}
	}
	return 0
}

// used is the processor time of a process, in seconds; 0 for one that is not there.
func used(pid int) float64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	const perSecond = 100 // USER_HZ
	return (user + system) / perSecond
}
