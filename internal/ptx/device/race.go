package device

// A Clock tells when an access happens. Intervals are numbered from one on over
// the life of a Memory. A new one begins with each launch, with each block and
// behind each barrier, so an interval belongs to one block of one launch.
type Clock struct {
	Launch   uint64 // first interval in which accesses count: the launch's, for shared memory the block's
	Block    uint64 // first interval of the block
	Interval uint64 // the current one
}

// Who makes an access.
type Who struct {
	Thread uint64 // index in the block, below 1024
	Epoch  uint64 // how often the lanes of the warp have met in this interval
}

// Mode is what an access does.
type Mode struct{ Write, Atomic bool }

// A record stands for the last accesses of a kind to a granule, in 64 bits:
//
//	interval 38 | level 2 | thread 10 | epoch 14
//
// The level says whose accesses: those of one thread, of several threads of one
// warp, of one block, or of several blocks.
type record uint64

const (
	oneThread = iota
	oneWarp
	oneBlock
	anyBlock

	epochBits     = 14
	threadShift   = epochBits
	levelShift    = threadShift + 10
	intervalShift = levelShift + 2
)

func newRecord(interval uint64, w Who) record {
	return record(interval<<intervalShift | w.Thread<<threadShift | w.Epoch&(1<<epochBits-1))
}

func (r record) interval() uint64       { return uint64(r) >> intervalShift }
func (r record) level() uint64          { return uint64(r) >> levelShift & 3 }
func (r record) thread() uint64         { return uint64(r) >> threadShift & 1023 }
func (r record) with(level int) record  { return r&^(3<<levelShift) | record(level)<<levelShift }
func (r record) sameWarp(o record) bool { return r.thread()>>5 == o.thread()>>5 }
func (r record) sameEpoch(o record) bool {
	return (r^o)&(1<<epochBits-1) == 0
}

// apart reports whether nothing orders an earlier access of this launch before me.
func (r record) apart(earlier record, c Clock) bool {
	switch {
	case earlier.interval() < c.Block || earlier.level() == anyBlock:
		return true
	case earlier.interval() < c.Interval:
		return false // a barrier is between them
	case earlier.level() == oneBlock || !r.sameWarp(earlier):
		return true
	case !r.sameEpoch(earlier):
		return false // the lanes of the warp met between them
	}
	return earlier.level() == oneWarp || r.thread() != earlier.thread()
}

// after is the record after an access of thread r: it stands for earlier ones
// too, unless r comes after them.
func (r record) after(earlier record, c Clock) record {
	switch {
	case earlier.interval() < c.Launch || !r.apart(earlier, c):
		return r
	case earlier.interval() < c.Block || earlier.level() == anyBlock:
		return r.with(anyBlock)
	case earlier.level() != oneBlock && r.sameWarp(earlier):
		return r.with(oneWarp)
	}
	return r.with(oneBlock)
}

// The kinds of accesses: plain ones and strong ones, which do not race with
// each other.
const (
	plainRead = iota
	plainWrite
	strongRead
	strongWrite
	accessKinds
)

// against are the kinds with which each kind may race.
var against = [accessKinds][]int{
	plainRead:   {plainWrite, strongWrite},
	plainWrite:  {plainWrite, plainRead, strongWrite, strongRead},
	strongRead:  {plainWrite},
	strongWrite: {plainWrite, plainRead},
}

func (m Mode) kind() int {
	kind := plainRead
	if m.Write {
		kind = plainWrite
	}
	if m.Atomic {
		kind += strongRead
	}
	return kind
}

// A Shadow knows the last accesses to a region, by granules of 4 bytes, or of
// less after the first access to less.
type Shadow struct {
	shift   uint64
	records [accessKinds][]record // the strong ones are nil before the first strong access
}

// NewShadow returns a shadow for size bytes.
func NewShadow(size uint64) *Shadow {
	n := size/4 + 1
	return &Shadow{shift: 2, records: [accessKinds][]record{plainRead: make([]record, n), plainWrite: make([]record, n)}}
}

// Trace notes an access. If it races with an earlier one, Trace returns what is
// known of that one, and true.
func (s *Shadow) Trace(offset, size uint64, m Mode, c Clock, w Who) (Conflict, bool) {
	kind := m.kind()
	s.prepare(size, m.Atomic)
	me := newRecord(c.Interval, w)
	last := (offset + size - 1) >> s.shift
	for i := offset >> s.shift; i <= last; i++ {
		for _, other := range against[kind] {
			if s.records[other] == nil {
				continue
			}
			if r := s.records[other][i]; r.interval() >= c.Launch && me.apart(r, c) {
				return conflict(r, c, other == plainWrite || other == strongWrite), true
			}
		}
		s.records[kind][i] = me.after(s.records[kind][i], c)
	}
	return Conflict{}, false
}

// prepare makes room for strong accesses, and granules that are small enough.
func (s *Shadow) prepare(size uint64, strong bool) {
	if strong && s.records[strongRead] == nil {
		n := len(s.records[plainRead])
		s.records[strongRead], s.records[strongWrite] = make([]record, n), make([]record, n)
	}
	for size>>s.shift == 0 {
		s.shift--
		for kind, all := range s.records {
			if all == nil {
				continue
			}
			fine := make([]record, 2*len(all))
			for i, r := range all {
				fine[2*i], fine[2*i+1] = r, r
			}
			s.records[kind] = fine
		}
	}
}

// A Conflict is what is known of the earlier of two accesses that race.
type Conflict struct {
	Write      bool
	OtherBlock bool
	Several    bool   // threads
	Thread     uint64 // index in the block, if it is one of the same block
}

func conflict(r record, c Clock, write bool) Conflict {
	return Conflict{Write: write, OtherBlock: r.interval() < c.Block || r.level() == anyBlock,
		Several: r.level() != oneThread, Thread: r.thread()}
}
