//go:build !linux

package darwinjob

import "errors"

// BecomeReaper needs Linux: elsewhere orphans go to pid 1.
func BecomeReaper() (ID, error) { return ID{}, errors.ErrUnsupported }

// CollectOrphans has nothing to collect where orphans go to pid 1.
func CollectOrphans(func(pid int) bool) (int, error) { return 0, nil }
