//go:build !linux

package hosts

import (
	"context"
	"errors"
	"io"
)

var errNotLinux = errors.New("not Linux")

// CheckCgroup says that there are no cgroups here.
func CheckCgroup() error { return errNotLinux }

// CheckSystemd says that there is no systemd here.
func CheckSystemd(context.Context, io.Writer) error { return errNotLinux }

// CheckVM says that guests need cgroups to end them by.
func CheckVM(context.Context, io.Writer) error { return errNotLinux }

// Sweep has nothing to do.
func Sweep() error { return nil }

// IsStale knows no leavings.
func IsStale(string) bool { return false }
