//go:build !linux

package guard

import (
	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// newSource asks the kernel for its own level, and processes for what they hold.
func newSource(holding func(id string) (session.Holding, error)) (source, error) {
	return newPolled(holding, darwinjob.HostPressure)
}
