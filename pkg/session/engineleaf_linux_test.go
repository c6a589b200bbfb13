package session

import (
	"strings"
	"testing"
)

// What is in a container of an engine is ended by that engine, and kept by nobody.
func TestEngineLeaf(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	for leaf, want := range map[string]bool{
		"task-1": false, "anchor": false, "task-1/deeper": false, "task-1/" + id[:63]: false, "": false,
		"docker-" + id + ".scope": true, "main.service/libpod-" + id + ".scope/container": true,
		id: true, "libpod-" + id: true, "libpod-conmon-" + id + ".scope": true, id[:63] + "x": false,
	} {
		if got := engineLeaf(leaf); got != want {
			t.Errorf("%q: %v", leaf, got)
		}
	}
}
