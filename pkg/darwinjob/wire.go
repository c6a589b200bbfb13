package darwinjob

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
)

// What XNU answers, as it lies in memory on both of its 64-bit architectures. Sizes and
// offsets are those of bsd/sys/sysctl.h, bsd/sys/proc_info.h and
// bsd/sys/proc_info_private.h (xnu-11417.101.15, macOS 15.4).
const (
	kinfoSize   = 648 // struct kinfo_proc
	kinfoSec    = 0   // p_starttime
	kinfoUsec   = 8
	kinfoFlag   = 32 // p_flag
	kinfoStat   = 36
	kinfoPID    = 40
	kinfoOPPID  = 44 // the parent before a debugger came
	kinfoComm   = 243
	kinfoCommN  = 17
	kinfoUID    = 420 // kp_eproc.e_ucred.cr_uid, the effective user
	kinfoPPID   = 560
	kinfoPGID   = 564
	kinfoTDev   = 572
	flagTraced  = 0x800  // P_TRACED
	flagExiting = 0x2000 // P_WEXIT
	statStopped = 4      // SSTOP
	statZombie  = 5      // SZOMB

	uniqSize    = 56 // struct proc_uniqidentifierinfo, flavor 17
	uniqUnique  = 16
	uniqParent  = 24
	uniqVersion = 32
	uniqOrig    = 36

	bsdUniqSize = 192 // struct proc_bsdinfowithuniqid, flavor 18: proc_bsdinfo, then flavor 17's
	bsdSec      = 120 // pbi_start_tvsec
	bsdUsec     = 128
	bsdUniq     = 136

	coalSize   = 40 // struct proc_pidcoalitioninfo, flavor 20; the resource coalition is first
	coalInfo   = 16 // struct procinfo_coalinfo: id u64, type u32, tasks u32
	rusageSize = 296
	rusageFoot = 72 // ri_phys_footprint of struct rusage_info_v4

	vnodePathSize = 2352 // struct proc_vnodepathinfo, flavor 9
	vnodePathCwd  = 152  // pvi_cdir.vip_path
	vnodePathMax  = 1024

	fdSize     = 8 // struct proc_fdinfo: fd i32, type u32
	fdPipe     = 6 // PROX_FDTYPE_PIPE
	pipeSize   = 184
	pipeHandle = 160 // struct pipe_fdinfo: pipe_handle, pipe_peerhandle
	pipePeer   = 168

	tokenSize    = 32 // audit_token_t
	tokenPID     = 20 // val[5]
	tokenVersion = 28 // val[7]
)

var le = binary.LittleEndian

func i32(b []byte, at int) int { return int(int32(le.Uint32(b[at:]))) }

// parseKinfo reads the answer of sysctl kern.proc.
func parseKinfo(b []byte) ([]Proc, error) {
	if len(b)%kinfoSize != 0 {
		return nil, fmt.Errorf("kern.proc answers %d bytes, which are not entries of %d", len(b), kinfoSize)
	}
	ps := make([]Proc, 0, len(b)/kinfoSize)
	for ; len(b) > 0; b = b[kinfoSize:] {
		ps = append(ps, kinfo(b[:kinfoSize]))
	}
	return ps, nil
}

func kinfo(b []byte) Proc {
	p := Proc{ID: ID{PID: i32(b, kinfoPID)}, PPID: i32(b, kinfoPPID), PGID: i32(b, kinfoPGID), UID: i32(b, kinfoUID), State: Running}
	if sec, usec := int64(le.Uint64(b[kinfoSec:])), i32(b, kinfoUsec); sec > 0 {
		p.Start = uint64(sec)*1e6 + uint64(usec)
	}
	flag := le.Uint32(b[kinfoFlag:])
	switch stat := b[kinfoStat]; {
	case stat == statZombie:
		p.State = Zombie
	case flag&flagExiting != 0:
		p.State = Exiting
	case stat == statStopped:
		p.State = Stopped
	}
	if flag&flagTraced != 0 {
		// The kernel makes the debugger its parent for as long (ptrace, mach_process.c).
		p.PPID = i32(b, kinfoOPPID)
	}
	comm := b[kinfoComm : kinfoComm+kinfoCommN]
	if n := bytes.IndexByte(comm, 0); n >= 0 {
		comm = comm[:n]
	}
	p.Comm = string(comm)
	if dev := i32(b, kinfoTDev); dev != -1 {
		p.TTY = uint64(uint32(dev))
	}
	return p
}

// uniq is the answer of flavor 17.
type uniq struct {
	unique, parent uint64
	version, orig  int32
}

// parseUniq reads it. The fields are API and stay in place; later kernels may append.
func parseUniq(b []byte) (uniq, error) {
	if len(b) < uniqSize {
		return uniq{}, fmt.Errorf("proc_info flavor 17 answers %d bytes, not %d", len(b), uniqSize)
	}
	u := uniq{unique: le.Uint64(b[uniqUnique:]), parent: le.Uint64(b[uniqParent:]), version: int32(le.Uint32(b[uniqVersion:])), orig: int32(le.Uint32(b[uniqOrig:]))}
	if u.unique == 0 {
		return uniq{}, fmt.Errorf("proc_info flavor 17 answers no unique id")
	}
	return u, nil
}

// parseBSDUniq reads flavor 18: the start of a process, in the unit of [ID.Start], and
// what flavor 17 says of it, at one moment.
func parseBSDUniq(b []byte) (start uint64, u uniq, err error) {
	if len(b) < bsdUniqSize {
		return 0, uniq{}, fmt.Errorf("proc_info flavor 18 answers %d bytes, not %d", len(b), bsdUniqSize)
	}
	u, err = parseUniq(b[bsdUniq:])
	return le.Uint64(b[bsdSec:])*1e6 + le.Uint64(b[bsdUsec:]), u, err
}

// parseCoalition reads the resource coalition of flavor 20.
func parseCoalition(b []byte) (uint64, error) {
	if len(b) < coalSize {
		return 0, fmt.Errorf("proc_info flavor 20 answers %d bytes, not %d", len(b), coalSize)
	}
	return le.Uint64(b), nil
}

// parseCoalitions reads how many tasks each resource coalition (type 0) has.
func parseCoalitions(b []byte) (map[uint64]int, error) {
	if len(b)%coalInfo != 0 {
		return nil, fmt.Errorf("the list of coalitions is %d bytes, which are not entries of %d", len(b), coalInfo)
	}
	tasks := map[uint64]int{}
	for ; len(b) > 0; b = b[coalInfo:] {
		if le.Uint32(b[8:]) == 0 {
			tasks[le.Uint64(b)] = int(le.Uint32(b[12:]))
		}
	}
	return tasks, nil
}

// parseFootprint reads ri_phys_footprint, in bytes.
func parseFootprint(b []byte) (int64, error) {
	if len(b) < rusageFoot+8 {
		return 0, fmt.Errorf("rusage is %d bytes, too short for a footprint", len(b))
	}
	return int64(le.Uint64(b[rusageFoot:])), nil
}

// parseCwd reads the working directory of flavor 9.
func parseCwd(b []byte) (string, error) {
	if len(b) < vnodePathSize {
		return "", fmt.Errorf("proc_info flavor 9 answers %d bytes, not %d", len(b), vnodePathSize)
	}
	s, _, _ := bytes.Cut(b[vnodePathCwd:vnodePathCwd+vnodePathMax], []byte{0})
	return string(s), nil
}

// parsePipes gives the descriptors of pipes in the answer of flavor 1.
func parsePipes(b []byte) []int {
	var fds []int
	for ; len(b) >= fdSize; b = b[fdSize:] {
		if le.Uint32(b[4:]) == fdPipe {
			fds = append(fds, i32(b, 0))
		}
	}
	return fds
}

// parsePipe reads the handles of both ends of a pipe.
func parsePipe(b []byte) (handle, peer uint64, err error) {
	if len(b) < pipeSize {
		return 0, 0, fmt.Errorf("a pipe's info is %d bytes, not %d", len(b), pipeSize)
	}
	return le.Uint64(b[pipeHandle:]), le.Uint64(b[pipePeer:]), nil
}

// parseArgs reads the answer of sysctl kern.procargs2: the number of arguments, the
// path, zeros, the arguments, the environment (bsd/kern/kern_sysctl.c). An environment
// that is hidden is not there: nothing after the last argument counts as one unless all of
// them were.
func parseArgs(b []byte) (exe string, env []string, err error) {
	if len(b) < 4 {
		return "", nil, fmt.Errorf("kern.procargs2 answers %d bytes", len(b))
	}
	argc := i32(b, 0)
	b = b[4:]
	if argc < 0 || argc > len(b) {
		return "", nil, fmt.Errorf("kern.procargs2 counts %d arguments in %d bytes", argc, len(b))
	}
	n := bytes.IndexByte(b, 0)
	if n < 0 {
		return "", nil, fmt.Errorf("kern.procargs2: the path does not end")
	}
	exe, b = string(b[:n]), bytes.TrimLeft(b[n:], "\x00")
	for range argc {
		n := bytes.IndexByte(b, 0)
		if n < 0 {
			return exe, nil, nil
		}
		b = b[n+1:]
	}
	for {
		n := bytes.IndexByte(b, 0)
		if n <= 0 { // an empty string ends it (what follows is the kernel's "apple" vector)
			return exe, env, nil
		}
		env = append(env, string(b[:n]))
		b = b[n+1:]
	}
}

// value is that of a variable; the first counts, as for getenv.
func value(env []string, name string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// token names a process for an exact signal: the kernel compares pid and version and
// nothing else (proc_find_audit_token, bsd/kern/kern_proc.c).
func token(pid int, version int32) []byte {
	b := make([]byte, tokenSize)
	le.PutUint32(b[tokenPID:], uint32(pid))
	le.PutUint32(b[tokenVersion:], uint32(version))
	return b
}

// release is the number of a Darwin release, "24.4.0" as 24 and 4.
func release(s string) (major, minor int) {
	if n, _ := fmt.Sscanf(s, "%d.%d", &major, &minor); n < 1 {
		return 0, 0
	}
	return major, minor
}

// atLeast says whether a Darwin release is at least the one given.
func atLeast(s string, major, minor int) bool {
	a, b := release(s)
	return a > major || a == major && b >= minor
}
