package keeper

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// TestStartWithoutReaper is how a command starts where no orphans are given to us (macOS): it
// is recorded before its first instruction, and one that does not exist is told as such.
func TestStartWithoutReaper(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(store.Dirs{State: filepath.Join(dir, "state"), History: filepath.Join(dir, "history"), UID: os.Geteuid(), Given: true})
	if err != nil {
		t.Fatal(err)
	}
	rec := store.Session{Schema: store.Schema, ID: store.NewID(), State: store.StateOpening, Kind: store.KindLineage, UID: os.Geteuid()}
	if err := st.Claim(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	table, err := darwinjob.System()
	if err != nil {
		t.Fatal(err)
	}
	here, err := darwinjob.Here(t.Context(), table)
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	witness := filepath.Join(dir, "witness")
	k := &keeping{st: st, answer: w, front: w, o: Order{Sessions: []string{rec.ID}, Leaf: "task-1", Setsid: true,
		Path: "/bin/sh", Args: []string{"sh", "-c", "cp " + filepath.Join(st.SessionDir(rec.ID), "lineage-task-1.json") + " " + witness}, Env: os.Environ()}}
	k.job = darwinjob.New(table, darwinjob.NewLedger(rec.ID, here), darwinjob.Options{Changed: k.save})
	if err := k.start(nil); err != nil {
		t.Fatal(err)
	}
	child, err := os.FindProcess(k.command)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(witness)
	if err != nil {
		t.Fatal(err)
	}
	l, err := darwinjob.DecodeLedger(b)
	if err != nil {
		t.Fatal(err)
	}
	if roots := l.Roots(); len(roots) != 1 || roots[0].PID != k.command || !roots[0].Sealed || roots[0].Leaf != "task-1" {
		t.Errorf("recorded when the command ran: %s", b)
	}
	k.o.Path = "/no/such/program"
	if err := k.start(nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a program that is not there: %v", err)
	}
}
