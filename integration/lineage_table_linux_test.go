package integration_test

import (
	"strings"
	"testing"
)

// notOnLineage are the tests that cannot hold of the lineage box, each with the reason. All
// others have to pass on it: make test-lineage.
var notOnLineage = map[string]string{
	"TestForgedPath":        "a session has no directory in a cgroup tree whose path a record could forge",
	"TestImpossiblePids":    "with no process there is no kernel object that stands for a session whose record is unusable",
	"TestRecordLostTwice":   "with no process there is no kernel object that stands for a session whose record is lost",
	"TestBadRecordCrash":    "with no process there is no kernel object that stands for a session whose record is unusable",
	"TestLogLastWords":      "it looks for who keeps the log among the members of a cgroup",
	"TestLogPumpKilled":     "it looks for who keeps the log among the members of a cgroup",
	"TestStrict":            "what a lineage box cannot hold leaves it without asking anybody",
	"TestKeepMarkContainer": "a container's cgroup is in that of the session",
	"TestStrictHeld":        "what a lineage box cannot hold leaves it without asking anybody",
	"TestStrictInside":      "what a lineage box cannot hold leaves it without asking anybody",
	"TestStrictCommands":    "what a lineage box cannot hold leaves it without asking anybody",
	"TestOCISession":        "a container's cgroup is in that of the session",
	"TestOCICommands":       "a container's cgroup is in that of the session",
	"TestOCIEnds":           "a container's cgroup is in that of the session",
	"TestOCIKilled":         "a container's cgroup is in that of the session",
	"TestOCIBad":            "a container's cgroup is in that of the session",
	"TestOCIFrozen":         "a container's cgroup is in that of the session",
	"TestOCIFrozenAround":   "a container's cgroup is in that of the session",
	"TestOCIServes":         "a container's cgroup is in that of the session",
	"TestOCICloseHangs":     "a container's cgroup is in that of the session",
	"TestOCIHooks":          "a container's cgroup is in that of the session",
	"TestOCIWatched":        "a container's cgroup is in that of the session",
	"TestOCIExecHangs":      "a container's cgroup is in that of the session",
	"TestOCICloseKilled":    "a container's cgroup is in that of the session",
	"TestOCIForged":         "a container's cgroup is in that of the session",
	"TestSpec":              "a container's cgroup is in that of the session",
	"TestAdoptLeftFrozen":   "nothing is frozen while it is adopted",
	"TestSoak":              "its model tells by the cgroup whose a process is",
}

// applies skips a test that is about what only the other boxes have.
func applies(t *testing.T) {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	if why, ok := notOnLineage[name]; ok && backend() == "lineage" {
		t.Skip(why)
	}
}
