// Package config reads config.toml: the ceilings of all sessions together, the
// defaults of new ones, and how they are watched.
//
//	[slice]                 # all sessions together
//	memory_max  = "75%"
//	memory_high = "max"
//	swap_max    = "2G"
//	pids_max    = 4096
//
//	[session]               # defaults for open and run
//	grace       = "10s"     # a bare number is seconds
//	memory_max  = "4G"
//	pids_max    = 512
//	backend     = "auto"    # auto, systemd, cgroup, lineage
//
//	[guard]                 # who watches owners and time limits
//	metrics     = "127.0.0.1:9414"  # or "unix:/PATH"
//	start       = "auto"    # auto: with the first session that needs it; never
//
// It guarantees that a setting is either in force or an error: unknown keys and
// values that are none are refused, with file, line and the key that was
// probably meant. The user's file overrides the system's key by key. No file is
// no error and costs one failed open each.
//
// It does not resolve percentages (they depend on the machine), and does not
// know flags or environment variables, which the command puts on top.
package config
