package darwinjob

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The same offsets against the types that were generated on a Mac.
func TestLayoutsOfSystem(t *testing.T) {
	var k unix.KinfoProc
	for _, c := range []struct {
		what      string
		got, want uintptr
	}{
		{"kinfo_proc", unsafe.Sizeof(k), kinfoSize},
		{"p_flag", unsafe.Offsetof(k.Proc.P_flag), kinfoFlag},
		{"p_stat", unsafe.Offsetof(k.Proc.P_stat), kinfoStat},
		{"p_pid", unsafe.Offsetof(k.Proc.P_pid), kinfoPID},
		{"p_oppid", unsafe.Offsetof(k.Proc.P_oppid), kinfoOPPID},
		{"p_comm", unsafe.Offsetof(k.Proc.P_comm), kinfoComm},
		{"cr_uid", unsafe.Offsetof(k.Eproc) + unsafe.Offsetof(k.Eproc.Ucred) + unsafe.Offsetof(k.Eproc.Ucred.Uid), kinfoUID},
		{"e_ppid", unsafe.Offsetof(k.Eproc) + unsafe.Offsetof(k.Eproc.Ppid), kinfoPPID},
		{"e_pgid", unsafe.Offsetof(k.Eproc) + unsafe.Offsetof(k.Eproc.Pgid), kinfoPGID},
		{"e_tdev", unsafe.Offsetof(k.Eproc) + unsafe.Offsetof(k.Eproc.Tdev), kinfoTDev},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.what, c.want, c.got)
		}
	}
}

// What every Mac's kernel must answer of ourselves.
func TestSystemKnowsUs(t *testing.T) {
	table, err := System()
	if err != nil {
		t.Fatal(err)
	}
	p, err := table.Lookup(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	sid, _ := unix.Getsid(0)
	if p.PPID != os.Getppid() || p.UID != os.Geteuid() || p.PGID != unix.Getpgrp() || p.SID != sid || p.Start == 0 || p.Unique == 0 || p.Coalition == 0 {
		t.Errorf("Lookup of ourselves = %+v", p)
	}
	if n, err := table.Memory(p.ID); err != nil || n < 1<<20 {
		t.Errorf("Memory of ourselves = %d, %v", n, err)
	}
}
