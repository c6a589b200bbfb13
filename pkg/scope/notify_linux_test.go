package scope

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

func TestNotifyReady(t *testing.T) {
	c, err := listenReady()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Setenv("NOTIFY_SOCKET", c.LocalAddr().String())
	if err := NotifyReady(); err != nil {
		t.Fatal(err)
	}
	if _, set := os.LookupEnv("NOTIFY_SOCKET"); set {
		t.Error("the variable is still set")
	}
	if err := NotifyReady(); err != nil {
		t.Errorf("with nobody waiting: %v", err)
	}
	// It was said before it ended.
	ended := make(chan struct{})
	close(ended)
	if err := awaitReady(t.Context(), c, ended); err != nil {
		t.Error(err)
	}
}

func TestAwaitReadyEnds(t *testing.T) {
	c, err := listenReady()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := awaitReady(ctx, c, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	d, err := listenReady()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ended := make(chan struct{})
	close(ended)
	if err := awaitReady(t.Context(), d, ended); err == nil {
		t.Error("an anchor that ended is ready")
	}
}

func TestIsReady(t *testing.T) {
	for msg, want := range map[string]bool{
		"READY=1": true, "STATUS=x\nREADY=1\n": true, "READY=0": false, "": false, "XREADY=1": false,
	} {
		if isReady(msg) != want {
			t.Errorf("%q", msg)
		}
	}
}
