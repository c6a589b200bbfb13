//go:build !linux

package guard

import "github.com/sessionbox/sessionbox/pkg/internal/proc"

// newSource: there are no boxes of this version on this system, and nothing to
// measure.
func newSource() (source, error) { return nil, proc.ErrUnsupported }
