package client

import (
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/wire"
)

// job is something to send: the sums of a bucket for a part, or one of those
// below.
type job struct {
	bucket, part int
	step         uint64
	begin        []byte // payload of the step's first frame; it waits for the next job
	request      []byte // payload of a prefetch request
}

// flush, as a job's bucket, sends what waits and nothing else.
const flush = -1

// takes reports whether the holder is to hear of a job: of nothing while it
// holds nothing.
func (l *link) takes(j job) bool {
	s := l.holds.Load()
	return len(s.pieces) > 0 && (j.begin != nil || j.bucket == flush || s.has[j.bucket])
}

// send sends until the training has failed or the connection ends. All that is
// ready for the holder travels in one Send.
func (l *link) send() {
	var frames []wire.Frame
	var encoded [][]byte // memory for rows
	for {
		j, ok := l.next(true)
		if !ok {
			return
		}
		began, first, used, due := time.Now(), j, 0, false
		for ; ok; j, ok = l.next(false) {
			due = due || j.begin == nil
			if first.begin != nil || first.bucket == flush {
				first = j
			}
			frames, used = l.frames(frames, j, &encoded, used)
		}
		if !due {
			continue // the step's first frame travels with what comes next
		}
		if err := l.session.Send(frames...); err != nil {
			l.check(err)
			return
		}
		l.trace(first, frames, began)
		clear(frames)
		frames = frames[:0]
	}
}

// next takes a job. With wait it may take as long as the training.
func (l *link) next(wait bool) (job, bool) {
	if !wait {
		select {
		case j := <-l.jobs:
			return j, true
		default:
			return job{}, false
		}
	}
	select {
	case j := <-l.jobs:
		return j, true
	case <-l.holders.ctx.Done():
	case <-l.over:
	}
	return job{}, false
}

// frames adds those of a job. used counts the memory for rows in use.
func (l *link) frames(frames []wire.Frame, j job, encoded *[][]byte, used int) ([]wire.Frame, int) {
	if j.begin != nil {
		l.volumes[l.holders.d.LossIndex()].sent.Add(uint64(wire.HeaderSize + len(j.begin)))
		return append(frames, wire.Frame{Header: wire.Header{Kind: wire.Step, Step: j.step}, Payload: j.begin}), used
	}
	if j.request != nil {
		return append(frames, wire.Frame{Header: wire.Header{Kind: wire.Want, Step: j.step}, Payload: j.request}), used
	}
	for _, p := range l.holds.Load().pieces {
		if j.bucket == flush || l.out.Bucket(p.Variable) != j.bucket {
			continue
		}
		sum, v := l.out.Cut(p, j.part), &l.volumes[p.Variable]
		var payload []byte
		if rows := sum.Rows(); rows < 0 {
			payload = sum.Encode(nil)
		} else {
			if used == len(*encoded) {
				*encoded = append(*encoded, nil)
			}
			payload = sum.Encode((*encoded)[used][:0])
			v.rows.Add(uint64(rows))
			(*encoded)[used] = payload
			used++
		}
		v.sent.Add(uint64(wire.HeaderSize + len(payload)))
		frames = append(frames, wire.Frame{
			Header: wire.Header{Kind: wire.Push, Variable: uint32(p.Variable), Offset: uint64(p.Offset), Step: j.step,
				Part: uint32(l.out.Parts[j.part])},
			Payload: payload,
		})
	}
	return frames, used
}

func (l *link) trace(j job, frames []wire.Frame, began time.Time) {
	trace := l.holders.config.Trace
	if !trace.Enabled() {
		return
	}
	bytes := 0
	for _, f := range frames {
		bytes += wire.HeaderSize + len(f.Payload)
	}
	trace.Span("send", "send", began, time.Now(), "bucket", j.bucket, "step", j.step, "bytes", bytes, "to", l.session.Task.String())
}

// gate holds back what is to be sent: if workers compete until the worker's
// gradients are accepted; a host's sums until all workers of the host have
// begun the step.
type gate struct {
	mu     sync.Mutex
	links  []*link // where it leads; set once they are there
	closed bool
	held   []job
}

// lead sets where the gate leads.
func (g *gate) lead(to []*link) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.links = to
}

// post gives the links something to send, or holds it.
func (g *gate) post(j job) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		g.held = append(g.held, j)
		return
	}
	g.pass(j)
}

// open sends what was held, after first.
func (g *gate) open(first ...job) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, j := range append(first, g.held...) {
		g.pass(j)
	}
	g.closed, g.held = false, g.held[:0]
}

// shut holds what comes from now on. Whatever was held is dropped.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.held = true, g.held[:0]
}

// pass never blocks: a link has room for all that a step brings.
func (g *gate) pass(j job) {
	for _, l := range g.links {
		if l.takes(j) {
			l.jobs <- j
		}
	}
}

// host sends what the first worker of a host has added, see relay.Holders.
type host struct {
	holders  *holders
	gate     *gate
	progress *progress
}

// Begin implements relay.Holders.
func (h *host) Begin(payload []byte) { h.gate.open(job{begin: payload, step: h.progress.step}) }

// Push implements relay.Holders.
func (h *host) Push(bucket, part int) {
	h.gate.post(job{bucket: bucket, part: part, step: h.progress.step})
}

// Request implements relay.Holders.
func (h *host) Request(step uint64, wanted []message.Wanted, done func()) {
	a := newAsking(step)
	a.then = done
	h.holders.request(a, wanted)
	a.answered()
}
