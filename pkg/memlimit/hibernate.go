package memlimit

// Amounts that are reclaimed at once: each is one write that blocks, and between two
// of them it is seen whether it may go on.
const (
	chunkLeast = 16 << 20
	chunkMost  = 32 << 20
)

// fits says whether that much can go to swap and leave room.
func fits(n, room uint64) bool { return float64(room) >= 1.5*float64(n) }

// Chunk is how much of a frozen session to write to memory.reclaim next, 0 with the
// reason when it is to be left at that: nothing is left, the room in swap is less
// than 1.5 times what is, or the disk is busy (the share of time that some stalled
// for I/O). The kernel answers EAGAIN when it finds no more; then, too, it is over.
func Chunk(hard, swapRoom uint64, ioSome float64) (n uint64, why string) {
	switch {
	case hard < 1<<20:
		return 0, WhyDone
	case !fits(hard, swapRoom):
		return 0, "there is too little room in swap"
	case ioSome > .20:
		return 0, "the disk is busy"
	case hard < chunkLeast:
		return hard, ""
	}
	return max(chunkLeast, min(hard/8, chunkMost)), ""
}
