package render

import (
	"io"
	"strconv"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/session"
)

// Processes writes a table of processes. Those of another session than the one
// asked for are of one inside it, which is named.
func Processes(w io.Writer, all []session.Process, own string, st Style) error {
	t := table{columns: []column{{"PID", true}, {"PPID", true}, {"TASK", false}, {"AGE", true}, {"STATE", false}, {"MEM", true}, {"COMMAND", false}}}
	for i := range all {
		p := &all[i]
		task := taskName(p.Task)
		if p.Session != own && own != "" {
			task = p.Session + "/" + task
		}
		state := cell{text: p.State}
		if p.State == "D" {
			state.paint = red
		}
		mem := cell{text: "-", paint: dim}
		if p.MemoryBytes > 0 {
			mem = cell{text: memlimit.FormatBytes(uint64(p.MemoryBytes))}
		}
		t.add(cell{text: strconv.Itoa(p.PID)}, cell{text: strconv.Itoa(p.PPID), paint: dim}, cell{text: task},
			cell{text: ageSeconds(p.AgeSeconds)}, state, mem, what(p, false, st))
	}
	return t.write(w, st)
}
