package main

import (
	"os"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/integration/membench/plan"
	"golang.org/x/sys/unix"
)

func TestOOMKill(t *testing.T) {
	const line = "6,1234,5000000,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/sessionbox.slice/sessionbox-abc.slice," +
		"task_memcg=/sessionbox.slice/sessionbox-abc.slice/sessionbox-abc-main.service/task-1,task=guest,pid=4711,uid=0\n"
	at, r, ok := oomKill(line)
	if !ok || at != 5*time.Second || r.PID != 4711 || r.Name != "guest" || r.Text != "/sessionbox.slice/sessionbox-abc.slice/sessionbox-abc-main.service/task-1" {
		t.Errorf("%v %+v %t", at, r, ok)
	}
	b := box{names: map[string]string{"abc": "a"}}
	if got := b.sessionIn(r.Text); got != "a" {
		t.Errorf("it is of %q", got)
	}
	if got := b.sessionIn("/system.slice/ssh.service"); got != "" {
		t.Errorf("sshd is of %q", got)
	}
	for _, other := range []string{"", "6,1,2,-;hello", "x;oom-kill:task_memcg=/,task=a,pid=1", "3,1,2,-;Memory cgroup out of memory: Killed process 4711 (guest)"} {
		if _, _, ok := oomKill(other); ok {
			t.Errorf("%q is taken for a kill", other)
		}
	}
}

func TestPagePath(t *testing.T) {
	if got := sessionOf(pagePath("/run/membench-1.2", "s00", "1.11")); got != "s00" {
		t.Errorf("the page is of %q", got)
	}
}

// TestWorker: it takes what it should, no faster than it should.
func TestWorker(t *testing.T) {
	dir := t.TempDir()
	p, err := openPage(pagePath(dir, "a", "0.0"), os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{page: p, a: &plan.Actor{Do: plan.Grow, Rate: 16, UpTo: 4}}
	began := clock()
	if err := w.reserve(); err != nil {
		t.Fatal(err)
	}
	w.take(2)
	w.grow()
	if took := clock() - began; took < 100*time.Millisecond {
		t.Errorf("2 MiB at 16 MiB/s took %v", took)
	}
	if got := p.taken.Load(); got != 4*mib {
		t.Errorf("it has taken %d bytes", got)
	}
	if err := unix.Munmap(w.room); err != nil {
		t.Error(err)
	}
}
