// Membench plays the memory scenarios of package plan in QEMU guests, without a guard and
// with one, and prints what each run is worth (package score). `make bench-memory` runs
// it; BENCH_MEMORY passes flags:
//
//	make bench-memory BENCH_MEMORY='-guests trixie -scenarios 1,2 -rounds 1'
//	make bench-memory BENCH_MEMORY='-guards off,sessionbox,earlyoom,nohang,systemd-oomd -scenarios 4,11'
//
// Every run is a line of JSON in the file of -out, with all that was recorded; the table
// is of all runs in that file, so that they may be made one after the other. With -table
// nothing is run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/sessionbox/sessionbox/integration/hosts"
	"github.com/sessionbox/sessionbox/integration/membench/plan"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "membench:", err)
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	bin, player, out string
	guests           []string
	scenarios        []plan.Scenario
	guards           []string
	rounds           int
	table, verbose   bool
}

func parse(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("membench", flag.ContinueOnError)
	fs.StringVar(&o.bin, "bin", "bin/sessionbox", "the command")
	fs.StringVar(&o.player, "player", "bin/membench-guest", "the program for the guest")
	fs.StringVar(&o.out, "out", "bin/membench.jsonl", "where runs are written to")
	guests := fs.String("guests", "bookworm,trixie", "generations")
	scenarios := fs.String("scenarios", "", "names, see package plan (default: all)")
	who := fs.String("guards", "off,sessionbox", "who guards: "+strings.Join(guards(), ", "))
	fs.IntVar(&o.rounds, "rounds", 3, "how often")
	fs.BoolVar(&o.table, "table", false, "only print the table of what was run before")
	fs.BoolVar(&o.verbose, "v", false, "show all that guests say")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.guests, o.guards = strings.Split(*guests, ","), strings.Split(*who, ",")
	for _, g := range o.guests {
		if !slices.Contains(hosts.Generations(), hosts.Generation(g)) {
			return o, fmt.Errorf("no guest %q", g)
		}
	}
	for _, g := range o.guards {
		if !slices.Contains(guards(), g) {
			return o, fmt.Errorf("no guard %q", g)
		}
	}
	if *scenarios == "" {
		o.scenarios = plan.All()
		return o, nil
	}
	for name := range strings.SplitSeq(*scenarios, ",") {
		s, ok := plan.Find(name)
		if !ok {
			return o, fmt.Errorf("no scenario %q", name)
		}
		o.scenarios = append(o.scenarios, s)
	}
	return o, nil
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if !o.table {
		if err := hosts.CheckVM(ctx, os.Stderr); err != nil {
			return err
		}
		for _, guest := range o.guests {
			if err := o.runGuest(ctx, hosts.Generation(guest)); err != nil {
				return err
			}
		}
	}
	all, err := load(o.out)
	if err != nil {
		return err
	}
	return printTable(os.Stdout, all)
}
