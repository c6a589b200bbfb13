//go:build !darwin

package session

import "github.com/sessionbox/sessionbox/pkg/internal/launchd"

// systemLaunchd is nil: there is none.
func systemLaunchd() *launchd.Control { return nil }
