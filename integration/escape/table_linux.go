package main

// What a close has to do about the payloads of a technique, on a box that the kernel
// keeps (systemd, cgroup).
const (
	dies       = "dies"       // in the box: dead after the close
	stray      = "stray"      // left the box but carries the cookie: found, ended, named as a stray
	reported   = "reported"   // never the session's by evidence: lives on; suspected at most, never claimed dead
	unkillable = "unkillable" // no signal ends it: the close must fail and name it until it is let go
)

// technique is one way of getting away from whatever started a process.
type technique struct {
	ID          string   `json:"id"`
	Description string   `json:"description"`
	Needs       []string `json:"needs"`      // of the machine and user: see probes
	Fixtures    []string `json:"fixtures"`   // of the test: out-cgroup, daemon, tmux-server, fuse
	RootExits   bool     `json:"root_exits"` // the command ends while payloads live on
	Payloads    int      `json:"payloads"`   // lines of pids to wait for before closing
	Still       bool     `json:"still"`      // stopped before the close: its counter does not grow
	Expect      string   `json:"expect"`
	SeenBy      string   `json:"seen_by"` // after the root is gone: Group, Session, Env cookie, Cgroup
	Missing     []string `json:"missing"` // of Needs, on this machine, for this user

	run func(params) error
}

// techniques is the whole table, in the order of the list.
func techniques() []technique {
	var all []technique
	for _, family := range [][]technique{
		background(), deaf(), storms(), states(), descriptors(), terminals(),
		multiplexers(), disguises(), namespaces(), moves(), hired(),
	} {
		all = append(all, family...)
	}
	return all
}

// stages are the later processes of techniques and the helpers for the surroundings
// of a test.
func stages() map[string]func(params) error {
	return map[string]func(params) error{
		"nothing":        func(params) error { return nil },
		"payload":        runPayload,
		"memory":         runMemory,
		"reaper":         runReaper,
		"again":          runAgain,
		"wrapper":        runWrapper,
		"politeleader":   runPoliteLeader,
		"respawner":      runRespawner,
		"bomb":           runBomb,
		"hopper":         runHopper,
		"storm":          runStorm,
		"vfork":          runVfork,
		"zombies":        runZombies,
		"deadleader":     runDeadLeader,
		"stuck":          runStuck,
		"ptyshell":       runPtyShell,
		"ttyreader":      runTTYReader,
		"rename":         runRename,
		"nsinit":         runNamespaceInit,
		"deeper":         runDeeper,
		"outward":        runOutward,
		"canary":         runPayload,
		"daemon":         runDaemon,
		"client":         runClient,
		"fuse":           runFuse,
		"port-server":    runPortServer,
		"port-client":    runPortClient,
		"group-survivor": runGroupSurvivor,
		"take-lock":      runTakeLock,
		"hog":            runHog,
		"leak":           runLeak,
		"seccomp":        runSeccomp,
	}
}
