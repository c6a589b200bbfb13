package main

import (
	"context"
	"errors"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/integration/membench/score"
	"golang.org/x/sys/unix"
)

// heartbeat is what a small program on the host sees: it wants to run ten times a
// second. It gives the longest time that it did not, beyond that.
func heartbeat(ctx context.Context, t *tape, each func()) (longest time.Duration) {
	const every = 100 * time.Millisecond
	last := clock()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return longest
		case <-tick.C:
		}
		now := clock()
		gap := now - last - every
		last = now
		if gap > longest {
			longest = gap
			if gap > time.Second {
				t.sayAt(now, score.Record{What: score.Gap, Seconds: gap.Seconds()})
			}
		}
		each()
	}
}

// probe asks sshd for its banner. Not more often than its penalties for who does not
// log in run out (OpenSSH 9.8): one second each.
func probe(ctx context.Context, t *tape) (asked int) {
	const (
		every    = 2500 * time.Millisecond
		patience = 5 * time.Second
	)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return asked
		case <-tick.C:
		}
		asked++
		if err := banner(patience); err != nil {
			t.say(score.Record{What: score.Probe, Text: err.Error()})
		}
	}
}

func banner(patience time.Duration) error {
	c, err := net.DialTimeout("tcp", "127.0.0.1:22", patience)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	b := make([]byte, 4)
	if n, err := c.Read(b); err != nil {
		return err
	} else if string(b[:n]) != "SSH-" {
		return errors.New("it says " + string(b[:n]))
	}
	return nil
}

// oomLine is what the kernel writes before it kills for want of memory (since 5.0).
var oomLine = regexp.MustCompile(`^oom-kill:.*task_memcg=([^,]*),task=([^,]*),pid=(\d+)`)

// kernel tells whom the kernel kills for want of memory.
func kernel(ctx context.Context, b *box) error {
	f, err := os.Open("/dev/kmsg")
	if err != nil {
		return err
	}
	if _, err := f.Seek(0, 2); err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { f.Close() })
	go func() {
		buf := make([]byte, 8192)
		for {
			n, err := f.Read(buf)
			if errors.Is(err, unix.EPIPE) {
				continue // some was overwritten
			}
			if err != nil {
				return
			}
			if at, r, ok := oomKill(string(buf[:n])); ok {
				r.Session = b.sessionIn(r.Text)
				b.tape.sayAt(at, r)
			}
		}
	}()
	return nil
}

// oomKill reads a line of /dev/kmsg: "4,1234,567890,-;text", the third in µs of the
// clock.
func oomKill(line string) (time.Duration, score.Record, bool) {
	head, text, ok := strings.Cut(line, ";")
	fields := strings.Split(head, ",")
	m := oomLine.FindStringSubmatch(text)
	if !ok || len(fields) < 3 || m == nil {
		return 0, score.Record{}, false
	}
	micro, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		return 0, score.Record{}, false
	}
	pid, err := strconv.Atoi(m[3])
	return time.Duration(micro) * time.Microsecond, score.Record{What: score.Killed, Name: m[2], PID: pid, Text: m[1]}, err == nil
}
