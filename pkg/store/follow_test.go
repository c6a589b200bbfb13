package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

type followed struct {
	event Event
	err   error
}

// follow runs Follow in the background until stop.
func follow(t *testing.T, s *Store, from Cursor, f Filter) (got <-chan followed, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	events, done := make(chan followed, 100), make(chan struct{})
	go func() {
		defer close(done)
		for e, err := range s.Follow(ctx, from, f) {
			events <- followed{e, err}
		}
	}()
	return events, func() {
		t.Helper()
		cancel()
		select {
		case <-done:
		case <-time.After(time.Second):
			t.Error("Follow outlived its context")
		}
	}
}

// here is the end of the history now: what is appended from here on is followed, however
// long it takes the follower to begin.
func here(t *testing.T, s *Store) Cursor {
	t.Helper()
	c, err := s.end()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return c
}

func next(t *testing.T, got <-chan followed) followed {
	t.Helper()
	select {
	case f := <-got:
		return f
	case <-time.After(5 * time.Second):
		t.Fatal("nothing came")
		return followed{}
	}
}

func wantNext(t *testing.T, got <-chan followed, msg string) {
	t.Helper()
	if f := next(t, got); f.err != nil || f.event.Msg != msg {
		t.Errorf("got %q, %v; want %q", f.event.Msg, f.err, msg)
	}
}

func TestFollow(t *testing.T) {
	s := testStore(t)
	appendEvent(t, s, Event{Time: july, Event: "x", Msg: "before"})
	page, err := s.ReadHistory(Filter{})
	if err != nil {
		t.Fatal(err)
	}
	appendEvent(t, s, Event{Time: july, Event: "x", Msg: "between"})
	got, stop := follow(t, s, page.End, Filter{Events: []string{"x"}})
	wantNext(t, got, "between")
	appendEvent(t, s, Event{Time: july, Event: "y", Msg: "filtered"})
	appendEvent(t, s, Event{Time: july, Event: "x", Msg: "after"})
	wantNext(t, got, "after")
	appendEvent(t, s, Event{Time: july.Add(time.Minute), Event: "x", Msg: "next month"})
	wantNext(t, got, "next month")
	appendEvent(t, s, Event{Time: july, Event: "x", Msg: "a clock behind"})
	wantNext(t, got, "a clock behind")
	stop()
	// The cursor is the caller's: another run starts at the same place.
	got, stop = follow(t, s, page.End, Filter{})
	wantNext(t, got, "between")
	stop()
}

func TestFollowFromNow(t *testing.T) {
	s := testStore(t)
	appendEvent(t, s, Event{Time: july, Event: "x", Msg: "before"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	var writer sync.WaitGroup
	writer.Go(func() { // until one comes after Follow has begun
		for ctx.Err() == nil {
			s.Append(ctx, Event{Time: july, Event: "x", Msg: "one"})
		}
	})
	for e, err := range s.Follow(ctx, Cursor{}, Filter{}) {
		if err != nil || e.Msg != "one" {
			t.Errorf("%q, %v; want one", e.Msg, err)
		}
		n++
		break
	}
	cancel()
	writer.Wait()
	if n != 1 {
		t.Errorf("%d events", n)
	}
}

func TestFollowBeforeThereIsAHistory(t *testing.T) {
	s := testStore(t)
	got, stop := follow(t, s, here(t, s), Filter{})
	defer stop()
	appendEvent(t, s, Event{Time: july, Event: "x", Msg: "first"})
	wantNext(t, got, "first")
	appendEvent(t, s, Event{Time: july, Event: "x", Msg: "second"})
	wantNext(t, got, "second")
	// And after it was thrown away.
	if err := os.RemoveAll(s.dirs.History); err != nil {
		t.Fatal(err)
	}
	appendEvent(t, s, Event{Time: july, Event: "x", Msg: "third, and longer"})
	appendEvent(t, s, Event{Time: july, Event: "x", Msg: "fourth"})
	wantNext(t, got, "third, and longer")
	wantNext(t, got, "fourth")
}

func TestFollowDamage(t *testing.T) {
	s := testStore(t)
	appendEvent(t, s, Event{Time: july, Event: "x", Msg: "before"})
	path := filepath.Join(s.dirs.History, monthFile(july))
	got, stop := follow(t, s, here(t, s), Filter{})
	defer stop()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// A line that comes in two pieces is one line.
	whole := `{"schema":1,"time":"2026-07-31T00:00:00Z","event":"x","msg":"whole"}` + "\n"
	for _, piece := range []string{whole[:20], whole[20:], "garbage\n"} {
		if _, err := f.WriteString(piece); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	wantNext(t, got, "whole")
	bad, ok := errors.AsType[*BadLine](next(t, got).err)
	if !ok || bad.Path != path || bad.Offset == 0 {
		t.Errorf("%+v, want a bad line", bad)
	}
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	if herr, ok := errors.AsType[*HistoryError](next(t, got).err); !ok || herr.Path != path {
		t.Errorf("%+v, want a history error", herr)
	}
	appendEvent(t, s, Event{Time: july.Add(time.Hour), Event: "x", Msg: "on"})
	wantNext(t, got, "on")
}
