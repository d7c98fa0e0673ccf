package hosts

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/protocol"
)

// front is a "plx agent start" that an earlier launch has left the binary for. It has answered
// what the host is, and waits for the Spec of a job. So a launch needs one session on a host
// and starts none of the programs of the scripts.
type front struct {
	stream *Stream
	conn   *protocol.Conn
	binary string     // of the agent
	asking sync.Mutex // held from a question to its answer
}

// errFront says that an agent did not answer as one does. The scripts tell what is wrong.
var errFront = errors.New("the agent has not answered the survey")

// frontTime bounds the start of the agent, and its first answer, for which files may have to be
// hashed.
const frontTime = envsync.InspectLimit

// ask writes Facts, has and Report as an agent answers them. With an error nothing is written.
// The error is envsync.ErrStuck if no command runs on the host.
func (h *Host) ask(ctx context.Context, likely []envsync.Blob, probes *console.Tally) error {
	if len(likely) == 0 {
		return errFront
	}
	a := AgentHost{Host: h, Binary: envsync.BlobPath(likely[0].Sum)}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f := &front{stream: a.Stream(ctx, a.shell("start")), binary: a.Binary}
	alarm := time.AfterFunc(frontTime, func() { cancel(envsync.ErrStuck) })
	defer func() { alarm.Stop() }()
	stop := context.AfterFunc(ctx, func() { f.stream.Close() })
	err := f.survey(h, likely, func(told phase) {
		alarm.Stop()
		switch told {
		case greeted:
			alarm = time.AfterFunc(frontTime, func() { cancel(errFront) })
		case placed:
			limit := time.AfterFunc(gpuprobe.Limit(h.probeTime), func() { cancel(errFront) })
			context.AfterFunc(ctx, func() { limit.Stop() })
			alarm = time.AfterFunc(gpuprobe.SlowAfter, func() { h.slow(probes) })
		}
	})
	if !stop() || err != nil {
		f.stream.Close()
		return errors.Join(context.Cause(ctx), err)
	}
	h.front.Store(f)
	return nil
}

// phase is how far an agent has answered.
type phase int

const (
	greeted phase = iota // it runs
	placed               // it has told all but the GPUs
)

// survey asks the agent, and calls told after each phase.
func (f *front) survey(h *Host, likely []envsync.Blob, told func(phase)) (err error) {
	if f.conn, err = protocol.Open(agentStream{f.stream}); err != nil {
		return err
	}
	told(greeted)
	want := protocol.Survey{Blobs: map[string]int64{}, ToolTime: h.probeTime}
	for _, b := range likely {
		want.Blobs[b.Sum] = b.Size
	}
	if err := f.conn.Send(protocol.Message{Survey: &want}); err != nil {
		return err
	}
	first, err := f.conn.Receive()
	if err != nil || first.Surveyed == nil {
		return errors.Join(errFront, err)
	}
	facts, err := envsync.ReadFacts(first.Surveyed.Facts)
	if err != nil {
		return err
	}
	told(placed)
	second, err := f.conn.Receive()
	if err != nil || second.GPUs == nil {
		return errors.Join(errFront, err)
	}
	h.Facts, h.has, h.Report = facts, first.Surveyed.Has, gpuprobe.Answer(*second.GPUs).Report()
	h.locks = &first.Surveyed.Locks
	return nil
}

// Locks returns the host's lines of /proc/net/unix on booked GPUs, if an agent has answered the
// last survey.
func (h *Host) Locks() (lines string, known bool) {
	if h.locks == nil {
		return "", false
	}
	return *h.locks, true
}

// Furnish asks the host's agent that waits for the job whether the host has all files of a
// folder, and to make the job's working directory of it if there is a source. It reports false
// if no agent waits, or if it has not done so within the limit: then the files are to be sent.
func (a *AgentHost) Furnish(ctx context.Context, want protocol.Furnish, limit time.Duration) bool {
	f := a.front.Load()
	if f == nil || f.binary != a.Binary {
		return false
	}
	f.asking.Lock()
	defer f.asking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { f.stream.Close() })
	err := f.conn.Send(protocol.Message{Furnish: &want})
	var answer protocol.Message
	if err == nil {
		answer, err = f.conn.Receive()
	}
	if stop() && err == nil && answer.Furnished != nil {
		return answer.Furnished.Done
	}
	if a.front.CompareAndSwap(f, nil) {
		f.stream.Close()
	}
	return false
}

// close ends the agent, and waits for that. A nil front is none.
func (f *front) close() {
	if f != nil {
		_ = f.stream.Finish() // nothing was asked of it
	}
}

// take returns the connection to the host's front, which is the caller's from then on; nil if
// there is none of that binary that still waits.
func (h *Host) take(binary string) *protocol.Conn {
	f := h.front.Swap(nil)
	if f == nil {
		return nil
	}
	select {
	case <-f.stream.Done():
	default:
		if f.binary == binary {
			return f.conn
		}
	}
	f.close()
	return nil
}
