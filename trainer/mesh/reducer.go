package mesh

const (
	chunkSize  = 256 << 10 // bytes of a frame at most
	window     = 8         // chunks that a peer may be ahead of the sum
	maxScratch = 16 << 20  // bytes for the windows of all peers, where two chunks each fit
	eagerSize  = 64 << 10  // bytes that an announcement may carry unasked
	maxEager   = eagerSize + 8
)

// windowOf is the number of chunks that each of the peers may be ahead.
func windowOf(peers int) int { return max(2, min(window, maxScratch/(max(peers, 1)*chunkSize))) }

// reducer adds what the peers send, chunk by chunk. Its fields but the slots
// and out need the mesh's mutex.
type reducer struct {
	of     dtype
	rank   int
	own    []byte     // this worker's contribution
	out    []byte     // the sum; may be own
	slots  [][][]byte // by chunk modulo the window and by rank: what came
	came   []int      // by slot: contributions that are there
	added  []bool     // by slot: the sum is done
	summed int        // bytes of out that hold the sum, from the start
}

// newReducer takes its slots out of the scratch memory, which it returns
// grown if needed.
func newReducer(of dtype, rank, world int, own, out, scratch []byte) (*reducer, []byte) {
	w := windowOf(world - 1)
	r := &reducer{of: of, rank: rank, own: own, out: out, came: make([]int, w), added: make([]bool, w)}
	chunk := min(chunkSize, (len(out)+7)/8*8)
	if need := w * (world - 1) * chunk; len(scratch) < need {
		scratch = aligned(need)
	}
	rest := scratch
	for range w {
		slot := make([][]byte, world)
		for i := range slot {
			if i != rank {
				slot[i], rest = rest[:chunk:chunk], rest[chunk:]
			}
		}
		r.slots = append(r.slots, slot)
	}
	if world == 1 {
		copy(out, own)
		r.summed = len(out)
	}
	return r, scratch
}

// limit is how far a peer may send.
func (r *reducer) limit() int { return min(len(r.out), r.summed+len(r.slots)*chunkSize) }

// first is how far any worker may send to another before it is told to go on.
func (r *reducer) first() int { return len(r.slots) * chunkSize }

// slot is where the n bytes at offset at from a rank go.
func (r *reducer) slot(rank, at, n int) []byte {
	return r.slots[at/chunkSize%len(r.slots)][rank][:n]
}

// arrived counts a contribution to the chunk at offset at and reports whether
// it was the last; then add is to be called.
func (r *reducer) arrived(at int) bool {
	s := at / chunkSize % len(r.slots)
	r.came[s]++
	return r.came[s] == len(r.slots[s])-1
}

// add computes the sum of the chunk at offset at. It needs no mutex: all the
// contributions are there and nobody touches them before added is called.
func (r *reducer) add(at int) {
	out := r.out[at:min(at+chunkSize, len(r.out))]
	from := make([][]byte, len(r.slots[0]))
	for i, b := range r.slots[at/chunkSize%len(r.slots)] {
		from[i] = b[:min(len(b), len(out))]
	}
	from[r.rank] = r.own[at : at+len(out)]
	treeSum(r.of, from, r.rank, out)
}

// done notes that the chunk at offset at was added and reports whether summed
// has moved.
func (r *reducer) done(at int) bool {
	s := at / chunkSize % len(r.slots)
	r.added[s] = true
	before := r.summed
	for r.summed < len(r.out) {
		s := r.summed / chunkSize % len(r.slots)
		if !r.added[s] {
			break
		}
		r.added[s], r.came[s] = false, 0
		r.summed = min(r.summed+chunkSize, len(r.out))
	}
	return r.summed > before
}
