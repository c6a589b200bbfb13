//go:build !linux && !darwin

package darwinjob

import "errors"

// System needs macOS or Linux.
func System() (Table, error) { return nil, errors.ErrUnsupported }
