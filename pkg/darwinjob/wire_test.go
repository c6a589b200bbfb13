package darwinjob

import (
	"bytes"
	"slices"
	"testing"
	"unsafe"
)

// The structures as XNU's headers have them, to check the offsets against
// (bsd/sys/sysctl.h, bsd/sys/proc.h, bsd/sys/proc_info.h, bsd/sys/proc_info_private.h).
type (
	cTimeval struct {
		Sec  int64
		Usec int32
		_    [4]byte
	}
	cExternProc struct {
		Starttime                    cTimeval
		Vmspace, Sigacts             uint64
		Flag                         int32
		Stat                         int8
		_                            [3]byte
		Pid, Oppid, Dupfd            int32
		_                            [4]byte
		UserStack, ExitThread        uint64
		Debugger, Sigwait            int32
		Estcpu                       uint32
		Cpticks                      int32
		Pctcpu                       uint32
		_                            [4]byte
		Wchan, Wmesg                 uint64
		Swtime, Slptime              uint32
		Realtimer                    [2]cTimeval
		Rtime                        cTimeval
		Uticks, Sticks, Iticks       uint64
		Traceflag                    int32
		_                            [4]byte
		Tracep                       uint64
		Siglist                      int32
		_                            [4]byte
		Textvp                       uint64
		Holdcnt                      int32
		Sigmask, Sigignore, Sigcatch uint32
		Priority, Usrpri, Nice       uint8
		Comm                         [17]byte
		_                            [4]byte
		Pgrp, Addr                   uint64
		Xstat, Acflag                uint16
		_                            [4]byte
		Ru                           uint64
	}
	cEproc struct {
		Paddr, Sess uint64
		Pcred       struct {
			Lock                     [72]byte
			Ucred                    uint64
			Ruid, Svuid, Rgid, Svgid uint32
			Refcnt                   int32
			_                        [4]byte
		}
		Ucred struct {
			Ref     int32
			UID     uint32
			Ngroups int16
			_       [2]byte
			Groups  [16]uint32
		}
		_                        [4]byte
		VM                       [64]byte
		Ppid, Pgid               int32
		Jobc                     int16
		_                        [2]byte
		Tdev, Tpgid              int32
		_                        [4]byte
		Tsess                    uint64
		Wmesg                    [8]byte
		Xsize                    int32
		Xrssize, Xccount, Xswrss int16
		_                        [2]byte
		Flag                     int32
		Login                    [12]byte
		Spare                    [4]int32
		_                        [4]byte
	}
	cKinfo struct {
		Proc  cExternProc
		Eproc cEproc
	}
	cUniq struct {
		UUID             [16]byte
		Uniqueid, Parent uint64
		Version, Orig    int32
		Reserve          [2]uint64
	}
	cBSD struct {
		Words               [12]uint32
		Comm                [16]byte
		Name                [32]byte
		Nfiles, PGID, Pjobc uint32
		Tdev, Tpgid         uint32
		Nice                int32
		Sec, Usec           uint64
	}
	cBSDUniq struct {
		BSD  cBSD
		Uniq cUniq
	}
	cCoalition struct {
		ID       [2]uint64
		Reserved [3]uint64
	}
	cCoalInfo struct {
		ID          uint64
		Kind, Tasks uint32
	}
	cVinfoStat struct {
		Dev              uint32
		Mode, Nlink      uint16
		Ino              uint64
		UID, GID         uint32
		Times            [8]int64
		Size, Blocks     int64
		Blksize          int32
		Flags, Gen, Rdev uint32
		Spare            [2]int64
	}
	cVnodePath struct {
		Stat      cVinfoStat
		Kind, Pad int32
		Fsid      [2]int32
		Path      [1024]byte
	}
	cPipe struct {
		File struct {
			Openflags, Status uint32
			Offset            int64
			Kind              int32
			Guard             uint32
		}
		Stat         cVinfoStat
		Handle, Peer uint64
		Status, Rfu  int32
	}
	cRusage struct {
		UUID                [16]byte
		Times               [6]uint64
		Resident, Footprint uint64
		Rest                [27]uint64
	}
)

// Amounts of memory are read in the sizes that kernels answer in.
func TestMemoryAnswers(t *testing.T) {
	b := make([]byte, 32)
	le.PutUint64(b, 3<<30)
	le.PutUint64(b[8:], 1<<30)
	le.PutUint64(b[16:], 2<<30)
	if n, err := parseSwapUsage(b); n != 2<<30 || err != nil {
		t.Errorf("swap: %d, %v", n, err)
	}
	if _, err := parseSwapUsage(b[:16]); err == nil {
		t.Error("swap: a short answer is read")
	}
	for _, c := range []struct {
		b    []byte
		want uint64
		ok   bool
	}{{[]byte{1, 2, 0, 0}, 513, true}, {[]byte{1, 0, 0, 0, 1, 0, 0, 0}, 1<<32 + 1, true}, {nil, 0, false}, {[]byte{1}, 0, false}} {
		if n, err := parseCount(c.b); n != c.want || (err == nil) != c.ok {
			t.Errorf("%v: %d, %v", c.b, n, err)
		}
	}
}

func TestLayouts(t *testing.T) {
	var k cKinfo
	var u cUniq
	var bu cBSDUniq
	var v cVnodePath
	var p cPipe
	var r cRusage
	for _, c := range []struct {
		what      string
		got, want uintptr
	}{
		{"kinfo_proc", unsafe.Sizeof(k), kinfoSize},
		{"p_starttime", unsafe.Offsetof(k.Proc.Starttime), kinfoSec},
		{"p_starttime.tv_usec", unsafe.Offsetof(k.Proc.Starttime.Usec), kinfoUsec},
		{"p_flag", unsafe.Offsetof(k.Proc.Flag), kinfoFlag},
		{"p_stat", unsafe.Offsetof(k.Proc.Stat), kinfoStat},
		{"p_pid", unsafe.Offsetof(k.Proc.Pid), kinfoPID},
		{"p_oppid", unsafe.Offsetof(k.Proc.Oppid), kinfoOPPID},
		{"p_comm", unsafe.Offsetof(k.Proc.Comm), kinfoComm},
		{"cr_uid", unsafe.Offsetof(k.Eproc) + unsafe.Offsetof(k.Eproc.Ucred) + unsafe.Offsetof(k.Eproc.Ucred.UID), kinfoUID},
		{"e_ppid", unsafe.Offsetof(k.Eproc) + unsafe.Offsetof(k.Eproc.Ppid), kinfoPPID},
		{"e_pgid", unsafe.Offsetof(k.Eproc) + unsafe.Offsetof(k.Eproc.Pgid), kinfoPGID},
		{"e_tdev", unsafe.Offsetof(k.Eproc) + unsafe.Offsetof(k.Eproc.Tdev), kinfoTDev},
		{"proc_uniqidentifierinfo", unsafe.Sizeof(u), uniqSize},
		{"p_uniqueid", unsafe.Offsetof(u.Uniqueid), uniqUnique},
		{"p_puniqueid", unsafe.Offsetof(u.Parent), uniqParent},
		{"p_idversion", unsafe.Offsetof(u.Version), uniqVersion},
		{"p_orig_ppidversion", unsafe.Offsetof(u.Orig), uniqOrig},
		{"proc_bsdinfowithuniqid", unsafe.Sizeof(bu), bsdUniqSize},
		{"pbi_start_tvsec", unsafe.Offsetof(bu.BSD.Sec), bsdSec},
		{"pbi_start_tvusec", unsafe.Offsetof(bu.BSD.Usec), bsdUsec},
		{"p_uniqidentifier", unsafe.Offsetof(bu.Uniq), bsdUniq},
		{"proc_pidcoalitioninfo", unsafe.Sizeof(cCoalition{}), coalSize},
		{"procinfo_coalinfo", unsafe.Sizeof(cCoalInfo{}), coalInfo},
		{"vnode_info_path", 2 * unsafe.Sizeof(v), vnodePathSize},
		{"vip_path", unsafe.Offsetof(v.Path), vnodePathCwd},
		{"pipe_fdinfo", unsafe.Sizeof(p), pipeSize},
		{"pipe_handle", unsafe.Offsetof(p.Handle), pipeHandle},
		{"pipe_peerhandle", unsafe.Offsetof(p.Peer), pipePeer},
		{"rusage_info_v4", unsafe.Sizeof(r), rusageSize},
		{"ri_phys_footprint", unsafe.Offsetof(r.Footprint), rusageFoot},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.what, c.want, c.got)
		}
	}
}

// raw are the bytes of a structure.
func raw[T any](v *T) []byte {
	return bytes.Clone(unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)))
}

func TestParseKinfo(t *testing.T) {
	var k cKinfo
	k.Proc.Starttime = cTimeval{Sec: 1_700_000_000, Usec: 7}
	k.Proc.Pid, k.Proc.Oppid, k.Proc.Stat = 4711, 300, statStopped
	copy(k.Proc.Comm[:], "vitest")
	k.Eproc.Ucred.UID, k.Eproc.Ppid, k.Eproc.Pgid, k.Eproc.Tdev = 501, 42, 4710, -1
	want := Proc{ID: ID{PID: 4711, Start: 1_700_000_000_000_007}, PPID: 42, PGID: 4710, UID: 501, Comm: "vitest", State: Stopped}
	traced := k
	traced.Proc.Flag = flagTraced
	zombie := k
	zombie.Proc.Stat, zombie.Proc.Flag = statZombie, flagExiting
	ps, err := parseKinfo(slices.Concat(raw(&k), raw(&traced), raw(&zombie)))
	if err != nil || len(ps) != 3 {
		t.Fatalf("parseKinfo = %v, %v; want three processes", ps, err)
	}
	if ps[0] != want {
		t.Errorf("got %+v, want %+v", ps[0], want)
	}
	if ps[1].PPID != 300 {
		t.Errorf("of a traced one the parent is %d, want the one before the debugger", ps[1].PPID)
	}
	if ps[2].State != Zombie {
		t.Errorf("of an ended one the state is %c, want Z", ps[2].State)
	}
	if _, err := parseKinfo(raw(&k)[:600]); err == nil {
		t.Error("an entry that is too short was read")
	}
}

func TestParseAnswers(t *testing.T) {
	u := cUniq{Uniqueid: 9, Parent: 8, Version: 7, Orig: 6}
	got, err := parseUniq(append(raw(&u), 1, 2, 3)) // a later kernel may have appended
	if want := (uniq{unique: 9, parent: 8, version: 7, orig: 6}); err != nil || got != want {
		t.Errorf("parseUniq = %+v, %v; want %+v", got, err, want)
	}
	if _, err := parseUniq(raw(&u)[:48]); err == nil {
		t.Error("a short answer of flavor 17 was believed")
	}
	if _, err := parseUniq(make([]byte, uniqSize)); err == nil {
		t.Error("an answer without a unique id was believed")
	}
	bu := cBSDUniq{BSD: cBSD{Sec: 3, Usec: 4}, Uniq: u}
	if start, got, err := parseBSDUniq(raw(&bu)); err != nil || start != 3_000_004 || got.unique != 9 {
		t.Errorf("parseBSDUniq = %d, %+v, %v", start, got, err)
	}
	if _, _, err := parseBSDUniq(raw(&bu)[:190]); err == nil {
		t.Error("a short answer of flavor 18 was believed")
	}
	co := cCoalition{ID: [2]uint64{70, 71}}
	if id, err := parseCoalition(raw(&co)); err != nil || id != 70 {
		t.Errorf("parseCoalition = %d, %v; want the resource coalition", id, err)
	}
	if _, err := parseCoalition(make([]byte, 16)); err == nil {
		t.Error("a short answer of flavor 20 was believed")
	}
	tasks, err := parseCoalitions(slices.Concat(raw(&cCoalInfo{70, 0, 3}), raw(&cCoalInfo{70, 1, 9}), raw(&cCoalInfo{71, 0, 1})))
	if err != nil || len(tasks) != 2 || tasks[70] != 3 {
		t.Errorf("parseCoalitions = %v, %v; want 3 and 1 tasks, jetsam coalitions aside", tasks, err)
	}
	if b := token(0x01020304, 5); len(b) != 32 || le.Uint32(b[20:]) != 0x01020304 || le.Uint32(b[28:]) != 5 {
		t.Errorf("token = %v", b)
	}
	r := cRusage{Footprint: 1 << 30}
	if n, err := parseFootprint(raw(&r)); err != nil || n != 1<<30 {
		t.Errorf("parseFootprint = %d, %v", n, err)
	}
	p := cPipe{Handle: 3, Peer: 4}
	if h, o, err := parsePipe(raw(&p)); err != nil || h != 3 || o != 4 {
		t.Errorf("parsePipe = %d, %d, %v", h, o, err)
	}
	var v [2]cVnodePath
	copy(v[0].Path[:], "/Users/x/work")
	if s, err := parseCwd(raw(&v)); err != nil || s != "/Users/x/work" {
		t.Errorf("parseCwd = %q, %v", s, err)
	}
}

func TestParseArgs(t *testing.T) {
	with := "\x02\x00\x00\x00/bin/node\x00\x00\x00node\x00SESSIONBOX_COOKIE=argument\x00SESSIONBOX_COOKIE=first\x00SESSIONBOX_COOKIE=second\x00\x00ptr_munge=\x00"
	exe, env, err := parseArgs([]byte(with))
	if err != nil || exe != "/bin/node" || value(env, EnvCookie) != "first" {
		t.Errorf("parseArgs = %q, %q, %v; an argument is no variable, and the first counts", exe, env, err)
	}
	if value(env, "ptr_munge") != "" || len(env) != 2 {
		t.Errorf("the environment is %q, want two variables", env)
	}
	if _, env, err := parseArgs([]byte("\x01\x00\x00\x00/bin/sleep\x00\x00sleep\x00")); err != nil || len(env) != 0 {
		t.Errorf("of a hidden environment: %q, %v", env, err)
	}
	for _, bad := range []string{"", "\xff\xff\xff\xff/x\x00", "\xff\xff\xff\x7f/x\x00", "\x01\x00\x00\x00/x"} {
		if _, env, err := parseArgs([]byte(bad)); err == nil {
			t.Errorf("parseArgs(%q) = %q, want an error", bad, env)
		}
	}
}

func TestReleases(t *testing.T) {
	for _, c := range []struct {
		rel string
		yes bool
	}{{"23.2.0", true}, {"23.1.0", false}, {"24.0.0", true}, {"9.8.0", false}, {"", false}, {"x", false}} {
		if got := atLeast(c.rel, 23, 2); got != c.yes {
			t.Errorf("atLeast(%q, 23.2) = %v", c.rel, got)
		}
	}
}

func FuzzParseArgs(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00/bin/node\x00\x00\x00node\x00a\x00A=1\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, env, err := parseArgs(b)
		if err != nil && env != nil {
			t.Errorf("an environment %q beside the error %v", env, err)
		}
	})
}

// Whatever size an answer has, it is refused or read; never more than there is.
func FuzzParseAnswers(f *testing.F) {
	f.Add(make([]byte, kinfoSize))
	f.Add(make([]byte, uniqSize))
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		if ps, err := parseKinfo(b); err == nil && len(ps)*kinfoSize != len(b) {
			t.Errorf("%d processes in %d bytes", len(ps), len(b))
		}
		if u, err := parseUniq(b); err == nil && (u.unique == 0 || len(b) < uniqSize) {
			t.Errorf("%+v of %d bytes", u, len(b))
		}
		parseBSDUniq(b)
		parseCoalition(b)
		parseCoalitions(b)
		parseFootprint(b)
		parseCwd(b)
		parsePipes(b)
		parsePipe(b)
	})
}

func FuzzDecodeLedger(f *testing.F) {
	f.Add([]byte(`{"schema":1,"boot":"b","nodes":[{"pid":5,"start":3},null,{"pid":1}],"sessions":{"5":{}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := DecodeLedger(b)
		if err != nil {
			return
		}
		s := &Snapshot{Boot: l.Boot, Namespace: l.Namespace, Caps: Caps{Self: 2}, Procs: []Proc{{ID: ID{PID: 1, Start: 1}}, {ID: ID{PID: 5, Start: 3}, PPID: 1, Pinned: true}}}
		v, err := l.Observe(s)
		if err != nil {
			t.Fatalf("Observe: %v", err)
		}
		for _, m := range v.Members {
			if m.PID <= 1 && m.Shield == "" {
				t.Errorf("pid %d is a member that may be signalled", m.PID)
			}
		}
	})
}
