// Package integration drives the sessionbox command on a real kernel: every escape
// under every box, every hazard with a canary that has to live, the cases that the
// project began with.
//
// The suite is told where it runs by its environment, so that one test binary built
// with CGO_ENABLED=0 go test -c serves the machine itself and the test hosts, which
// have no Go:
//
//	SESSIONBOX_BIN            the command under test
//	SESSIONBOX_TEST_ESCAPE    the payloads, see integration/escape
//	SESSIONBOX_TEST_RECIPES   docs/recipes, and SESSIONBOX_TEST_RECIPE_GO its Go recipe, built
//	SESSIONBOX_TEST_TIER      cgroup, systemd or vm
//	SESSIONBOX_TEST_BACKEND   cgroup, systemd or lineage: the box that each session must get
//	SESSIONBOX_TEST_ROUTE     root, ssh or manager: how the suite came to run there
//	SESSIONBOX_TEST_SSH       user@host that this user can log in to without a question
//	SESSIONBOX_TEST_REQUIRE   tiers that must not be skipped
//
// With none of them it builds both programs and runs tier cgroup, if it is root on a
// Linux with a cgroup v2 mount that it may write.
//
// It harms nobody: what it starts is in cgroups that it made, and is signalled
// through a pidfd after its start time was compared. It leaves nothing: at its end it
// looks for cgroups, sessions, processes and files of its own, removes them, and
// fails for having found any. hazards.md says which test shows which hazard; soak_*.go is
// a random walk over everything at once.
package integration
