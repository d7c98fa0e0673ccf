package client

import (
	"context"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/wire"
)

// job is data to send: the sums of a bucket for a part, a step's first frame, a
// prefetch request, or a flush.
type job struct {
	bucket, part int
	step         uint64
	begin        []byte // payload of the step's first frame, which the sender sends with the next job
	request      []byte // payload of a prefetch request
}

// flush, as the bucket of a job, makes the sender send the frames that it has,
// and nothing else.
const flush = -1

// sender sends jobs to one holder. One goroutine calls run.
type sender struct {
	*holder
	jobs chan job
}

// newSender returns a sender with room for all jobs of a step and a prefetch
// request. The jobs of a step are its buckets, its two ends and the end of the
// previous step.
func newSender(to *holder) *sender {
	return &sender{to, make(chan job, len(to.out.Buckets)*len(to.out.Parts)+5)}
}

// takes reports whether the holder needs a job. A holder without pieces needs
// none.
func (s *sender) takes(j job) bool {
	now := s.holds.Load()
	return len(now.pieces) > 0 && (j.begin != nil || j.bucket == flush || now.has[j.bucket])
}

// run sends jobs until the training has failed or the connection is over. It
// sends all jobs that are ready in one Send.
func (s *sender) run(ctx context.Context, over <-chan struct{}) error {
	var frames []wire.Frame
	var encoded [][]byte // memory for rows
	for {
		var j job
		select {
		case j = <-s.jobs:
		case <-ctx.Done():
			return nil
		case <-over:
			return nil
		}
		began, first, used, due := time.Now(), j, 0, false
		for more := true; more; {
			due = due || j.begin == nil
			if first.begin != nil || first.bucket == flush {
				first = j
			}
			frames, used = s.frames(frames, j, &encoded, used)
			select {
			case j = <-s.jobs:
			default:
				more = false
			}
		}
		if !due {
			continue // the step's first frame travels with the next job
		}
		if err := s.session.Send(frames...); err != nil {
			return err
		}
		s.span(first, frames, began)
		clear(frames)
		frames = frames[:0]
	}
}

// frames appends the frames of a job. used is the number of slices of encoded
// in use.
func (s *sender) frames(frames []wire.Frame, j job, encoded *[][]byte, used int) ([]wire.Frame, int) {
	if j.begin != nil {
		s.volumes[s.d.LossIndex()].sent.Add(uint64(wire.HeaderSize + len(j.begin)))
		return append(frames, wire.Frame{Header: wire.Header{Kind: wire.Step, Step: j.step}, Payload: j.begin}), used
	}
	if j.request != nil {
		return append(frames, wire.Frame{Header: wire.Header{Kind: wire.Prefetch, Step: j.step}, Payload: j.request}), used
	}
	for _, p := range s.holds.Load().pieces {
		if j.bucket == flush || s.out.Bucket(p.Variable) != j.bucket {
			continue
		}
		sum, v := s.out.Cut(p, j.part), &s.volumes[p.Variable]
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
				Part: uint32(s.out.Parts[j.part])},
			Payload: payload,
		})
	}
	return frames, used
}

func (s *sender) span(j job, frames []wire.Frame, began time.Time) {
	if !s.trace.Enabled() {
		return
	}
	bytes := 0
	for _, f := range frames {
		bytes += wire.HeaderSize + len(f.Payload)
	}
	s.trace.Span("send", "send", began, time.Now(), "bucket", j.bucket, "step", j.step, "bytes", bytes, "to", s.session.Task.String())
}

// gate passes jobs to senders, or holds them. If workers compete, a worker's
// gate holds gradients until they are accepted. The gate of a host holds its
// sums until all workers of the host have begun the step.
type gate struct {
	mu     sync.Mutex
	links  []*sender // senders of the links; set after they are connected
	closed bool      // the gate holds jobs
	held   []job     // in the order of post
}

// lead sets the senders to which the gate passes jobs.
func (g *gate) lead(to []*sender) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.links = to
}

// post passes a job to the senders, or holds it.
func (g *gate) post(j job) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		g.held = append(g.held, j)
		return
	}
	g.pass(j)
}

// open passes the jobs first and then the held ones. From now on the gate
// passes jobs.
func (g *gate) open(first ...job) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, j := range append(first, g.held...) {
		g.pass(j)
	}
	g.closed, g.held = false, g.held[:0]
}

// shut drops the held jobs. From now on the gate holds jobs.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.held = true, g.held[:0]
}

// pass passes a job to the senders that need it. It never blocks, because a
// sender has room for all jobs of a step.
func (g *gate) pass(j job) {
	for _, l := range g.links {
		if l.takes(j) {
			l.jobs <- j
		}
	}
}
