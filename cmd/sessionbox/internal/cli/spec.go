package cli

import (
	"context"

	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
)

func (a *app) newSpec() *cobra.Command {
	var o session.SpecOptions
	cmd := &cobra.Command{
		Use:   "spec SESSION [BUNDLE]",
		Short: "Print what makes an OCI container part of a session",
		Long: `Print a merge patch (RFC 7396) of the config.json of an OCI bundle, for any runtime or
orchestrator: linux.cgroupsPath in the session's box, its ceilings as linux.resources,
its marks as process.env and annotations. A container that was made with it is ended by
the session's close, with all that is in it; its runtime then has notes of a container
that has ended, which are its user's to delete.

A list in a merge patch replaces the one that is there: with BUNDLE, a directory,
process.env is the bundle's own with the marks; without it, the marks alone.

cgroupsPath is a path below the cgroup v2 mount; each container needs one of its own, so
append something to it for a second one. With --systemd-cgroup it is
slice:prefix:name, for a runtime that is told the same (runc --systemd-cgroup) and so
has systemd make the cgroup.

Exit status:
  0  printed
  2  usage, or the bundle is wrong
  3  no such session
  5  its box is none that could hold a container`,
		Example: `  sessionbox spec work ./bundle > patch.json
  sessionbox spec work --systemd-cgroup`,
		Args:              someArgs(1, 2),
		ValidArgsFunction: a.completeSessions(false, false),
		RunE:              a.withSignals(func(ctx context.Context, args []string) error { return a.spec(ctx, o, args) }),
	}
	cmd.Flags().BoolVar(&o.Systemd, "systemd-cgroup", false, "for a runtime that has systemd make the cgroup")
	return cmd
}

func (a *app) spec(ctx context.Context, o session.SpecOptions, args []string) error {
	if err := sessionRef(args[0]); err != nil {
		return err
	}
	if len(args) > 1 {
		o.Bundle = args[1]
	}
	s, err := a.session(ctx, args[0])
	if err != nil {
		return err
	}
	defer s.Release()
	patch, err := s.Spec(o)
	if err != nil {
		return err
	}
	return a.printJSON(patch)
}
