package scope

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
)

// queue asks for a job; the manager tells ch how it ended.
type queue func(ctx context.Context, c *sd.Conn, ch chan<- string) (int, error)

// job queues a job of a unit and waits until it is done. want are the states of
// the unit that prove it done when the manager hung up and nobody told. A
// manager that re-executes may forget a job it took on (measured on 252 and 257:
// a stop that it had answered); that one is asked for again.
func (m *Manager) job(ctx context.Context, verb, unit string, ask queue, want ...string) error {
	for n := 1; ; n++ {
		untold, err := m.jobOnce(ctx, verb, unit, ask, n > 1, want)
		if err == nil || !untold || n == attempts {
			return err
		}
	}
}

// jobOnce is one attempt at a job. untold: how it ended was found out from the
// state of the unit. The channel has room for the one answer: go-systemd delivers
// while holding a lock, and a reader that gave up must not block everybody
// else's jobs. That the answer may come before the call returns is go-systemd's
// care: it holds the same lock across the call.
func (m *Manager) jobOnce(ctx context.Context, verb, unit string, ask queue, again bool, want []string) (untold bool, err error) {
	// go-systemd lets one caller at a time queue a job: waiting for one's turn
	// must not eat up the time that the manager has to answer.
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return false, fmt.Errorf("%s %s: %w", verb, unit, ctx.Err())
	}
	ch := make(chan string, 1)
	var on *link
	err = m.do(ctx, func(ctx context.Context, l *link, repeated bool) error {
		on = l
		_, err := ask(ctx, l.sd, ch)
		if (again || repeated) && unitExists(err) {
			// Asked twice as the first answer was lost: the unit is ours.
			// Ids are random and the caller holds the session's lock.
			untold, err = true, nil
		}
		return err
	})
	<-m.turn
	if err != nil {
		return false, fmt.Errorf("%s %s: %w", verb, unit, err)
	}
	ctx, cancel := context.WithTimeout(ctx, jobTime)
	defer cancel()
	if !untold {
		select {
		case result := <-ch:
			if result != "done" {
				return false, &JobError{Unit: unit, Verb: verb, Result: result}
			}
			return false, nil
		case <-on.conn.Context().Done():
		case <-ctx.Done():
			return false, m.late(ctx, verb, unit, want)
		}
	}
	return true, m.settled(ctx, verb, unit, want)
}

// late looks once more after a job's time was up: a signal may have been lost.
func (m *Manager) late(ctx context.Context, verb, unit string, want []string) error {
	cause := context.Cause(ctx)
	state, err := m.activeState(context.WithoutCancel(ctx), unit)
	if err == nil && slices.Contains(want, state) && errors.Is(cause, context.DeadlineExceeded) {
		return nil
	}
	return fmt.Errorf("%s %s: no end of the job, the unit is %q: %w", verb, unit, state, cause)
}

// settled waits until the unit is in a state of rest. It asks, as after a
// re-execution there is nobody whom the signal of an old job would reach.
func (m *Manager) settled(ctx context.Context, verb, unit string, want []string) error {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		state, err := m.activeState(ctx, unit)
		if err != nil {
			return fmt.Errorf("%s %s: %w", verb, unit, err)
		}
		switch {
		case slices.Contains(want, state):
			return nil
		case state != "activating" && state != "deactivating" && state != "reloading":
			if pending, err := m.pending(ctx, unit); err == nil && !pending {
				return &JobError{Unit: unit, Verb: verb, Result: state}
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s %s: no end of the job, the unit is %q: %w", verb, unit, state, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// pending says whether a job of the unit still waits to run.
func (m *Manager) pending(ctx context.Context, unit string) (bool, error) {
	v, err := m.property(ctx, unit, "Unit", "Job")
	if err != nil {
		return false, err
	}
	// (uo): number and path, 0 and "/" when there is none.
	job, ok := v.([]any)
	if !ok || len(job) == 0 {
		return false, nil
	}
	n, _ := job[0].(uint32)
	return n != 0, nil
}
