package session

import (
	"os"

	"github.com/sessionbox/sessionbox/pkg/internal/launchd"
)

// systemLaunchd is this machine's.
func systemLaunchd() *launchd.Control { return launchd.New(os.Geteuid()) }
