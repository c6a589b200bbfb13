package anchor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Arg is the first argument of the anchor process.
const Arg = "__anchor"

// Socket is the name of the anchor's socket in the session's directory.
const Socket = "anchor.sock"

// Timeout bounds each exchange with an anchor; one in a frozen box is silent.
const Timeout = 5 * time.Second

// Tie is a task's bond to its supervisor.
type Tie struct {
	conn net.Conn
	lost chan struct{}
}

// Dial asks the anchor of the session whose directory is dir to watch a leaf
// for the calling process. The leaf must exist; inode is its directory's.
func Dial(dir, leaf string, task int, inode uint64) (*Tie, error) {
	return dial(dir, verbTie, leaf, task, inode)
}

// Hold asks the anchor to thaw the leaf when the calling process is gone, or has not
// released it after [HoldTime].
func Hold(dir, leaf string, task int, inode uint64) (*Tie, error) {
	return dial(dir, verbHold, leaf, task, inode)
}

// HoldTime bounds how long a leaf stays frozen for somebody who moves processes into it
// and is neither done nor gone: he may be stopped, or wait for one whom he has frozen.
const HoldTime = 5 * time.Second

// What can be asked of an anchor.
const (
	verbTie  = "tie"
	verbHold = "hold"
)

func dial(dir, verb, leaf string, task int, inode uint64) (*Tie, error) {
	var c net.Conn
	err := shortPath(dir, Socket, func(path string) (err error) {
		c, err = net.DialTimeout("unix", path, Timeout)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(Timeout))
	r := bufio.NewReader(c)
	if _, err = fmt.Fprintf(c, "%s %s %d %d\n", verb, leaf, task, inode); err == nil {
		var line string
		line, err = r.ReadString('\n')
		if err == nil && line != "ok\n" {
			err = errors.New(strings.TrimSpace(line))
		}
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("tie to the anchor: %w", err)
	}
	c.SetDeadline(time.Time{})
	t := &Tie{conn: c, lost: make(chan struct{})}
	go func() {
		r.ReadByte() // nothing more is ever sent: ends when either side closes
		close(t.lost)
	}()
	return t, nil
}

// Lost is closed when the anchor is gone (or the tie was released).
func (t *Tie) Lost() <-chan struct{} { return t.lost }

// Release says that the task needs no watching any more.
func (t *Tie) Release() {
	t.conn.SetDeadline(time.Now().Add(Timeout))
	fmt.Fprint(t.conn, "done\n")
	t.conn.Close()
}

// Drop closes the connection of a tie whose anchor is gone.
func (t *Tie) Drop() { t.conn.Close() }

// shortPath runs fn with a path for name in dir that fits into the 108 bytes of
// a socket address, however deep dir is.
func shortPath(dir, name string, fn func(path string) error) error {
	if p := filepath.Join(dir, name); len(p) < 100 {
		return fn(p)
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return fn(fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name))
}

// DialRetry is Dial for an anchor that was just started.
func DialRetry(ctx context.Context, dir, leaf string, task int, inode uint64) (*Tie, error) {
	return retry(ctx, func() (*Tie, error) { return Dial(dir, leaf, task, inode) })
}

// HoldRetry is Hold for an anchor that was just started.
func HoldRetry(ctx context.Context, dir, leaf string, task int, inode uint64) (*Tie, error) {
	return retry(ctx, func() (*Tie, error) { return Hold(dir, leaf, task, inode) })
}

func retry(ctx context.Context, dial func() (*Tie, error)) (*Tie, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		t, err := dial()
		if err == nil {
			return t, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait):
		}
	}
}
