package cgroup

import "context"

// KillByHand is what Kill does on a kernel without cgroup.kill.
func (g *Group) KillByHand(ctx context.Context) error { return g.killRest(ctx, true) }

// Survivors is what Kill says at the end of its time.
func (g *Group) Survivors() error { return g.survivors() }
