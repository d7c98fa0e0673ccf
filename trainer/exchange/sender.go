package exchange

import (
	"time"

	"github.com/plx-run/plx/trainer/wire"
)

// job is something to send: the sums of a bucket for a part, or one of those
// below.
type job struct {
	bucket, part int
	step         uint64
	begin        []byte // payload of the step's first frame; it waits for the next job
	want         []byte // payload of a request for rows
}

// flush as a job's bucket sends what waits and nothing else.
const flush = -1

// send sends until the client has failed or hung up. All that is ready for
// the holder travels in one Send.
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
		if err := l.conn.Send(frames...); err != nil {
			l.sendFailed(err)
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
	case <-l.client.failed:
	case <-l.over:
	}
	return job{}, false
}

// frames adds those of a job. used counts the memory for rows in use.
func (l *link) frames(frames []wire.Frame, j job, encoded *[][]byte, used int) ([]wire.Frame, int) {
	if j.begin != nil {
		l.volumes[l.client.d.LossIndex()].sent.Add(uint64(wire.HeaderSize + len(j.begin)))
		return append(frames, wire.Frame{Header: wire.Header{Kind: wire.Step, Step: j.step}, Payload: j.begin}), used
	}
	if j.want != nil {
		return append(frames, wire.Frame{Header: wire.Header{Kind: wire.Want, Step: j.step}, Payload: j.want}), used
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
	trace := l.client.config.Trace
	if !trace.Enabled() {
		return
	}
	bytes := 0
	for _, f := range frames {
		bytes += wire.HeaderSize + len(f.Payload)
	}
	trace.Span("send", "send", began, time.Now(), "bucket", j.bucket, "step", j.step, "bytes", bytes, "to", l.task.String())
}
