package client

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// pair returns a job of one host with two workers, and one server. Workers
// hold the dense variables 0 to 4, and the server holds the tables 5 and 6.
func pair(t *testing.T) (*testJob, []*member) {
	d := mixed(2, 2)
	d.Metrics, d.Hosts = 0, []layout.Range{{Lo: 0, Hi: 2}}
	j := newJob(t, d, policy.Hybrid, 1)
	return j, j.connect(t)
}

// The first worker of a host checks the frames of the other workers as a shard
// holder does. All tasks report an invalid frame.
func TestInvalidFramesOfWorkerOnSameHostEndTraining(t *testing.T) {
	begin := stepFrame(0, 1)
	for name, c := range map[string]struct {
		frames []wire.Frame
		want   string
	}{
		"unasked rows":         {[]wire.Frame{frame(wire.Push, 5, 1, 0, 0)}, "0 steps were begun"},
		"rows twice":           {[]wire.Frame{begin, frame(wire.Push, 5, 1, 0, 0), frame(wire.Push, 5, 1, 0, 0)}, "came twice"},
		"variable on a worker": {[]wire.Frame{begin, frame(wire.Push, 0, 1, 0, 60)}, "this task does not hold"},
		"other's part":         {[]wire.Frame{begin, frame(wire.Push, 5, 0, 0, 0)}, "part 0 of the tree, which it must not send"},
		"rows of nonsense":     {[]wire.Frame{begin, frame(wire.Push, 5, 1, 0, 7)}, "rows of variable 5"},
		"rows too long":        {[]wire.Frame{begin, frame(wire.Push, 5, 1, 0, 5000)}, "want at most"},
		"short loss":           {[]wire.Frame{begin, frame(wire.Push, 7, 1, 0, 4)}, "of 4 bytes, want 8"},
		"too many leaves":      {[]wire.Frame{stepFrame(0, 2)}, "2 virtual workers in a part of 1"},
		"wrong step":           {[]wire.Frame{stepFrame(1, 1)}, "begins step 1 during step 0"},
		"rows are not pulled":  {[]wire.Frame{frame(wire.Pull, 5, 0, 0, 1)}, "rows of variable 5"},
		"norm":                 {[]wire.Frame{frame(wire.Scale, 0, 0, 0, 16)}, "a norm that was not requested"},
		"first values":         {[]wire.Frame{frame(wire.Initial, 5, 0, 0, 8)}, "unexpected initial"},
		"goodbye in a step":    {[]wire.Frame{begin, {Header: wire.Header{Kind: wire.Bye}}}, "goodbye during step"},
	} {
		t.Run(name, func(t *testing.T) {
			j, members := pair(t)
			if err := members[1].holders.up.session.Send(c.frames...); err != nil {
				t.Fatal(err)
			}
			_, err := members[0].take(context.Background(), 0, 0.1, everyLeaf)
			blames(t, err, worker(1), c.want)
			blames(t, within(t, j.ended[0]), worker(1), c.want)
		})
	}
}

// A worker of a host checks the frames from the server and those from the
// first worker of the host.
func TestInvalidFramesToHostEndTraining(t *testing.T) {
	for name, c := range map[string]struct {
		to    int
		frame wire.Frame
		want  string
	}{
		"value before the step": {0, frame(wire.Value, 7, 0, 1, 8), "before it was begun"},
		"value too far ahead":   {0, frame(wire.Value, 7, 0, 2, 8), "want 8 bytes after 1, once"},
		"rows for value":        {0, frame(wire.Value, 5, 0, 1, 492), "want 0 bytes"},
		"variable on a worker":  {1, frame(wire.Value, 0, 0, 1, 60), "which that task does not hold"},
		"norm":                  {1, frame(wire.Norm, 0, 0, 0, 8), "norm frame of 8 bytes"},
		"end too early":         {1, frame(wire.Done, 0, 0, 1, message.OutcomeSize), "unexpected done frame"},
		"unknown value":         {1, frame(wire.Value, 77, 0, 1, 8), "which that task does not hold"},
	} {
		t.Run(name, func(t *testing.T) {
			j, members := pair(t)
			from, s := worker(0), members[0].holders.locals[0].server
			if c.to == 0 {
				from, s = server0(0), serverOf(t, j, 0)
			}
			j.sends(t, s, c.to, c.frame)
			_, err := members[c.to].take(context.Background(), 0, 0.1, everyLeaf)
			blames(t, err, from, c.want)
		})
	}
}

// FuzzHost sends frames of all kinds between the workers of a host, and from
// the server to them.
func FuzzHost(f *testing.F) {
	random := rand.New(rand.NewPCG(5, 6))
	for i := range 12 {
		b := make([]byte, 8*20)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		f.Add(b, uint8(i))
	}
	f.Fuzz(func(t *testing.T, b []byte, way uint8) {
		d := unclipped(2, 2)
		d.Hosts, d.Norm = []layout.Range{{Lo: 0, Hi: 2}}, way >= 128
		j := newJob(t, d, []policy.Architecture{policy.Servers, policy.Hybrid}[way/64%2], 1)
		members := j.connect(t)
		switch way % 3 {
		case 0:
			members[1].holders.up.session.Send(frames(b)...) // an error is allowed: the peer may hang up before it has read everything
		case 1:
			j.sends(t, members[0].holders.locals[0].server, 1, frames(b)...)
		case 2:
			j.sends(t, serverOf(t, j, 0), 0, frames(b)...)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		ended := make(chan error, 2)
		for _, m := range members {
			go func() {
				_, err := m.take(ctx, 0, 0.1, everyLeaf)
				m.Abort(cluster.ErrProof) // any error
				ended <- err
			}()
		}
		within(t, ended)
		within(t, ended)
		within(t, j.ended[0])
	})
}
