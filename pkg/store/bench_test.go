package store

import (
	"fmt"
	"testing"
)

func benchStore(b *testing.B, sessions int) (*Store, Session) {
	s := testStore(b)
	if err := s.makeDirs(); err != nil {
		b.Fatal(err)
	}
	var rec Session
	for i := range sessions {
		rec = newSession(fmt.Sprintf("work-%04d", i))
		files, err := firstFiles(rec, nil)
		if err == nil {
			err = s.create(rec.ID, files)
		}
		if err != nil {
			b.Fatal(err)
		}
		linkName(b, s, rec)
	}
	return s, rec
}

func BenchmarkSessions1000(b *testing.B) {
	s, _ := benchStore(b, 1000)
	for b.Loop() {
		good, _, err := s.Sessions()
		if err != nil || len(good) != 1000 {
			b.Fatal(len(good), err)
		}
	}
}

func BenchmarkResolveName1000(b *testing.B) {
	s, rec := benchStore(b, 1000)
	for b.Loop() {
		if _, err := s.Resolve(rec.Name); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkResolvePrefix1000(b *testing.B) {
	s, rec := benchStore(b, 1000)
	for b.Loop() {
		if _, err := s.Resolve(rec.ID[:8]); err != nil {
			b.Fatal(err)
		}
	}
}

// What exec does before it starts anything.
func BenchmarkExecPath(b *testing.B) {
	s, rec := benchStore(b, 1000)
	for b.Loop() {
		id, err := s.Resolve(rec.Name)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Get(id); err != nil {
			b.Fatal(err)
		}
		l, err := s.Lock(b.Context(), id, LockStart)
		if err != nil {
			b.Fatal(err)
		}
		t := newTask()
		if err := l.AddTask(&t); err != nil {
			b.Fatal(err)
		}
		l.Unlock()
	}
}

func BenchmarkClaim1000(b *testing.B) {
	s, _ := benchStore(b, 1000)
	for b.Loop() {
		rec := newSession("x" + NewID())
		if err := s.Claim(b.Context(), rec); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := s.Remove(b.Context(), rec.ID); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
