//go:build linux

package cgroup

import (
	"slices"
	"testing"
)

func TestSliceNames(t *testing.T) {
	a, b := "aaaaaaaaaa", "b123456789"
	for _, ids := range [][]string{{a}, {a, b}, {a, b, a}} {
		n := len(ids) - 1
		name := SliceName(ids[:n], ids[n])
		got, ok := SliceIDs(name)
		if !ok || !slices.Equal(got, ids) {
			t.Errorf("SliceIDs(%q) = %v, %v; want %v", name, got, ok, ids)
		}
	}
	for _, name := range []string{"", "sessionbox.slice", "sessionbox-.slice", "sessionbox-short.slice", "sessionbox-" + a,
		"sessionbox-" + a + "-.slice", "sessionbox-AAAAAAAAAA.slice", "x-" + a + ".slice", "sessionbox-" + a + "-main.service"} {
		if ids, ok := SliceIDs(name); ok {
			t.Errorf("SliceIDs(%q) = %v, want none", name, ids)
		}
	}
}

func TestCommonDir(t *testing.T) {
	for _, c := range [][3]string{
		{"/a/b/c", "/a/b/d", "/a/b"},
		{"/a/b", "/a/b/d", "/a/b"},
		{"/a/b", "/a/bc", "/a"},
		{"/a", "/b", "/"},
	} {
		if got := commonDir(c[0], c[1]); got != c[2] {
			t.Errorf("commonDir(%q, %q) = %q, want %q", c[0], c[1], got, c[2])
		}
	}
}
