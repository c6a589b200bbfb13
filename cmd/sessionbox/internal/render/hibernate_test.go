package render

import (
	"testing"

	"github.com/sessionbox/sessionbox/pkg/session"
)

func TestHibernated(t *testing.T) {
	const mib = 1 << 20
	for want, r := range map[string]session.HibernateReport{
		"hibernated work: 300M out of memory in 1.2s, 290M in swap":                                     {Name: "work", ReclaimedBytes: 300 * mib, SwapBytes: 290 * mib, Complete: true, TookSeconds: 1.2},
		"froze work, all stays in memory: the memory controller is not delegated":                       {Name: "work", Why: "the memory controller is not delegated"},
		"froze abc, 250M stay in memory: this host has no swap":                                         {ID: "abc", StayedBytes: 250 * mib, Why: "this host has no swap"},
		"hibernated work: 100M out of memory in 0.5s, 90M in swap; 200M stay: there is too little room": {Name: "work", ReclaimedBytes: 100 * mib, SwapBytes: 90 * mib, StayedBytes: 200 * mib, Why: "there is too little room", TookSeconds: .5},
	} {
		if got := Hibernated(&r); got != want {
			t.Errorf("%q\nwant %q", got, want)
		}
	}
}
