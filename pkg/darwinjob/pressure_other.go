//go:build !darwin

package darwinjob

import "errors"

// HostPressure is macOS's; elsewhere the guard reads PSI and /proc/meminfo.
func HostPressure() (Pressure, error) { return Pressure{}, errors.ErrUnsupported }
