package main

import (
	"bytes"
	"io"
	"slices"
	"sync"
)

// besideTiers run beside the others: a guest waits most of its time for itself.
func besideTiers() []string { return []string{"vm"} }

// lanes are the tiers that run at the same time, each lane one after the other.
func lanes(chosen []string) [][]string {
	var first, second []string
	for _, name := range chosen {
		if slices.Contains(besideTiers(), name) {
			second = append(second, name)
		} else {
			first = append(first, name)
		}
	}
	return slices.DeleteFunc([][]string{first, second}, func(l []string) bool { return len(l) == 0 })
}

// A laneWriter puts the lines of one lane, whole and each with its prefix, into an output that
// may be shared.
type laneWriter struct {
	mu     *sync.Mutex
	w      io.Writer
	prefix string
	shared bool
	line   []byte
}

func (l *laneWriter) Write(b []byte) (int, error) {
	if !l.shared {
		return l.w.Write(b)
	}
	l.line = append(l.line, b...)
	end := bytes.LastIndexByte(l.line, '\n') + 1
	if end == 0 {
		return len(b), nil
	}
	whole := l.line[:end]
	var out []byte
	for line := range bytes.Lines(whole) {
		out = append(append(out, l.prefix...), line...)
	}
	l.line = slices.Clone(l.line[end:])
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}
