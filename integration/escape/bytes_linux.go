package main

import (
	"bytes"
	"fmt"
	"strconv"
	"unsafe"
)

// bytesPointer is the address of a byte string for a raw system call.
func bytesPointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// envInt reads a number from a block of NAME=VALUE strings.
func envInt(block []byte, name string) (int, error) {
	for kv := range bytes.SplitSeq(block, []byte{0}) {
		if v, ok := bytes.CutPrefix(kv, []byte(name+"=")); ok {
			return strconv.Atoi(string(v))
		}
	}
	return 0, fmt.Errorf("%s is not in the environment", name)
}
