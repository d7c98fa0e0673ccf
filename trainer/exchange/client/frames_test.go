package client

import (
	"context"
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// stepFrame returns the frame with which worker 1 of two, which has one
// virtual worker, begins a step.
func stepFrame(step uint64, leaves int) wire.Frame {
	return wire.Frame{Header: wire.Header{Kind: wire.Step, Step: step},
		Payload: message.EncodeBeginning(nil, aggregate.Beginning{Rate: 0.1, Present: []int{leaves}})}
}

func frame(kind wire.Kind, variable uint32, part uint32, step uint64, size int) wire.Frame {
	return wire.Frame{Header: wire.Header{Kind: kind, Variable: variable, Part: part, Step: step}, Payload: make([]byte, size)}
}

// If an authenticated worker sends an invalid frame, the server refuses it
// with an explanation and applies nothing.
func TestInvalidFramesOfWorkerEndTraining(t *testing.T) {
	begin := stepFrame(0, 1)
	want := func(step uint64, body []byte) wire.Frame {
		return wire.Frame{Header: wire.Header{Kind: wire.Prefetch, Step: step}, Payload: body}
	}
	push := func(variable uint32, size int) wire.Frame { return frame(wire.Push, variable, 1, 0, size) }
	for name, c := range map[string]struct {
		frames []wire.Frame
		want   string
	}{
		"unasked gradient":         {[]wire.Frame{push(0, 60)}, "0 steps were begun"},
		"early gradient":           {[]wire.Frame{begin, frame(wire.Push, 0, 1, 1, 60)}, "gradient of step 1"},
		"gradient twice":           {[]wire.Frame{begin, push(0, 60), push(0, 60)}, "came twice"},
		"unknown variable":         {[]wire.Frame{begin, push(9, 60)}, "this task does not hold"},
		"other's part":             {[]wire.Frame{begin, frame(wire.Push, 0, 0, 0, 60)}, "part 0 of the tree, which it must not send"},
		"huge part":                {[]wire.Frame{begin, frame(wire.Push, 0, math.MaxUint32, 0, 60)}, "which it must not send"},
		"absent part":              {[]wire.Frame{stepFrame(0, 0), push(0, 60)}, "which it must not send"},
		"too many leaves":          {[]wire.Frame{stepFrame(0, 2)}, "2 virtual workers in a part of 1"},
		"too long":                 {[]wire.Frame{begin, push(0, 64)}, "of 64 bytes, want 60"},
		"too short":                {[]wire.Frame{begin, push(0, 0)}, "of 0 bytes, want 60"},
		"rows too long":            {[]wire.Frame{begin, push(5, 5000)}, "want at most"},
		"rows of nonsense":         {[]wire.Frame{begin, push(5, 7)}, "rows of variable 5"},
		"wrong step":               {[]wire.Frame{stepFrame(1, 1)}, "begins step 1 during step 0"},
		"two steps":                {[]wire.Frame{begin, stepFrame(1, 1)}, "begins step 1 during step 1, with"},
		"short step":               {[]wire.Frame{{Header: wire.Header{Kind: wire.Step}}}, "step frame of 0 bytes"},
		"declared again":           {[]wire.Frame{{Header: wire.Header{Kind: wire.Declare}}}, "unexpected declare"},
		"goodbye in a step":        {[]wire.Frame{begin, {Header: wire.Header{Kind: wire.Bye}}}, "goodbye during step"},
		"norm":                     {[]wire.Frame{frame(wire.Scale, 0, 0, 0, 16)}, "a norm that was not requested"},
		"short norm":               {[]wire.Frame{frame(wire.Scale, 0, 0, 0, 15)}, "scale frame of 15 bytes"},
		"commit":                   {[]wire.Frame{frame(wire.Commit, 0, 0, 0, 0)}, "which another task decides"},
		"fetch":                    {[]wire.Frame{frame(wire.Fetch, 0, 0, 0, 0)}, "values that are sent without a request"},
		"rows of a dense one":      {[]wire.Frame{frame(wire.Pull, 0, 0, 0, 1)}, "which is dense"},
		"rows of nothing":          {[]wire.Frame{frame(wire.Pull, 77, 0, 0, 1)}, "this task does not hold"},
		"list too long":            {[]wire.Frame{frame(wire.Pull, 5, 0, 0, 4096)}, "want at most"},
		"list of nonsense":         {[]wire.Frame{frame(wire.Pull, 5, 0, 0, 3)}, "bytes after the list"},
		"rows of a step to come":   {[]wire.Frame{want(1, []byte{0})}, "wants rows of step 1, 0 steps were begun"},
		"rows of a step begun":     {[]wire.Frame{begin, want(0, []byte{0})}, "wants rows of step 0, 1 steps were begun"},
		"rows wanted twice":        {[]wire.Frame{want(0, []byte{0}), want(0, []byte{0})}, "or twice"},
		"wants of nothing":         {[]wire.Frame{want(0, []byte{1, 77, 0, 0})}, "this task does not hold"},
		"wants of a dense one":     {[]wire.Frame{want(0, []byte{1, 0, 0, 0})}, "this task does not hold"},
		"wants of one piece twice": {[]wire.Frame{want(0, []byte{2, 5, 0, 0, 5, 0, 0})}, "or twice"},
		"wants row 41":             {[]wire.Frame{want(0, []byte{1, 5, 0, 1, 41})}, "outside [0, 41)"},
		"wants and more":           {[]wire.Frame{want(0, []byte{1, 5, 0, 1, 3, 0, 0, 0, 9})}, "bytes after the lists"},
		"wants too much":           {[]wire.Frame{want(0, make([]byte, 4096))}, "want at most"},
		"wants too many":           {[]wire.Frame{want(0, []byte{200, 1})}, "no list of pieces"},
		"range outside":            {[]wire.Frame{{Header: wire.Header{Kind: wire.Pull, Variable: 5, Step: 41}}}, "rows from row 41 of [0, 41)"},
		"a lost worker":            {[]wire.Frame{frame(wire.Without, 0, 1, 0, 0)}, "unexpected without frame"},
		"range far outside":        {[]wire.Frame{{Header: wire.Header{Kind: wire.Pull, Variable: 5, Step: math.MaxUint64}}}, "rows from row"},
	} {
		t.Run(name, func(t *testing.T) {
			d := mixed(2, 2)
			d.Metrics = 0
			j := newJob(t, d, policy.Servers, 1)
			members := j.connect(t)
			before := serverValues(t, j, 0)
			if err := members[1].holders.links[0].session.Send(c.frames...); err != nil {
				t.Fatal(err)
			}
			blames(t, within(t, j.ended[0]), worker(1), c.want)
			_, err := members[0].take(context.Background(), 0, 0.1, everyLeaf)
			blames(t, err, worker(1), c.want)
			if serverValues(t, j, 0) != before {
				t.Error("a value has changed")
			}
		})
	}
}

func serverValues(t *testing.T, j *testJob, i int) (all string) {
	for _, s := range serverOf(t, j, i).Shards().All() {
		if s.Variable != j.d.LossIndex() {
			all += string(s.Value(-1))
		}
	}
	return all
}

// proven returns an authenticated connection to a server, as if a worker had
// opened it.
func proven(t *testing.T, j *testJob, rank, server int) net.Conn {
	t.Helper()
	conn, err := peers.Dial(context.Background(), j.peers(worker(rank)), server0(server), j.cluster.PS[server], message.ToHolder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// FuzzPeer sends arbitrary bytes as an authenticated worker's declaration and
// as its next frames.
func FuzzPeer(f *testing.F) {
	f.Add([]byte(`{"workers":[{"hi":1}]}`), []byte{})
	f.Add([]byte(`{"leaves":1,"workers":[{"hi":1}],"owners":["ps:0"],"start_ms":1,"silence_ms":1,"optimizer":{"rule":"sgd"},"sync":"sync"}`), make([]byte, wire.HeaderSize))
	f.Add([]byte(`{"leaves":1,"workers":[{"hi":1}],"owners":["ps:0"],"start_ms":9,"silence_ms":9,"optimizer":{"rule":"sgd"},"sync":"ssp:1","variables":[{"name":"a","dtype":"float32","shape":[2],"sparse":{}}],"pieces":[{"count":2}]}`), []byte{1})
	f.Fuzz(func(t *testing.T, declaration, rest []byte) {
		if len(declaration) > 4096 || strings.Contains(string(declaration), "000") {
			return // such sizes would exhaust the memory of the test machine
		}
		j := newJob(t, example(1, 1), policy.Servers, 1)
		conn := proven(t, j, 0, 0)
		w := wire.NewConn(conn, 0, patience.Limit)
		w.Send(wire.Frame{Header: wire.Header{Kind: wire.Declare}, Payload: declaration}) // an error is allowed: the server may hang up before it has read everything
		conn.Write(rest)
		w.Close()
		within(t, j.ended[0]) // for every input the server must end
	})
}

// frames converts arbitrary bytes to frames that are nearly valid, so that
// they pass the first checks.
func frames(b []byte) (all []wire.Frame) {
	for len(b) >= 8 && len(all) < 50 {
		n := int(b[6]) * int(b[7]%9)
		f := wire.Frame{Header: wire.Header{Kind: wire.Kind(b[0] % 28), Variable: uint32(b[1] % 9), Part: uint32(b[2] % 8),
			Step: uint64(b[3] % 4), Offset: uint64(b[4]%3) * 1024, Epoch: uint32(b[5] % 2)}}
		if f.Kind == 0 {
			f.Kind = wire.Push
		}
		b = b[8:]
		if b8 := []int{12, 16, 60, 32, 20480, 4}; n%7 == 3 {
			n = b8[n%len(b8)]
		}
		f.Payload = make([]byte, n)
		copy(f.Payload, b)
		all = append(all, f)
	}
	return all
}

// FuzzServer makes a connected worker send frames of all kinds, in every
// synchronisation mode.
func FuzzServer(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 12 {
		b := make([]byte, 8*20)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		f.Add(b, uint8(random.Uint32()))
	}
	f.Fuzz(func(t *testing.T, b []byte, mode uint8) {
		modes := []string{"sync", "async", "ssp:1", "group:2", "backup:1"}
		d := in(modes[int(mode)%len(modes)], unclipped(2, 2))
		if d.Norm = mode%2 == 0 && !d.Sync.WorkersCompete(); d.Norm {
			d.Clip = 1
		}
		d.Movable = d.Sync.InStep()
		j := newJob(t, d, policy.Servers, 1)
		members := j.connect(t)
		go members[0].take(context.Background(), 0, 0.1, everyLeaf)
		l := members[1].holders.links[0]
		l.session.Send(frames(b)...) // an error is allowed: the server may hang up before it has read everything
		members[1].Abort(context.Canceled)
		members[0].Abort(context.Canceled) // an error is allowed: the other worker may have said goodbye
		within(t, j.ended[0])
	})
}

// If a shard holder sends an invalid frame, the worker's error blames that
// holder.
func TestInvalidFramesOfHolderEndTraining(t *testing.T) {
	for name, c := range map[string]struct {
		frame wire.Frame
		want  string
	}{
		"goodbye":        {frame(wire.Bye, 0, 0, 0, 0), "said goodbye in the middle"},
		"unknown value":  {frame(wire.Value, 77, 0, 1, 60), "which that task does not hold"},
		"early value":    {frame(wire.Value, 0, 0, 2, 60), "want 60 bytes after 1, once"},
		"short value":    {frame(wire.Value, 0, 0, 1, 56), "56 bytes after 1 steps, want 60"},
		"rows for value": {frame(wire.Value, 5, 0, 1, 492), "want 0 bytes"},
		"a lost worker":  {frame(wire.Without, 0, 1, 0, 0), "unexpected without frame"},
		"early end":      {frame(wire.Done, 0, 0, 1, message.OutcomeSize), "unexpected done frame"},
		"ready again":    {frame(wire.Ready, 0, 0, 0, 0), "unexpected ready frame"},
		"unasked rows":   {frame(wire.Rows, 5, 1, 0, 12), "which this worker did not request"},
		"unasked answer": {frame(wire.FinalReply, 0, 0, 0, 8), "which this worker did not request"},
		"early answer":   {frame(wire.EarlyReply, 0, 0, 0, 8), "which this worker did not request"},
		"long norm":      {frame(wire.Norm, 0, 0, 0, 1<<16), "norm frame of 65536 bytes"},
		"bad norm":       {frame(wire.Norm, 0, 0, 0, 4), "norm frame ends before"},
		"verdict":        {frame(wire.Verdict, 0, 0, 0, 0), "unexpected verdict"},
		"step":           {frame(wire.Step, 0, 0, 0, 0), "unexpected step frame"},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t, mixed(2, 2), policy.Servers, 1)
			members := j.connect(t)
			j.sends(t, serverOf(t, j, 0), 1, c.frame)
			_, err := members[1].take(context.Background(), 0, 0.1, everyLeaf)
			blames(t, err, server0(0), c.want)
		})
	}
}

// FuzzClient makes a shard holder send frames of all kinds to a worker.
func FuzzClient(f *testing.F) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 12 {
		b := make([]byte, 8*20)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		f.Add(b, uint8(random.Uint32()))
	}
	f.Fuzz(func(t *testing.T, b []byte, mode uint8) {
		modes := []string{"sync", "async", "ssp:1", "backup:1"}
		d := in(modes[int(mode)%len(modes)], unclipped(2, 2))
		d.Norm = mode%2 == 0 && !d.Sync.WorkersCompete()
		j := newJob(t, d, policy.Servers, 1)
		members := j.connect(t)
		j.sends(t, serverOf(t, j, 0), 1, frames(b)...)
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		members[1].take(ctx, 0, 0.1, everyLeaf)
		members[1].Abort(context.Canceled)
	})
}
