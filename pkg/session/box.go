package session

import (
	"context"
	"os/exec"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// Box is the boundary that holds the processes of a session. Each task has a
// leaf in it; the leaf "" stands for the whole box with everything nested in it.
// A leaf that does not exist is an empty one.
type Box interface {
	// Path and Inode name the box's kernel object, where it has one.
	Path() string
	Inode() uint64
	// Prepare makes a leaf and gives its inode.
	Prepare(ctx context.Context, leaf string) (uint64, error)
	// Start starts cmd in a leaf: none of its instructions runs outside. Errors
	// are those of [exec.Cmd.Start] where the command is to blame.
	Start(ctx context.Context, leaf string, cmd *exec.Cmd) error
	// Enter moves the calling process into a leaf, before it execs in place.
	Enter(ctx context.Context, leaf string) error
	// Move moves a process that runs already, with all its threads, into a leaf that
	// was prepared, and makes sure that it arrived. The caller knows whose pid it is.
	Move(ctx context.Context, leaf string, pid int) error
	// EnsureAnchor makes sure that our own process in the box runs.
	EnsureAnchor(ctx context.Context) error
	// RenewAnchor ends the one that runs, if nobody can reach it any more.
	RenewAnchor(ctx context.Context) error

	Leaves() ([]string, error)
	Members(leaf string) ([]proc.Member, error)
	Populated(leaf string) (bool, error)
	WaitEmpty(ctx context.Context, leaf string) error

	// Signal sends a signal once to each process except our own, through a
	// handle that proved it a member, and says to how many.
	Signal(ctx context.Context, leaf string, sig syscall.Signal) (int, error)
	// Kill returns nil only when the leaf is proven empty, and a
	// [*proc.SurvivorsError] when it is not at the end of ctx.
	Kill(ctx context.Context, leaf string) error
	Freeze(ctx context.Context) error
	Thaw(ctx context.Context) error
	Frozen() (bool, error)
	// Reclaim puts what the frozen box holds out of memory.
	Reclaim(ctx context.Context) (memlimit.Reclaimed, error)

	Usage(leaf string) (memlimit.Usage, error)
	// Mark is what was counted of want of memory in the box by now, and if that is
	// wanted around it; Tally what came since, with what else is known of a leaf only
	// as long as it is there. who says that the victims are to be named.
	Mark(around bool) memlimit.Mark
	Tally(leaf string, since memlimit.Mark, who bool) memlimit.Tally
	// OOMGroup has the kernel kill all that is in a leaf when it kills one of it for
	// want of memory; LeafMemory says whether that can be had in its leaves.
	OOMGroup(leaf string, whole bool) error
	LeafMemory() bool
	// Bound is the limit that its memory meets first, nil if there is none.
	Bound() *memlimit.Bound
	// SetLimits sets ceilings and reads them back: what is not in force is said.
	SetLimits(ctx context.Context, r *specs.LinuxResources) ([]memlimit.Ceiling, error)
	// Limits compares the ceilings wanted with what the kernel has.
	Limits(want memlimit.Limits) ([]memlimit.Ceiling, error)

	// SetMeta and Meta keep the session's record on the kernel object itself.
	SetMeta(string) error
	Meta() (string, error)
	RemoveLeaf(leaf string) error
	// Remove removes an empty box.
	Remove(ctx context.Context) error
	// Close releases our hold on it; the box stays.
	Close() error
}
