package hosts_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/integration/hosts"
)

// lifeScript begins each script of TestVMLife: the records are kept on disk, so that
// they are there after a reboot.
const lifeScript = `set -eu
	sb=` + hosts.PayloadDir + `/sessionbox
	export SESSIONBOX_STATE_DIR=$HOME/sbx SESSIONBOX_GUARD=off
	field() { tr ',{' '\n\n' | sed -n "s/^ *\"$1\": *\"\{0,1\}\([^\"]*\)\"\{0,1\} *$/\1/p"; }
`

// wrapScript has the pid counter come round, so that canaries get the pids that two
// records name: of an owner, and of a task whose supervisor is gone.
const wrapScript = lifeScript + `
	sysctl -qw kernel.pid_max=2048
	# becomes PID: start a canary that has this pid
	becomes() {
		while :; do
			read -r last </proc/sys/kernel/ns_last_pid
			if [ "$last" = $(($1 - 1)) ]; then
				sleep 3601 & [ $! = "$1" ] && return
				kill $!
			else
				(:)
			fi
		done
	}
	sleep 3600 & owner=$!
	$sb open --name owned --owner-pid $owner >/dev/null
	$sb open --name plain >/dev/null
	$sb exec -d plain -- sleep 3600 >/dev/null
	task=$($sb inspect --json plain | field pid | head -n 1)
	kill -9 "$(sed 's/.*"supervisor":{"pid":\([0-9]*\).*/\1/' "$HOME"/sbx/sessions/*/tasks/1.json)"
	kill -9 "$task" $owner
	wait $owner || :
	while [ -e /proc/$task ]; do sleep 0.1; done
	becomes $owner; becomes "$task"
	echo "reused: owner $owner, task $task"
	$sb reconcile --json | field 'action\|reason\|state'
	$sb inspect --json plain | field state
	$sb kill plain/1; $sb close plain
	kill -0 $owner && kill -0 "$task" && echo "canaries live"
	[ "$(cat /proc/$owner/comm /proc/$task/comm | sort -u)" = sleep ] && echo "they are the canaries"
	kill $owner "$task"
`

const beforeReboot = lifeScript + `
	for i in 1 2 3; do
		$sb open --name "s$i" --lease 1h >/dev/null
		$sb exec -d "s$i" -- setsid sleep 3600 >/dev/null
	done
	$sb ls -q | wc -l
`

const afterReboot = lifeScript + `
	sleep 3602 & canary=$!
	$sb reconcile --json >"$HOME/answer"
	echo "ended: $(grep -c '"action": "ended"' "$HOME/answer"), rebooted: $(grep -c '^      "reason": "host rebooted"' "$HOME/answer")"
	echo "processes told of: $(grep -c '"fate"' "$HOME/answer" || :)"
	echo "left: $($sb ls -q | wc -l)"
	kill -0 $canary && echo "canary lives"
	$sb open --name s1 >/dev/null && $sb exec s1 -- echo "works again" && $sb close s1 >/dev/null
	kill $canary
`

// TestVMLife is what needs a machine of its own: the pid counter coming round, and a
// reboot with sessions open.
func TestVMLife(t *testing.T) {
	ctx := need(t, "vm", hosts.CheckVM)
	s := buildSuite(t)
	root := openRoot(ctx, t, hosts.Trixie)
	script := func(text string) []string { return []string{"bash", "-c", text} }
	res, err := hosts.BootVM(ctx, root, hosts.VMOptions{
		Files:     s.files,
		MemoryMiB: 1024,
		Timeout:   15 * time.Minute,
		Output:    show(t),
		Steps: []hosts.Step{
			{Name: "pids come round", Route: hosts.AsRoot, Args: script(wrapScript), Env: []string{"HOME=/root"}},
			{Name: "before the reboot", Route: hosts.SSH, Args: script(beforeReboot)},
			{Name: "reboot", Reboot: true},
			{Name: "after the reboot", Route: hosts.SSH, Args: script(afterReboot)},
		},
	})
	if err != nil {
		t.Fatalf("%v\n%+v", err, res)
	}
	for i, want := range [][]string{
		{"reused: owner", "its owner is gone", "lost", "canaries live", "they are the canaries"},
		{"3"},
		nil,
		{"ended: 3, rebooted: 3", "processes told of: 0", "left: 0", "canary lives", "works again"},
	} {
		got := res.Steps[i]
		for _, text := range want {
			if got.Exit != 0 || !strings.Contains(got.Output, text) {
				t.Errorf("step %s: exit code %d, want %q in\n%s", got.Step.Name, got.Exit, text, got.Output)
			}
		}
	}
}
