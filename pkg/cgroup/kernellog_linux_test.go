package cgroup

import (
	"testing"
	"time"
)

func TestParseKill(t *testing.T) {
	for name, c := range map[string]struct {
		record string
		want   logged
		ok     bool
	}{
		"of a cgroup's limit": {"4,812,95000000,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/sessionbox.slice/sessionbox-a.slice,task_memcg=/sessionbox.slice/sessionbox-a.slice/task-1,task=node,pid=4711,uid=1000\n",
			logged{"/sessionbox.slice/sessionbox-a.slice", "/sessionbox.slice/sessionbox-a.slice/task-1", "node", 4711, 95 * time.Second}, true},
		"of the whole machine": {"4,812,95,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/a,task=hog,pid=12,uid=0\n SUBSYSTEM=x\n",
			logged{"", "/a", "hog", 12, 95 * time.Microsecond}, true},
		"a name that is one long trap": {"4,1,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/a,task_memcg=/a/b,task=x,pid=1,uid=2,pid=12,uid=0\n",
			logged{"/a", "/a/b", "x,pid=1,uid=2", 12, time.Microsecond}, true},
		"no pid":             {"4,1,1,-;oom-kill:constraint=CONSTRAINT_NONE,global_oom,task_memcg=/a,task=hog\n", logged{}, false},
		"a pid that is none": {"4,1,1,-;oom-kill:constraint=CONSTRAINT_NONE,global_oom,task_memcg=/a,task=hog,pid=x\n", logged{}, false},
		"another line":       {"6,1,1,-;Memory cgroup out of memory: Killed process 12 (hog)\n", logged{}, false},
		"said by somebody":   {"12,1,1,-;systemd: oom-kill:constraint=CONSTRAINT_NONE,task_memcg=/a,task=hog,pid=1\n", logged{}, false},
		"nothing":            {"", logged{}, false},
	} {
		if got, ok := parseKill([]byte(c.record)); ok != c.ok || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v, %v", name, got, ok, c.want, c.ok)
		}
	}
}

func TestBelow(t *testing.T) {
	whole := Mount{Point: "/sys/fs/cgroup", Root: "/"}
	for _, c := range []struct {
		cgroup string
		m      Mount
		dir    string
		rel    string
		ok     bool
	}{
		{"/s.slice/task-1", whole, "/sys/fs/cgroup/s.slice/task-1", "", true},
		{"/s.slice/task-1/deeper", whole, "/sys/fs/cgroup/s.slice/task-1", "/deeper", true},
		{"/s.slice/task-10", whole, "/sys/fs/cgroup/s.slice/task-1", "", false},
		{"/other/task-1", whole, "/sys/fs/cgroup/s.slice/task-1", "", false},
		{"/docker/abc/s.slice/task-1", Mount{Point: "/sys/fs/cgroup/", Root: "/docker/abc"}, "/sys/fs/cgroup/s.slice/task-1", "", true},
		{"/a", whole, "/sys/fs/cgroup", "", false},
		{"/a", whole, "/elsewhere", "", false},
	} {
		rel, ok := below(c.cgroup, c.m, c.dir)
		if ok != c.ok || ok && rel != c.rel {
			t.Errorf("below(%q, %q): %q, %v; want %q, %v", c.cgroup, c.dir, rel, ok, c.rel, c.ok)
		}
	}
}

// TestKernelLog: it can be read to its end, and does not wait for more.
func TestKernelLog(t *testing.T) {
	all, err := readKernelLog()
	if err != nil {
		t.Skipf("the kernel's log may not be read here: %v", err)
	}
	for _, l := range all {
		if l.pid <= 0 || l.comm == "" || l.task == "" {
			t.Errorf("%+v", l)
		}
	}
}

// TestLoggedKill: who was not killed for want of memory was not.
func TestLoggedKill(t *testing.T) {
	for _, pid := range []int{0, -1, 1} {
		if k := LoggedKill(pid, 0); k != nil {
			t.Errorf("process %d: %+v", pid, k)
		}
	}
}
