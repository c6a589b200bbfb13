//go:build !linux

package proc

// Ending cannot tell more than [FateOf] here.
func Ending(id ID) bool { return FateOf(id) == Gone }
