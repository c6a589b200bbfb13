package keeper

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startTime bounds the start of a command: the keeper has to read, and to write a record.
const startTime = 30 * time.Second

// Descriptors behind the command's own that front and keeper have.
const (
	fdOrder  = iota // the order is read from here
	fdAnswer        // and answered here
	fdTie           // ends with the caller
	fdFront         // what the keeper says to the front; the keeper only
)

// Tie is the bond of a command to its caller.
type Tie struct{ r, w *os.File }

// NewTie makes one, for the next [Start].
func NewTie() (*Tie, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &Tie{r, w}, nil
}

// Lost never comes: front and keeper hold the other end, and stand in for each other.
func (t *Tie) Lost() <-chan struct{} { return nil }

// Release says that the command needs no watching any more.
func (t *Tie) Release() {
	t.w.SetWriteDeadline(time.Now().Add(time.Second))
	fmt.Fprint(t.w, goodbye)
	t.Drop()
}

// Drop closes our end.
func (t *Tie) Drop() {
	t.r.Close()
	t.w.Close()
}

const goodbye = "done\n"

// Command is one that runs below a keeper.
type Command struct {
	PID   int
	Start uint64
	in    *bufio.Reader
	file  *os.File
}

// Start starts cmd below a front and a keeper that helper, a sessionbox program, is run as.
// cmd.Process is the front; the environment of the two is env. Errors are those of
// [exec.Cmd.Start] where the command is to blame.
func Start(ctx context.Context, helper string, env []string, cmd *exec.Cmd, o Order, tie *Tie) (*Command, error) {
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	orderR, orderW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer orderW.Close()
	answerR, answerW, err := os.Pipe()
	if err != nil {
		orderR.Close()
		return nil, err
	}
	tied, err := tieEnd(tie)
	if err != nil {
		orderR.Close()
		answerR.Close()
		answerW.Close()
		return nil, err
	}
	before := *cmd
	o.Path, o.Args, o.Env, o.Tied = cmd.Path, cmd.Args, cmd.Env, tie != nil
	if len(o.Args) == 0 {
		o.Args = []string{cmd.Path}
	}
	n := 3 + len(cmd.ExtraFiles)
	cmd.Path = helper
	cmd.Args = []string{"sessionbox", Arg, roleFront, strings.Join(o.Sessions, "-"), o.Leaf, strconv.Itoa(n)}
	if o.Job != "" {
		cmd.Args = append(cmd.Args, o.Job)
	}
	cmd.Env = env
	cmd.ExtraFiles = append(append([]*os.File{}, before.ExtraFiles...), orderR, answerW, tied)
	err = cmd.Start()
	cmd.Path, cmd.Args, cmd.Env, cmd.ExtraFiles = before.Path, before.Args, before.Env, before.ExtraFiles
	orderR.Close()
	answerW.Close()
	tied.Close()
	if err != nil {
		answerR.Close()
		*cmd = before
		return nil, fmt.Errorf("start the keeper: %w", err)
	}
	c, err := instruct(ctx, cmd, &o, orderW, answerR)
	if err != nil {
		answerR.Close()
		return nil, err
	}
	return c, nil
}

// tieEnd is the end of a tie that the keeper gets, or something that is none.
func tieEnd(tie *Tie) (*os.File, error) {
	if tie != nil {
		return tie.r, nil
	}
	return os.Open(os.DevNull)
}

// instruct gives the order and waits until the command runs.
func instruct(ctx context.Context, cmd *exec.Cmd, o *Order, to, from *os.File) (*Command, error) {
	end := time.Now().Add(startTime)
	to.SetWriteDeadline(end)
	from.SetReadDeadline(end)
	stop := context.AfterFunc(ctx, func() {
		to.SetWriteDeadline(time.Unix(1, 0))
		from.SetReadDeadline(time.Unix(1, 0))
	})
	err := json.NewEncoder(to).Encode(o)
	to.Close()
	in := bufio.NewReader(from)
	var w word
	if err == nil {
		w, err = hear(in)
	}
	if !stop() && ctx.Err() != nil {
		err = ctx.Err()
	}
	switch {
	case err == nil && w.PID > 0:
		from.SetReadDeadline(time.Time{})
		return &Command{PID: w.PID, Start: w.Start, in: in, file: from}, nil
	case err == nil && w.Errno != 0:
		err = &os.PathError{Op: "fork/exec", Path: o.Path, Err: w.Errno}
	case err == nil:
		err = errors.New(w.Text)
	default:
		err = fmt.Errorf("the keeper did not start the command: %w", err)
	}
	// Without its order, or with nobody to answer, it ends by itself; one that is stopped
	// does when it is killed.
	_ = cmd.Process.Kill()
	go cmd.Wait() //nolint:errcheck // it is only to be reaped
	return nil, err
}

func hear(in *bufio.Reader) (w word, err error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return w, err
	}
	return w, json.Unmarshal(line, &w)
}

// Status waits for the end of the command and gives its wait status; false if nobody was
// left to tell it.
func (c *Command) Status() (syscall.WaitStatus, bool) {
	defer c.file.Close()
	for {
		w, err := hear(c.in)
		if err != nil {
			return 0, false
		}
		if w.Status != nil {
			return *w.Status, true
		}
	}
}
