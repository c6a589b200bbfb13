//go:build !linux

package keeper

import "golang.org/x/sys/unix"

func dup(from, to int) error { return unix.Dup2(from, to) }
