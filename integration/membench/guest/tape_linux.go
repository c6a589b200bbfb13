package main

import (
	"io"
	"sync"
	"time"

	"github.com/sessionbox/sessionbox/integration/membench/score"
)

// tape writes records. Who has something to say never waits for that: a serial line is
// slow.
type tape struct {
	mu    sync.Mutex
	began time.Duration // by clock; 0 before go
	lines []string
	more  chan struct{}
	done  chan struct{}
	w     io.Writer
}

func newTape(w io.Writer) *tape {
	t := &tape{more: make(chan struct{}, 1), done: make(chan struct{}), w: w}
	go t.write()
	return t
}

// say writes a record of now.
func (t *tape) say(r score.Record) { t.sayAt(clock(), r) }

func (t *tape) sayAt(at time.Duration, r score.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.began != 0 {
		r.At = (at - t.began).Seconds()
	}
	t.lines = append(t.lines, r.Line())
	select {
	case t.more <- struct{}{}:
	default:
	}
}

func (t *tape) begin(at time.Duration) {
	t.mu.Lock()
	t.began = at
	t.mu.Unlock()
	t.sayAt(at, score.Record{What: score.Go})
}

func (t *tape) write() {
	defer close(t.done)
	for range t.more {
		t.mu.Lock()
		lines := t.lines
		t.lines = nil
		t.mu.Unlock()
		for _, l := range lines {
			io.WriteString(t.w, l+"\n")
		}
	}
}

// close returns when all is written.
func (t *tape) close() {
	t.mu.Lock()
	close(t.more) // what is in it is still read
	t.mu.Unlock()
	<-t.done
}
