// Tiers runs the test tiers one after the other, vm beside the others, and says of each
// whether it passed, failed or could not run. "make test" is this.
//
//	go run ./integration/tiers                       all of them
//	go run ./integration/tiers -tiers unit,cgroup    some
//
// The tiers are unit (anywhere, with the race detector), cgroup (the suite on this
// machine's own cgroup v2, as root), systemd (the suite on a systemd in namespaces)
// and vm (the suite in QEMU guests). Tier lineage, the suite on the lineage box of this
// machine, runs only if it is named. A failing tier does not keep the next from
// running. What cannot run is said to be skipped, and why; it is a failure if
// SESSIONBOX_TEST_REQUIRE names it ("unit,cgroup,systemd,vm").
// SESSIONBOX_TEST_RUN chooses tests of the suite, as go test's -run. Tier vm runs those
// that integration/hosts/vm_linux_test.go lists, in the oldest and the newest guest;
// SESSIONBOX_TEST_GUESTS chooses guests and ways into them ("bookworm/ssh,bullseye/root").
//
// After each tier nothing that it started may be left: no process, no cgroup.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	code := run(ctx, os.Args[1:], os.Getenv("SESSIONBOX_TEST_REQUIRE"), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, require string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("tiers", flag.ContinueOnError)
	fs.SetOutput(stderr)
	names := fs.String("tiers", strings.Join(tierNames(), ","), "comma-separated `tiers` to run, in this order")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	chosen, err := splitTiers(*names)
	if err != nil {
		fmt.Fprintln(stderr, "tiers: -tiers:", err)
		return 2
	}
	required, err := splitTiers(require)
	if err != nil {
		fmt.Fprintln(stderr, "tiers: SESSIONBOX_TEST_REQUIRE:", err)
		return 2
	}

	results := runAll(ctx, chosen, required, stdout, stderr)
	return summarize(results, required, ctx.Err() != nil, stdout)
}

// runAll runs the tiers and gives the results in the order in which they were chosen.
func runAll(ctx context.Context, chosen, required []string, stdout, stderr io.Writer) []result {
	results := make([]result, len(chosen))
	all := lanes(chosen)
	var outs, errs sync.Mutex
	var wg sync.WaitGroup
	for i, lane := range all {
		prefix := ""
		if i > 0 {
			prefix = strings.Join(lane, ",") + "| "
		}
		wg.Go(func() {
			out := &laneWriter{mu: &outs, w: stdout, prefix: prefix, shared: len(all) > 1}
			log := &laneWriter{mu: &errs, w: stderr, prefix: prefix, shared: len(all) > 1}
			for _, name := range lane {
				r := result{tier: name, skipped: "interrupted"}
				if ctx.Err() == nil {
					fmt.Fprintf(out, "== tier %s\n", name)
					began := time.Now()
					r = runTier(ctx, name, slices.Contains(required, name), out, log)
					r.took = time.Since(began)
				}
				results[slices.Index(chosen, name)] = r
			}
		})
	}
	wg.Wait()
	return results
}

// splitTiers reads a comma-separated list of tiers. A name that is none is an error:
// a misspelt requirement would require nothing.
func splitTiers(list string) ([]string, error) {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if name == "" || slices.Contains(names, name) {
			continue
		}
		if known := append(tierNames(), extraTiers()...); !slices.Contains(known, name) {
			return nil, fmt.Errorf("no tier %q: want %s", name, strings.Join(known, ", "))
		}
		names = append(names, name)
	}
	return names, nil
}
