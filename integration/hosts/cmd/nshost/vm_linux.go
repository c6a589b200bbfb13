package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sessionbox/sessionbox/integration/hosts"
)

// vmTimeout is generous: an emulated guest is 10 to 20 times slower than outside.
const vmTimeout = 30 * time.Minute

func runInVM(ctx context.Context, root *hosts.Root, route hosts.Route, o options) (int, error) {
	if len(o.args) == 0 {
		return 2, errors.New("-vm needs a command: a guest has no way in")
	}
	res, err := hosts.BootVM(ctx, root, hosts.VMOptions{
		Files:     o.files,
		MemoryMiB: o.memory,
		SwapMiB:   o.swap,
		Timeout:   vmTimeout,
		Output:    os.Stdout,
		Steps:     []hosts.Step{{Name: o.args[0], Route: route, Args: o.args, Env: o.env}},
	})
	if err != nil {
		if res != nil {
			err = fmt.Errorf("%w\nconsole:\n%s", err, res.Console)
		}
		return 125, err
	}
	fmt.Fprintf(os.Stderr, "nshost: the guest was %s, and took %s\n", res.State, res.Took.Round(100*time.Millisecond))
	return res.Steps[0].Exit, nil
}
