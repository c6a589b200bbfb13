package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/integration/hosts"
	"github.com/sessionbox/sessionbox/integration/membench/plan"
	"github.com/sessionbox/sessionbox/integration/membench/score"
)

// a part is one run that is to be made.
type part struct {
	scenario plan.Scenario
	guard    string
}

// peers is a root with the other guards in it, none of which is started with the host.
func peers(gen hosts.Generation) hosts.Variant {
	v := hosts.Variant{Name: "peers", Packages: []string{"earlyoom", "nohang"}}
	units := []string{"earlyoom.service", "nohang.service", "nohang-desktop.service"}
	if gen != hosts.Bullseye { // it is a part of systemd there, and not built
		v.Packages = append(v.Packages, "systemd-oomd")
		units = append(units, "systemd-oomd.service", "systemd-oomd.socket")
	}
	v.Commands = [][]string{slices.Concat([]string{"systemctl", "disable"}, units)}
	return v
}

// parts lists what is to be run on one host, and what is left for others.
func (o *options) parts(gen hosts.Generation) map[plan.Host][]part {
	all := map[plan.Host][]part{}
	for _, s := range o.scenarios {
		for range o.rounds {
			for _, guard := range o.guards {
				ours := guard == "off" || guard == "sessionbox"
				if !ours && (!s.Peers || gen == hosts.Bullseye && guard == "systemd-oomd") {
					continue
				}
				all[s.Host] = append(all[s.Host], part{s, guard})
			}
		}
	}
	return all
}

// hostsOf gives the machines in the order of the scenarios.
func (o *options) hostsOf() []plan.Host {
	var all []plan.Host
	for _, s := range o.scenarios {
		if !slices.Contains(all, s.Host) {
			all = append(all, s.Host)
		}
	}
	return all
}

func (o *options) root(ctx context.Context, gen hosts.Generation) (*hosts.Root, error) {
	if slices.ContainsFunc(o.guards, func(g string) bool { return g != "off" && g != "sessionbox" }) {
		return hosts.OpenVariant(ctx, gen, peers(gen), os.Stderr)
	}
	return hosts.OpenRoot(ctx, gen, os.Stderr)
}

// runGuest makes all runs in guests of one generation. A guest that is lost in a run
// costs that run; the others are made in another one.
func (o *options) runGuest(ctx context.Context, gen hosts.Generation) error {
	root, err := o.root(ctx, gen)
	if err != nil {
		return err
	}
	defer root.Close()
	all := o.parts(gen)
	for _, h := range o.hostsOf() {
		for parts := all[h]; len(parts) > 0; {
			fmt.Fprintf(os.Stderr, "membench: %s, %d MiB, %d MiB of swap %s: %d runs\n", gen, h.MemoryMiB, h.SwapMiB, h.Append, len(parts))
			runs, err := o.boot(ctx, root, h, parts)
			if saveErr := save(o.out, runs); saveErr != nil {
				return saveErr
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, "membench:", err)
			}
			if len(runs) == 0 {
				return fmt.Errorf("no run was made: %w", err)
			}
			parts = parts[len(runs):]
		}
	}
	return nil
}

// margin is what a run takes beyond its length, mostly to set it up and to take it
// down; an emulated guest is slow.
const margin = 4 * time.Minute

// boot makes runs in one guest, as many as that survives, and the one that it does not.
func (o *options) boot(ctx context.Context, root *hosts.Root, h plan.Host, parts []part) ([]oneRun, error) {
	opts := hosts.VMOptions{
		Files: []hosts.File{
			{Src: o.bin, Dst: hosts.PayloadDir + "/sessionbox"},
			{Src: o.player, Dst: hosts.PayloadDir + "/guest"},
		},
		MemoryMiB: h.MemoryMiB, SwapMiB: h.SwapMiB, Append: h.Append,
		Timeout: 5 * time.Minute,
	}
	t := &teller{w: os.Stderr, all: o.verbose, waits: waited}
	opts.Output = t
	for _, p := range parts {
		opts.Timeout += p.scenario.Length + margin
		opts.Steps = append(opts.Steps, hosts.Step{
			Name: p.scenario.Name + " " + p.guard, Route: hosts.AsRoot,
			Args: []string{hosts.PayloadDir + "/guest", "play", p.scenario.Name, p.guard},
		})
	}
	res, err := hosts.BootVM(ctx, root, opts)
	if res == nil {
		return nil, err
	}
	var runs []oneRun
	for i, step := range res.Steps {
		if !step.Ran && step.Output == "" && len(runs) > 0 {
			break
		}
		r := made(string(root.Generation), parts[i], &step, res.Console)
		if i < len(t.shares) {
			r.Waited = t.shares[i]
		}
		runs = append(runs, r)
		if !step.Ran {
			break
		}
	}
	return runs, err
}

// made is a run by what its step said.
func made(guest string, p part, step *hosts.StepResult, console string) oneRun {
	r := oneRun{Guest: guest, Scenario: p.scenario.Name, Guard: p.guard}
	var bad int
	r.Records, bad = score.Parse(step.Output)
	f := r.facts(&p.scenario)
	if bad > 0 || f.Fail != "" || !step.Ran {
		r.Talk = talk(step.Output)
		if !step.Ran {
			r.Talk += "\nconsole:\n" + console
		}
	}
	return r
}

// talk is what is no record.
func talk(output string) string {
	var b strings.Builder
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, score.Mark) {
			b.WriteString(line)
		}
	}
	return b.String()
}
