package device_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/plx-run/plx/internal/ptx/device"
)

// An event is an access as the slow search for races remembers it.
type event struct {
	block, thread uint64
	interval      uint64
	epoch         uint64
	offset, size  uint64
	write, strong bool
}

// races is the definition: two accesses of a launch to one byte by different
// threads, one of them a write, not both atomic, and neither a barrier nor a
// meeting of their warp between them.
func (e event) races(o event) bool {
	overlap := e.offset < o.offset+o.size && o.offset < e.offset+e.size
	same := e.block == o.block && e.thread == o.thread
	if !overlap || same || !e.write && !o.write || e.strong && o.strong {
		return false
	}
	if e.block != o.block {
		return true
	}
	return e.interval == o.interval && (e.thread/32 != o.thread/32 || e.epoch == o.epoch)
}

// A history makes random accesses.
type history struct {
	r        *rand.Rand
	clock    device.Clock
	now      uint64
	block    uint64
	epochs   [4]uint64 // of the warps
	events   []event   // of the launch
	meetings bool
	strong   bool
}

func (h *history) tick() uint64 { h.now++; return h.now }

// advance makes some time pass: a meeting, a barrier, the next block or launch.
func (h *history) advance() {
	switch n := h.r.IntN(100); {
	case n < 10 && h.meetings:
		h.epochs[h.r.IntN(4)]++
	case n < 20:
		h.clock.Interval = h.tick()
		h.epochs = [4]uint64{}
	case n < 24:
		h.block++
		h.clock.Block = h.tick()
		h.clock.Interval = h.clock.Block
		h.epochs = [4]uint64{}
	case n < 25:
		h.launch()
	}
}

func (h *history) launch() {
	h.clock.Launch = h.tick()
	h.clock.Block = h.tick()
	h.clock.Interval = h.clock.Block
	h.block, h.events, h.epochs = 0, nil, [4]uint64{}
}

// next returns an access that races with few others: mostly to a thread's own word.
func (h *history) next() event {
	thread := h.r.Uint64N(4)*32 + h.r.Uint64N(3)
	e := event{block: h.block, thread: thread, interval: h.clock.Interval, epoch: h.epochs[thread/32],
		size: 4, write: h.r.IntN(5) == 0, strong: h.strong && h.r.IntN(3) == 0}
	if h.r.IntN(40) == 0 {
		e.size = []uint64{1, 2, 8}[h.r.IntN(3)]
	}
	own := (h.block%16*12 + thread/32*3 + thread%32) * 8
	if h.r.IntN(12) == 0 { // of another thread of the block
		own = (h.block%16*12 + h.r.Uint64N(12)) * 8
	}
	e.offset = (own + h.r.Uint64N(8)) / e.size * e.size
	if h.r.IntN(8) == 0 && !e.write {
		e.offset = 2048 + h.r.Uint64N(64)/e.size*e.size // all may read there
		e.write = h.r.IntN(200) == 0
	}
	return e
}

// The shadow finds exactly the races of the definition.
func TestTraceAgainstTheDefinition(t *testing.T) {
	races, quick := 0, 0
	for seed := range uint64(3000) {
		h := &history{r: rand.New(rand.NewPCG(seed, 9)), meetings: seed%2 == 0, strong: seed%5 < 2}
		h.launch()
		region := device.NewRegion(0, 2112)
		for range 300 {
			h.advance()
			e := h.next()
			want := false
			for _, o := range h.events {
				want = want || e.races(o)
			}
			who := device.Who{Thread: e.thread, Epoch: e.epoch}
			got, seen := false, false
			if !e.strong && seed%3 > 0 {
				lane := device.Who{Thread: e.thread &^ 31, Epoch: e.epoch}
				if tracer, quick := region.Tracer(h.clock, lane); !quick {
					seen = false
				} else if e.write {
					seen = tracer.Write(e.offset, e.size, e.thread%32)
				} else {
					seen = tracer.Read(e.offset, e.size, e.thread%32)
				}
			}
			if seen {
				quick++
			} else {
				_, got = region.Trace(e.offset, e.size, device.Mode{Write: e.write, Atomic: e.strong}, h.clock, who)
			}
			if got != want {
				t.Fatalf("seed %d: %v: races: %v, want %v, quick: %v\n%s", seed, e, got, want, seen, h.about(e))
			}
			if want {
				races++
				break
			}
			h.events = append(h.events, e)
		}
	}
	if races < 1000 || quick < 100_000 {
		t.Errorf("%d races, %d accesses that the tracer knew", races, quick)
	}
	t.Logf("%d races, %d accesses that the tracer knew", races, quick)
}

// about lists the accesses to the bytes of one.
func (h *history) about(e event) (text string) {
	for _, o := range h.events {
		if e.offset < o.offset+o.size && o.offset < e.offset+e.size {
			text += fmt.Sprintf("%+v races: %v\n", o, e.races(o))
		}
	}
	return text
}
