//go:build !linux

package main

import "io"

// A leakWatch looks for nothing here: only Linux shows other processes' environment
// to who owns them without fail.
type leakWatch struct{ cookie string }

func watchLeaks() (*leakWatch, error) { return &leakWatch{cookie: newCookie()}, nil }

func (w *leakWatch) env() string { return w.cookie }

func (w *leakWatch) find(bool, io.Writer) []string { return nil }
