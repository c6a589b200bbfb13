package cgroup_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// A sample holds as long as little has been charged since, not for ever, and not where
// a limit is near.
func TestStill(t *testing.T) {
	s, dir, err := fixture(t, map[string]string{"memory.current": "100000000\n"})
	if err != nil {
		t.Fatal(err)
	}
	var got memlimit.Sample
	if s.Still(&got) {
		t.Error("it holds before there is one")
	}
	sample := func() memlimit.Sample {
		t.Helper()
		if err := s.Sample(&got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	charge := func(n string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "memory.current"), []byte(n+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sample()
	s.Still(&got) // the first look only takes the measure
	want := sample()
	held := 0
	for range 30 {
		if !s.Still(&got) {
			sample()
			continue
		}
		held++
		want.At, want.Done = got.At, got.Done
		if got != want || got.Done < got.At {
			t.Fatalf("it holds and is %+v, want %+v", got, want)
		}
	}
	if held < 20 || held > 28 {
		t.Errorf("of 30 times it held %d", held)
	}
	charge("101000000")
	if !s.Still(&got) {
		t.Error("it does not hold after 1 % more")
	}
	charge("120000000")
	if s.Still(&got) {
		t.Error("it holds after 20 % more")
	}
	sample()
	charge("600000000")
	for range 3 {
		if s.Still(&got) {
			t.Error("it holds with more than half of the ceiling charged")
		}
		sample()
	}
	if _, ok := s.CPU(); ok {
		t.Error("the processor time is asked for where memory.current is there")
	}
}

// Without the controller the processor time that was used tells whether memory can have
// moved.
func TestCPUOfSampler(t *testing.T) {
	s, dir, err := fixture(t, map[string]string{"memory.current": "-", "memory.stat": "-", "cpu.stat": "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n"})
	if err != nil {
		t.Fatal(err)
	}
	var got memlimit.Sample
	if err := s.Sample(&got); !errors.Is(err, cgroup.ErrNoMemory) {
		t.Fatal(err)
	}
	if s.Still(&got) {
		t.Error("it holds with nothing to tell")
	}
	if used, ok := s.CPU(); !ok || used != 1500*time.Millisecond {
		t.Errorf("%v, %v", used, ok)
	}
	if err := os.WriteFile(filepath.Join(dir, "cpu.stat"), []byte("usage_usec 99999999999999\nuser_usec 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if used, ok := s.CPU(); !ok || used != 99999999999999*time.Microsecond {
		t.Errorf("of a long number: %v, %v", used, ok)
	}
}
