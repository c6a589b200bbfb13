//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/sessionbox/sessionbox/pkg/store"
)

func main() {
	if code, done := session.Helper(os.Args); done {
		os.Exit(code)
	}
	b := bench{}
	backend := flag.String("backend", "auto", "box to measure: systemd, cgroup or lineage")
	flag.StringVar(&b.bin, "bin", "bin/sessionbox", "the command")
	flag.StringVar(&b.empty, "empty", "bin/empty", "an empty static Go program")
	flag.IntVar(&b.n, "n", 100, "pairs of the short rows")
	flag.IntVar(&b.procs, "procs", 1000, "processes that close ends")
	flag.IntVar(&b.sessions, "sessions", 1000, "sessions that ls lists")
	flag.Parse()
	missed, err := b.run(store.Kind(*backend))
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if missed > 0 {
		fmt.Printf("%d budgets missed\n", missed)
	}
}

type bench struct {
	bin, empty         string
	n, procs, sessions int
	kind               store.Kind
	m                  *session.Manager
	shims              string // directory of a command that is shimmed
}

func (b *bench) run(kind store.Kind) (missed int, err error) {
	for _, p := range []*string{&b.bin, &b.empty} {
		if *p, err = filepath.Abs(*p); err != nil {
			return 0, err
		}
	}
	state, err := os.MkdirTemp(memoryDir(), "sbxbench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(state)
	os.Setenv("SESSIONBOX_STATE_DIR", state)
	if kind == store.KindCgroup || kind == store.KindLineage { // what it is compared with, and its processes
		remove, err := ownRoot()
		if err != nil {
			return 0, err
		}
		defer remove()
	}
	if b.m, err = session.New(session.Config{Helper: b.bin}); err != nil {
		return 0, err
	}
	ctx := context.Background()
	s, err := b.m.Open(ctx, session.OpenOptions{Name: "bench", Kind: kind})
	if err != nil {
		return 0, err
	}
	b.kind = s.Kind()
	fmt.Printf("box: %s\n", b.kind)
	rows := append(b.execRows(), b.peerRows()...)
	rows = append(rows, b.startRows(ctx, s)...)
	shims, err := b.shimRows(ctx)
	if err != nil {
		return 0, err
	}
	rows = append(rows, shims...)
	for _, r := range rows {
		missed += report(r)
	}
	s.Release()
	if err := b.endShims(ctx); err != nil {
		return missed, err
	}
	if b.kind == store.KindLineage {
		return b.runLineage(ctx, missed)
	}
	if _, err := b.m.Close(ctx, "bench", session.CloseOptions{Now: true}); err != nil {
		return missed, err
	}
	missed += report(b.closeRow(ctx))
	if err := b.fill(ctx); err != nil {
		return missed, err
	}
	missed += report(b.lsRow())
	return missed, b.drain(ctx)
}

// memoryDir is where records are kept in memory, as they are in real use.
func memoryDir() string {
	for _, dir := range []string{os.Getenv("XDG_RUNTIME_DIR"), "/dev/shm"} {
		if fi, err := os.Stat(dir); err == nil && fi.IsDir() {
			return dir
		}
	}
	return ""
}

func report(r row) int {
	res, err := r.measure()
	if err != nil {
		fmt.Printf("%-44s not measured: %v\n", r.what, err)
		return 1
	}
	fmt.Println(res)
	if res.missed() {
		return 1
	}
	return 0
}

// command times a whole process.
func command(argv ...string) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		began := time.Now()
		err := exec.Command(argv[0], argv[1:]...).Run()
		return time.Since(began), err
	}
}

func (b *bench) execRows() []row {
	mine := command(b.bin, "exec", "bench", "--", "true")
	limit := 4.0
	if b.kind == store.KindLineage {
		limit = 0 // a keeper is started as well
	}
	return []row{
		{"exec S -- true", "an empty static Go program", limit, b.n, mine, command(b.empty)},
		{"exec --replace S -- true", "an empty static Go program", 0, b.n, command(b.bin, "exec", "--replace", "bench", "--", "true"), command(b.empty)},
	}
}

// peerRows compare with what is installed of those that start a command in some
// kind of box; all but systemd-run hold less.
func (b *bench) peerRows() []row {
	var rows []row
	mine := command(b.bin, "exec", "bench", "--", "true")
	for _, p := range []struct {
		name  string
		limit float64
		argv  []string
	}{
		{"systemd-run --scope true", 0.5, scopeRun("--scope")},
		{"systemd-run --wait true", 0, scopeRun("--wait")},
		{"bwrap --unshare-pid true", 0, []string{"bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--die-with-parent", "true"}},
		{"unshare --pid --fork --kill-child true", 0, []string{"unshare", "--pid", "--fork", "--kill-child", "true"}},
		{"timeout 60 true", 0, []string{"timeout", "60", "true"}},
	} {
		if exec.Command(p.argv[0], p.argv[1:]...).Run() != nil {
			fmt.Printf("%-44s not measured: %s does not run here\n", "exec S -- true", p.name)
			continue
		}
		rows = append(rows, row{"exec S -- true", p.name, p.limit, b.n, mine, command(p.argv...)})
	}
	return rows
}

func scopeRun(mode string) []string {
	argv := []string{"systemd-run", "--quiet", "--collect", mode, "true"}
	if os.Geteuid() != 0 {
		argv = append(argv[:1:1], append([]string{"--user"}, argv[1:]...)...)
	}
	return argv
}
