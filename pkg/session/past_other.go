//go:build !linux

package session

// allConmons: podman's containers are in another machine here.
func allConmons() []conmon { return nil }

func conmonIn(int) (c *conmon, kept bool) { return nil, false }
