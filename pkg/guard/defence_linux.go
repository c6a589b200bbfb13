package guard

import (
	"os"
	"strconv"
	"strings"
)

// What keeps a guard alive while memory runs out. MemoryMin of its unit is the other
// half, see [session.GuardMemoryMin].
const (
	oomScoreFile = "/proc/self/oom_score_adj"
	// oomScore is low enough that the kernel takes nearly anybody else, and still finds
	// us if it is us who leaks.
	oomScore = -500
)

// Defend has the kernel take others first when memory runs out. It takes privileges;
// without them everything stays as it is.
func Defend() {
	if score, err := readScore(); err == nil && score > oomScore {
		_ = os.WriteFile(oomScoreFile, []byte(strconv.Itoa(oomScore)), 0) // EACCES: not privileged
	}
}

func readScore() (int, error) {
	b, err := os.ReadFile(oomScoreFile)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// undefended is the command line of the shell for a command that is not to inherit
// our defence: raising a score is allowed to everybody.
func undefended(line string) []string {
	score, err := readScore()
	if err != nil {
		score = 0
	}
	return withoutScore(line, score)
}

func withoutScore(line string, score int) []string {
	if score >= 0 {
		return []string{"/bin/sh", "-c", line}
	}
	return []string{"/bin/sh", "-c", `echo 0 2>/dev/null >` + oomScoreFile + `; exec /bin/sh -c "$1"`, "sh", line}
}
