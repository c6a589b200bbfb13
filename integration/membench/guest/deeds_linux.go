package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/integration/membench/plan"
	"github.com/sessionbox/sessionbox/integration/membench/score"
)

// doDeeds does what is to be done in the course of a run, in time.
func (r *stage) doDeeds(ctx context.Context) {
	for i := range r.s.Deeds {
		d := &r.s.Deeds[i]
		if d.Only != "" && d.Only != r.box.guard {
			continue
		}
		if !r.awaitDeed(ctx, d) {
			return
		}
		switch d.Do {
		case "measure":
			r.measure(ctx)
		case "opens":
			r.opens(ctx)
		default:
			r.close(d.Args)
			if out, err := r.box.run(ctx, d.Args...); err != nil && ctx.Err() == nil {
				r.tape.say(score.Record{What: score.Fail, Text: err.Error() + ": " + out})
			}
		}
	}
}

// awaitDeed waits for the time of a deed; false: there is none any more.
func (r *stage) awaitDeed(ctx context.Context, d *plan.Deed) bool {
	for d.On != "" {
		select {
		case <-ctx.Done():
			return false
		case what := <-r.box.on:
			if what != d.On {
				continue
			}
		}
		break
	}
	wait := d.Wait
	if d.On == "" {
		wait = r.begun + d.At - clock()
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(max(0, wait)):
		return true
	}
}

// measure compares what sessionbox says that the first session holds to what its
// actors have taken, but for page cache. The programs themselves are some.
func (r *stage) measure(ctx context.Context) {
	x := &r.s.Sessions[0]
	want := r.taken()[x.Name]
	own := 2 + 6*(x.Sum()+1)
	out, err := r.box.run(ctx, "stats", "--no-stream", "--json", x.Name)
	var got struct {
		Usage struct {
			Memory uint64 `json:"memory_bytes"`
			Source string
		}
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &got)
	}
	if err != nil {
		r.tape.say(score.Record{What: score.Check, Name: "accounted", Text: err.Error()})
		return
	}
	n := int(got.Usage.Memory / mib)
	r.tape.say(score.Record{What: score.Check, Name: "accounted", OK: n >= want*95/100 && n <= want*105/100+own, N: n,
		Text: fmt.Sprintf("%d MiB where %d were taken by %d processes (%s)", n, want, x.Sum(), got.Usage.Source)})
}

// opens sees whether a session can be opened that should wait.
func (r *stage) opens(ctx context.Context) {
	began := clock()
	_, err := r.box.run(ctx, "open", "--name", "late")
	took := clock() - began
	held := err != nil && strings.Contains(err.Error(), "memory is short") || err == nil && took > 5*time.Second
	text := fmt.Sprintf("open took %.1f s", took.Seconds())
	if err != nil {
		text += ": " + err.Error()
	}
	r.tape.say(score.Record{What: score.Check, Name: "held", OK: held, Text: text})
}

// close notes that sessions are closed because the scenario says so.
func (r *stage) close(args []string) {
	if len(args) == 0 || args[0] != "close" {
		return
	}
	r.mu.Lock()
	r.closed = append(r.closed, args[1:]...)
	r.mu.Unlock()
}

func (r *stage) closing(session string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.closed, session)
}
