package hosts_test

import (
	"cmp"
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/integration/hosts"
)

// vmTests are the tests of the suite that run in a guest, where everything is 10 to 20
// times slower than outside: those that the kernel and systemd of a generation decide.
// SESSIONBOX_TEST_RUN chooses others.
var vmTests = []string{
	// every way out of the box, and what the project began with
	"TestEscapes", "TestShellThatExits", "TestOneLeftover", "TestPipeDoesNotHang", "TestKillTask",
	// ceilings, for which the namespaced hosts have no controllers
	"TestCeilingsAreInForce", "TestMemoryMax", "TestForkStorm", "TestLimitTooLow", "TestControllerVanishes",
	// what the kernel counts against what was taken
	"TestAccounting",
	// what the kernel kills for want of memory, told by whose limit
	"TestOOMKilled", "TestOOMChild", "TestOOMTask", "TestOOMAround", "TestOOMOfLeftover",
	// hibernation where there is no swap, and on the oldest nothing to ask for it
	"TestHibernate", "TestHibernateInterrupted",
	// the guard that watches memory, which only the guests count
	"TestMemoryWarning", "TestMemoryFreeze", "TestMemoryClose", "TestMemoryRun", "TestMemoryOfReading",
	// many at once, and inside each other
	"TestThreeDeep", "TestNoParent", "TestCrowd", "TestCrowdInOneSession", "TestOneNameManyOpens",
	// closing without what closing usually has
	"TestCloseFromInside", "TestCloseFromInsideByShell", "TestSupervisorKilled", "TestRecordsGone",
	"TestBusGone", "TestManagerReexec",
	// the life of a session: its owner killed, with a guard and without, what is kept
	"TestHarnessKilled", "TestGuardOwnerKilled", "TestKeep", "TestAdoptHook",
	// any process of sessionbox killed at any moment
	"TestOpenKilled", "TestExecKilled", "TestCloseKilled", "TestGroupKilled",
}

// vmGuests are the oldest and the newest guest, with a login of an unprivileged user.
// SESSIONBOX_TEST_GUESTS chooses others, as "bookworm/ssh,bullseye/root".
const vmGuests = "bullseye/ssh,trixie/ssh"

// vmSuiteTimeout bounds the suite in a guest.
const vmSuiteTimeout = 30 * time.Minute

// floor is what the oldest guest is there for.
var floor = regexp.MustCompile(`(?m)^kernel 5\.10\..*\nsystemd 247 .*\ncgroup\.kill missing$`)

// TestVM runs vmTests on the kernel and the systemd of Debian generations, where there
// are a memory controller and PSI.
func TestVM(t *testing.T) {
	ctx := need(t, "vm", hosts.CheckVM)
	s := buildSuite(t)
	guests := cmp.Or(os.Getenv("SESSIONBOX_TEST_GUESTS"), vmGuests)
	for guest := range strings.SplitSeq(guests, ",") {
		t.Run(guest, func(t *testing.T) {
			guestSuite(ctx, t, s, guest, 0, vmTests)
		})
	}
}

// vmSwapTests are those that need somewhere to put what is in memory. Without it they run
// in the other guests.
var vmSwapTests = []string{"TestHibernate"}

// TestVMSwap runs vmSwapTests in a guest with swap.
func TestVMSwap(t *testing.T) {
	ctx := need(t, "vm", hosts.CheckVM)
	guestSuite(ctx, t, buildSuite(t), "trixie/ssh", 1024, vmSwapTests)
}

// guestSuite runs tests of the suite in a guest.
func guestSuite(ctx context.Context, t *testing.T, s suite, guest string, swapMiB int, tests []string) {
	gen, _, _ := strings.Cut(guest, "/")
	suiteIn(ctx, t, s, guest, openRoot(ctx, t, hosts.Generation(gen)), swapMiB, tests)
}

// suiteIn runs them in a guest with a root of its own; env is what else they are told.
func suiteIn(ctx context.Context, t *testing.T, s suite, guest string, root *hosts.Root, swapMiB int, tests []string, env ...string) {
	gen, routeName, _ := strings.Cut(guest, "/")
	route, err := hosts.ParseRoute(routeName)
	if err != nil {
		t.Fatal(err)
	}
	facts := `echo "kernel $(uname -r)"; systemctl --version | head -n 1
				f=/sys/fs/cgroup/system.slice/cgroup.kill; [ -e $f ] && echo "cgroup.kill there" || echo "cgroup.kill missing"`
	res, err := hosts.BootVM(ctx, root, hosts.VMOptions{
		Files:     s.files,
		MemoryMiB: 1536,
		SwapMiB:   swapMiB,
		Timeout:   vmSuiteTimeout + 5*time.Minute,
		Output:    show(t),
		Steps: []hosts.Step{
			{Name: "facts", Route: hosts.AsRoot, Args: []string{"sh", "-c", facts}},
			{Name: "suite", Route: route, Args: s.args(vmSuiteTimeout, tests...), Env: append(s.env("vm", route), env...), Dir: hosts.PayloadDir},
		},
	})
	if err != nil {
		t.Errorf("%v", err)
	}
	if res == nil {
		return
	}
	t.Logf("systemd was %s, on and off again in %s; %s", res.State, res.Took.Round(time.Second), strings.ReplaceAll(strings.TrimSpace(res.Steps[0].Output), "\n", ", "))
	if hosts.Generation(gen) == hosts.Bullseye && !floor.MatchString(res.Steps[0].Output) {
		t.Errorf("the oldest guest is not the floor that it is to show: %q", res.Steps[0].Output)
	}
	suite := res.Steps[1]
	if !suite.Ran {
		t.Error("the suite did not end in the guest")
	}
	s.judge(t, suite.Output, suite.Exit)
	if os.Getenv("SESSIONBOX_TEST_RUN") == "" {
		allRan(t, suite.Output, tests)
	}
	if t.Failed() {
		t.Logf("console of the guest:\n%s", res.Console)
	}
}

// allRan asserts that no chosen test is missing, as one that was renamed would be.
func allRan(t *testing.T, output string, names []string) {
	t.Helper()
	for _, name := range names {
		if !slices.ContainsFunc(parseInner(output), func(inner *innerTest) bool { return inner.name == name }) {
			t.Errorf("%s did not run in the guest", name)
		}
	}
}

// TestVMGuest checks the guest itself: its routes, and a reboot between two steps.
func TestVMGuest(t *testing.T) {
	ctx := need(t, "vm", hosts.CheckVM)
	root := openRoot(ctx, t, hosts.Trixie)
	brought := t.TempDir() + "/brought"
	if err := os.WriteFile(brought, []byte("#!/bin/sh\ncat /proc/self/cgroup; exit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	sh := func(script string) []string { return []string{"sh", "-c", script} }
	res, err := hosts.BootVM(ctx, root, hosts.VMOptions{
		Timeout: 15 * time.Minute,
		SwapMiB: 64,
		Files:   []hosts.File{{Src: brought, Dst: hosts.PayloadDir + "/brought"}},
		Steps: []hosts.Step{
			{Name: "ssh", Route: hosts.SSH, Args: []string{hosts.PayloadDir + "/brought"}},
			{Name: "manager", Route: hosts.Manager, Args: sh("cat /proc/self/cgroup; printf no-newline")},
			{Name: "write", Route: hosts.AsRoot, Args: sh("echo $A >/var/lib/kept; cat /sys/fs/cgroup/cgroup.controllers /proc/sys/kernel/random/boot_id"), Env: []string{"A=it's $kept"}},
			{Name: "reboot", Reboot: true},
			{Name: "read", Route: hosts.AsRoot, Args: sh("cat /var/lib/kept; grep -c partition /proc/swaps")},
		},
	})
	if err != nil {
		t.Fatalf("%v\n%+v", err, res)
	}
	if res.State != "running" {
		t.Errorf("systemd in the guest is %q, want running", res.State)
	}
	for i, want := range []struct {
		exit int
		text string
	}{
		{3, "/user.slice/user-1000.slice/session-"},
		{0, "user@1000.service/app.slice/"},
		{0, "memory"},
		{0, ""},
		{0, "it's $kept\n1"},
	} {
		got := res.Steps[i]
		if !got.Ran || got.Exit != want.exit || !contains(got.Output, want.text) {
			t.Errorf("step %s: ran %t, exit code %d, output %q; want exit code %d and %q", got.Step.Name, got.Ran, got.Exit, got.Output, want.exit, want.text)
		}
	}
}
