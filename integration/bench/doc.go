// Command bench measures the budgets as ratios: each row runs its two sides in
// turn, A B A B …, so that a machine whose speed drifts slows both, and prints
// the median of the pairs' ratios, their spread, and both sides.
//
//	make bench                                 the cgroup box here, then the systemd box in a test host
//	go run ./integration/bench -bin bin/sessionbox -empty bin/empty
//
// It works in a cgroup and a state directory of its own and removes both.
package main
