package integration_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// heldMiB is what the sessions of these tests hold, in MiB.
const heldMiB = 160

// hibernate hibernates a session and gives the report.
func (r *rig) hibernate(ref string) session.HibernateReport {
	r.t.Helper()
	o := r.run("hibernate", "--json", ref).must(r.t, 0, "hibernate "+ref)
	var all []session.HibernateReport
	if err := json.Unmarshal(o.stdout, &all); err != nil || len(all) != 1 {
		r.t.Fatalf("hibernate --json: %v\n%s", err, o.stdout)
	}
	return all[0]
}

// swapTotal is what the machine has of swap, in bytes.
func swapTotal(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^SwapTotal: +(\d+) kB$`).FindSubmatch(b)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// holding opens a session with one that holds memory and ticks.
func (r *rig) holding(name string) (session.Info, payloads) {
	r.t.Helper()
	info := r.inspect(r.open(name))
	p := r.payloads(name)
	r.detach(info.ID, p.argv("hog", "--arg", strconv.Itoa(heldMiB))...)
	p.await(1)
	p.ticking()
	return info, p
}

// still asserts that nothing of the payloads goes on while the box is frozen.
func (p payloads) still(what string) {
	p.r.t.Helper()
	before := ticksIn(p.dir)
	time.Sleep(500 * time.Millisecond) // ten ticks
	if after := ticksIn(p.dir); after != before {
		p.r.t.Errorf("%s: the counter went on from %d to %d", what, before, after)
	}
}

// TestHibernate: a session stands still and is out of memory, as far as there is somewhere
// to put it; what stayed is said, and why. A thaw wakes it, and so does the next command.
func TestHibernate(t *testing.T) {
	r := newRig(t)
	info, p := r.holding("dozy")
	_, err := os.Stat(filepath.Join(info.Box.Path, "memory.reclaim"))
	able, swap := err == nil, swapTotal(t)
	for _, wake := range [][]string{{"thaw", info.ID}, {"exec", info.ID, "--", "true"}} {
		out := 0 // since the time before, what it did not need again
		if able {
			out, _ = strconv.Atoi(control(t, info.Box.Path, "memory.swap.current")) // none: there is no such file
		}
		report := r.hibernate(info.ID)
		p.still("hibernated")
		i := r.inspect(info.ID)
		if !i.Box.Frozen || !i.Box.Hibernated {
			t.Errorf("the session is shown as %+v", i.Box)
		}
		switch {
		case able && swap > heldMiB<<20*2 && report.Why == "the disk is busy":
			// With what went before: it is left at that.
		case able && swap > heldMiB<<20*2:
			if report.ReclaimedBytes+uint64(out) < heldMiB<<20*8/10 || report.SwapBytes < heldMiB<<20*8/10 {
				t.Errorf("of %d MiB that it held, %d of them swapped out before: %+v", heldMiB, out>>20, report)
			}
			if n, err := strconv.Atoi(control(t, info.Box.Path, "memory.current")); err != nil || n > heldMiB<<20/3 {
				t.Errorf("the box is charged %d bytes still (%v), %+v", n, err, report)
			}
		case report.Complete || report.Why == "":
			t.Errorf("there is nowhere to put it, and it does not say so: %+v", report)
		case able && swap == 0 && report.Why != "this host has no swap":
			t.Errorf("without swap it says %q", report.Why)
		}
		t.Logf("memory.reclaim there: %v, %d MiB of swap: %+v", able, swap>>20, report)
		r.run(wake...).must(t, 0, wake[0]+" of a hibernated session")
		if i := r.inspect(info.ID); i.Box.Frozen || i.Box.Hibernated {
			t.Errorf("after %s it is shown as %+v", wake[0], i.Box)
		}
		p.ticking()
	}
	r.hibernate(info.ID)
	r.closed(info.ID, graceFlags()...)
	p.stopped()
}

// TestHibernateInterrupted: whoever hibernates a session is killed at any moment. What is
// left runs, or is frozen and shown so; it can be thawed and closed.
func TestHibernateInterrupted(t *testing.T) {
	countedApart(t)
	r := newRig(t)
	c := r.canary()
	info, p := r.holding("broken-off")
	took := time.Duration(r.hibernate(info.ID).TookSeconds * float64(time.Second))
	r.run("thaw", info.ID).must(t, 0, "thaw")
	for range moments() {
		p.ticking()
		after := somewhere(took + 100*time.Millisecond)
		h := r.start(bin(), "hibernate", info.ID)
		time.Sleep(after)
		if err := h.id.kill(); err != nil {
			t.Fatal(err)
		}
		h.wait()
		when := "killed after " + after.String()
		i := r.inspect(info.ID)
		if listed, ok := r.listed(info.ID); !ok || listed.Box.Frozen != i.Box.Frozen {
			t.Errorf("%s: ls and inspect disagree: %+v, %+v", when, listed.Box, i.Box)
		}
		if i.Box.Frozen {
			if !i.Box.Hibernated {
				t.Errorf("%s: it is frozen and not shown as hibernated", when)
			}
			p.still(when)
		}
		r.exec(info.ID, "true").must(t, 0, when+": exec")
	}
	p.ticking()
	c.lives()
	r.closed(info.ID, graceFlags()...)
	p.stopped()
}
