package engines

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// DockerRuns says whether the docker that is asked if nothing else is said runs already. To
// ask its socket might start it.
func DockerRuns() bool {
	return daemonRuns("/var/run/docker.pid", "dockerd") && socketThere(dockerSocket)
}

// daemonRuns says whether the process that a file names runs, and is called so.
func daemonRuns(pidFile, name string) bool {
	b, err := os.ReadFile(pidFile)
	if err != nil {
		return false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid < 1 {
		return false
	}
	comm, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	return err == nil && strings.TrimSpace(string(comm)) == name
}
