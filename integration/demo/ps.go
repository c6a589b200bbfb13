package main

import (
	"encoding/json"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// processes reads what ps --json prints: who is there, and whether one of them
// holds a port.
func processes(out []byte) (pids []int, listening bool) {
	var list []session.Process
	if json.Unmarshal(out, &list) != nil {
		return nil, false
	}
	for _, p := range list {
		pids = append(pids, p.PID)
		listening = listening || len(p.Ports) > 0
	}
	return pids, listening
}
