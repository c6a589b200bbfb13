//go:build !linux

package main

import "errors"

func haveCgroup() bool { return false }

func haveMemory() bool { return false }

func makeCgroup() (string, error) { return "", errors.New("no cgroups here") }

func removeCgroup(string) error { return nil }
