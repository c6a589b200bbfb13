//go:build !linux

package session

import (
	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// sumsWatched says whether a guard watches what the processes of a session hold together.
const sumsWatched = false

// holding is only asked for where that is watched.
func (b *lineageBox) holding(*darwinjob.Picture, string) []memlimit.Process { return nil }

// memory adds up what the members of a leaf hold.
func (b *lineageBox) memory(p *darwinjob.Picture, leaf string) (sum uint64) {
	for _, m := range p.Alive(leaf) {
		if oursByArgs(m.PID) {
			continue
		}
		if n, err := b.table.Memory(m.ID); err == nil {
			sum += uint64(n)
		}
	}
	return sum
}
