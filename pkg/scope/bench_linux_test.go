package scope

import (
	"os/exec"
	"testing"
)

func BenchmarkDial(b *testing.B) {
	manager(b)
	for b.Loop() {
		m, err := Dial(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		m.Close()
	}
}

func BenchmarkCreateAndRemove(b *testing.B) {
	m := manager(b)
	for b.Loop() {
		box, err := m.Create(b.Context(), spec())
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := box.Kill(b.Context(), ""); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := box.Remove(b.Context()); err != nil {
			b.Fatal(err)
		}
		box.Close()
	}
}

func BenchmarkCreate(b *testing.B) {
	m := manager(b)
	for b.Loop() {
		box, err := m.Create(b.Context(), spec())
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := box.Remove(b.Context()); err != nil {
			b.Fatal(err)
		}
		box.Close()
		b.StartTimer()
	}
}

// BenchmarkStart compares with BenchmarkPlainStart.
func BenchmarkStart(b *testing.B) {
	m := manager(b)
	box, err := m.Create(b.Context(), spec())
	if err != nil {
		b.Fatal(err)
	}
	defer box.Remove(b.Context())
	for b.Loop() {
		cmd := exec.Command("/bin/true")
		if err := box.Start(b.Context(), "task-1", cmd); err != nil {
			b.Fatal(err)
		}
		cmd.Wait()
	}
}

func BenchmarkPlainStart(b *testing.B) {
	for b.Loop() {
		cmd := exec.Command("/bin/true")
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		cmd.Wait()
	}
}
