// Package memlimit is the arithmetic of ceilings and of memory in use: sizes as
// people write them, limits in the three forms that they are applied in (OCI
// resources, systemd unit properties, cgroup v2 files), what of a cgroup's
// memory counts, and parsers for the kernel's flat-keyed files.
//
// It guarantees to be pure: no file, no clock, no process, nothing of one
// operating system. The same input gives the same answer everywhere. Parsers
// take bytes that somebody else has read and never panic on them.
//
// It does not know the machine. A percentage stays one until Resolve is told of
// what; whether a ceiling is in force is for the caller to read back (see
// Limits.Diff); that a swap ceiling means nothing where there is no swap is told by
// Limits.Idle.
//
// Sizes are binary throughout: 1K is 1024 bytes, as for systemd, the kernel and
// docker.
//
// # Watching
//
// Whoever watches keeps a Judge for each place that memory is charged to: each
// session, each cgroup around them, the host. In each round it
//
//   - reads Samples (Sample.Of, Stat1.Fill, FillProcesses, Host.Fill) and spreads the
//     room in swap over each path with SpreadSwap;
//   - has the judges Observe them, sessions first, as what is around them is told by
//     Bound what those can still take; Verdict.Next says when to look again;
//   - asks the Crier whether the verdict is told, and if so makes a Warning;
//   - gives the Ladder the Scene and does what it says. What was done to is looked at
//     anew at once.
//
// The algorithm is that of facts/memory.md §3. It differs where the scenarios and
// recorded work of the tests said so:
//
//   - Use is measured without swap in the ceiling, and room in swap counts as headroom:
//     full swap is no use (§4, 8a), and no warning is given while there is room.
//   - A warning by forecast needs 70 % of use, and half of that is enough only with ten
//     seconds left: a build that takes a minute to reach two thirds of its ceiling looks
//     like a leak at half of it.
//   - Growth in one step, growth that slows down, growth up to what was held and given
//     back before, and growth that a nearer limit will stop are no forecast.
//   - What would fill a place within half a second at the rate of the last step alone is
//     an emergency: a burst leaves no time for a trend.
//   - The brake and the ceiling being hit, and stalls, count only with hard memory of
//     60 to 90 %: page cache does all that, too.
//   - Only who grows is frozen, as freezing gives nothing back, and the oldest session
//     of several is one of them only when nobody else grows.
package memlimit
