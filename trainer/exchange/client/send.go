package client

import (
	"context"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/wire"
)

// job is something for a sender to send: the sums of gradients of a bucket (a
// group of variables), a Step frame, or a prefetch request. A job may also be
// a flush, which only makes the sender send what it has kept back.
type job struct {
	bucket, part int
	step         uint64
	begin        []byte // payload of the Step frame, which begins a step; the sender sends it together with its next job
	request      []byte // payload of a prefetch request
}

// flush is a value of job.bucket. It makes the sender send a Step frame that
// it may have kept back.
const flush = -1

// sender sends jobs to one shard holder. A single goroutine calls run.
type sender struct {
	*holder
	jobs chan job
}

// newSender returns a sender. Its channel has room for all jobs that can be
// pending: the buckets (groups of variables) of a step, its Step frame, the
// flushes of this and the previous step, and prefetch requests.
func newSender(to *holder) *sender {
	return &sender{to, make(chan job, len(to.out.Buckets)*len(to.out.Parts)+5)}
}

// takes reports whether a job must be sent to this shard holder. A holder
// without pieces gets no jobs.
func (s *sender) takes(j job) bool {
	now := s.holds.Load()
	return len(now.pieces) > 0 && (j.begin != nil || j.bucket == flush || now.has[j.bucket])
}

// run sends jobs until the training fails or the connection ends. It sends all
// jobs that are ready with one call of Send.
func (s *sender) run(ctx context.Context, over <-chan struct{}) error {
	var frames []wire.Frame
	var encoded [][]byte // reusable buffers for encoded rows, one for each frame with rows
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
			continue // frames has only a Step frame, which is sent together with the next job
		}
		if err := s.session.Send(frames...); err != nil {
			return err
		}
		s.span(first, frames, began)
		clear(frames)
		frames = frames[:0]
	}
}

// frames appends the frames of job j to the parameter frames. The frames so
// far use the first `used` buffers of encoded. The method returns how many are
// used afterwards.
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

// gate passes jobs to senders, or holds them back while the gate is closed. In
// mode backup, a worker's gate is closed until the first shard holder accepts
// the worker's gradients. The gate for the sums of a host is closed until all
// workers of the host have begun the step.
type gate struct {
	mu     sync.Mutex
	links  []*sender // senders to which the gate passes jobs; set by lead
	closed bool      // true if the gate holds back jobs
	held   []job     // jobs that the gate holds back, in the order of the calls of post
}

// lead sets the senders to which the gate passes jobs.
func (g *gate) lead(to []*sender) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.links = to
}

// post passes a job to the senders, or holds it back if the gate is closed.
func (g *gate) post(j job) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		g.held = append(g.held, j)
		return
	}
	g.pass(j)
}

// open opens the gate. It passes to the senders first the jobs in the
// parameter first, and then the jobs that the gate has held back.
func (g *gate) open(first ...job) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, j := range append(first, g.held...) {
		g.pass(j)
	}
	g.closed, g.held = false, g.held[:0]
}

// shut closes the gate and drops the jobs that it has held back.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.held = true, g.held[:0]
}

// pass passes a job to those senders whose holder needs it. It does not block,
// because a sender's channel has room for all jobs of a step.
func (g *gate) pass(j job) {
	for _, l := range g.links {
		if l.takes(j) {
			l.jobs <- j
		}
	}
}
