package device

// A Tracer notes plain accesses of one warp to one region at one time, if it
// sees at once that they do not race. Trace looks at the others.
type Tracer struct {
	shift         uint64
	reads, writes []record
	launch        record // the clock's, as records
	block         record
	now           record
	me            record // of lane 0
}

// Tracer returns a tracer for a warp whose lane 0 is who, and whether there is
// one: not after strong accesses to the region.
func (r *Region) Tracer(c Clock, who Who) (Tracer, bool) {
	if r.shadow == nil {
		r.shadow = NewShadow(r.Size)
	}
	s := r.shadow
	return Tracer{s.shift, s.records[plainRead], s.records[plainWrite], record(c.Launch << intervalShift),
		record(c.Block << intervalShift), record(c.Interval << intervalShift), newRecord(c.Interval, who)}, s.records[strongRead] == nil
}

// past reports whether accesses are of another launch, or a barrier orders
// them before now, or they are the same thread's.
func (t *Tracer) past(r, me record) bool {
	return r < t.launch || r >= t.block && r < t.now && r.level() != anyBlock || (r^me)&^(1<<epochBits-1) == 0
}

// Read notes that a lane reads. It returns false if it does not know.
func (t *Tracer) Read(offset, size, lane uint64) bool {
	me := t.me | record(lane<<threadShift)
	if size>>t.shift == 0 {
		return false
	}
	for i, last := offset>>t.shift, (offset+size-1)>>t.shift; i <= last; i++ {
		if !t.past(t.writes[i], me) {
			return false
		}
		if read := t.reads[i]; read != me {
			if after := t.afterRead(read, me); after != read {
				t.reads[i] = after
			}
		}
	}
	return true
}

// afterRead is record.after. It keeps a record that stands for all that the
// new one would.
func (t *Tracer) afterRead(read, me record) record {
	level := read.level()
	switch {
	case read < t.launch:
		return me
	case level == anyBlock:
		return read
	case read < t.block:
		return me.with(anyBlock)
	case read < t.now:
		return me
	case level == oneBlock:
		return read
	case !me.sameWarp(read):
		return me.with(oneBlock)
	case !me.sameEpoch(read):
		return me
	case level == oneWarp || read.thread() == me.thread():
		return read
	}
	return me.with(oneWarp)
}

// Write notes that a lane writes. It returns false if it does not know.
func (t *Tracer) Write(offset, size, lane uint64) bool {
	me := t.me | record(lane<<threadShift)
	if size>>t.shift == 0 {
		return false
	}
	for i, last := offset>>t.shift, (offset+size-1)>>t.shift; i <= last; i++ {
		if !t.past(t.writes[i], me) || !t.past(t.reads[i], me) {
			return false
		}
		t.writes[i] = me
	}
	return true
}
