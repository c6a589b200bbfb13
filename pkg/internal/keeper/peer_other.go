//go:build !linux

package keeper

import "golang.org/x/sys/unix"

// peerUID is the user at the other end of a socket, when it connected or began to listen.
func peerUID(fd int) (int, error) {
	cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return -1, err
	}
	return int(cred.Uid), nil
}
