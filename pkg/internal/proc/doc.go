// Package proc names processes so that no other one can be meant.
//
// A pid alone is only a number that the kernel hands out again. Here a process
// is an [ID]: pid, start time in clock ticks since boot, and the boot it was
// seen in. A signal goes through a [Handle], a pidfd whose process was compared
// with that identity after the pidfd was opened: from then on the kernel, not
// this package, guarantees who is meant (pidfd_open: Linux 5.3).
//
// Parsing is pure and builds everywhere; whatever asks the kernel returns
// [ErrUnsupported] where there is no procfs.
package proc
