package memlimit

// Reclaimed is what putting a box out of memory has done.
type Reclaimed struct {
	BeforeBytes uint64 // charged to it before, page cache included
	AfterBytes  uint64 // and after
	// StayedBytes is what it holds in memory still that could go to swap; SwapBytes
	// what is there.
	StayedBytes uint64
	SwapBytes   uint64
	// Why says why that stayed, or that nothing did.
	Why string
}

// Bytes is how much less is charged to it.
func (r Reclaimed) Bytes() uint64 { return r.BeforeBytes - min(r.BeforeBytes, r.AfterBytes) }

// Complete says that nothing worth mentioning stayed.
func (r Reclaimed) Complete() bool { return r.Why == WhyDone }

// Why something stays in memory, as far as it is not Chunk that says so.
const (
	WhyDone         = "nothing is left"
	WhyNoSwap       = "this host has no swap"
	WhyNoController = "the memory controller is not delegated"
	WhyNoReclaim    = "this kernel cannot be told to (memory.reclaim: Linux 5.19)"
	WhyNoMore       = "the kernel found no more that could go"
	WhyThawed       = "it was thawed meanwhile"
	WhyBrokenOff    = "it was broken off"
)
