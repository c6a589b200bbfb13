package scope

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/internal/park"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

// The test binary is also the programs that a box needs.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case park.Arg:
			os.Exit(park.Main(os.Args[2:]))
		case "__anchor":
			os.Exit(anchorMain())
		case "__enter":
			os.Exit(enterMain(os.Args[2], os.Args[3]))
		case "__leave":
			os.Exit(leaveMain(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

func anchorMain() int {
	if err := Settle(""); err != nil {
		fmt.Fprintln(os.Stderr, "settle:", err)
		return 1
	}
	if err := NotifyReady(); err != nil {
		fmt.Fprintln(os.Stderr, "ready:", err)
		return 1
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	<-end
	return 0
}

// leaveMain leaves the box of the last of ids, says where it is, and stays there
// until its input ends.
func leaveMain(ids []string) int {
	n := len(ids) - 1
	if err := LeaveBox(context.Background(), ids[:n], ids[n]); err != nil {
		fmt.Println(err)
		return 1
	}
	cg, _ := proc.Cgroup(os.Getpid())
	fmt.Println(cg)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// enterMain enters the leaf of a recorded box and says where it is then.
func enterMain(ref, leaf string) int {
	var r Ref
	err := json.Unmarshal([]byte(ref), &r)
	if err == nil {
		var b *Box
		if b, err = Open(r); err == nil {
			err = b.Enter(context.Background(), leaf)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cg, _ := proc.Cgroup(os.Getpid())
	fmt.Println(cg)
	return 0
}
