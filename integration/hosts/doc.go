// Package hosts makes the machines that the integration tests run on: a real
// systemd without a virtual machine, and a real Debian kernel without KVM.
//
// # Try your code against a real systemd
//
//	go run ./integration/hosts/cmd/nshost -route ssh -- systemctl --user status
//
// boots Debian 12 (systemd 252) as PID 1 of its own namespaces in two or three
// seconds, runs the command as the unprivileged user agent from an ssh login,
// and leaves nothing behind. To bring a program along:
//
//	CGO_ENABLED=0 go build -o /tmp/sessionbox ./cmd/sessionbox
//	go build -o /tmp/nshost ./integration/hosts/cmd/nshost
//	/tmp/nshost -copy /tmp/sessionbox:/usr/local/bin/sessionbox -route manager -- sessionbox doctor
//
// The built nshost ends with the exit code of the command ("go run" makes a 1
// of it). Without a command it keeps the host until Ctrl-C and prints the
// nsenter line that gets a root shell inside. -route says where the command runs:
//
//	enter    as root in init.scope, by nsenter: a look around
//	root     as root in a transient service of the system manager
//	ssh      as agent in a logind session (user-1000.slice/session-N.scope)
//	manager  as agent in a transient service of its user manager (user@1000.service)
//
// With -vm the same command runs in a QEMU guest with the kernel of that
// generation, a memory controller and PSI: -vm -gen trixie. It takes 20 to 40
// seconds, and under emulation everything in it is 10 to 20 times slower.
//
// The first use of a generation runs debootstrap (about a minute and a
// half); the result is kept in $SESSIONBOX_TEST_CACHE, else in
// $XDG_CACHE_HOME/sessionbox-test, else in ~/.cache/sessionbox-test.
// Remove that directory to get rid of everything. Both hosts need root.
//
// # What it guarantees
//
//   - A root file system is complete or absent: it is built aside, under a lock,
//     and renamed. It is keyed by a hash of its recipe, and never written to
//     afterwards: hosts run on an overlay whose upper layer is a tmpfs of their own
//     mount namespace, guests on a snapshot.
//   - All that a host or a guest is made of lives in one cgroup that this package
//     made (sbxtest-...) and ends by that cgroup's cgroup.kill. Nothing is ever
//     signalled by name, and nothing outside that cgroup at all.
//   - Close, a cancelled context and a test binary that is killed outright end the
//     host; the first two leave nothing, the last one leaves an empty cgroup (and
//     for a guest a directory below the cache), which the next start sweeps. Whose
//     they were is told by pid, start time and pid namespace, which are in the name.
//
// # What it does not
//
// A namespaced host is no security boundary: root in it is root on the machine.
// The controllers of cgroup v2 there are those the machine's v2 tree has: on a
// hybrid machine no memory, pids or cpu. It needs cgroup.kill, so Linux 5.14 or
// newer outside; what runs in a guest has no such floor.
package hosts
