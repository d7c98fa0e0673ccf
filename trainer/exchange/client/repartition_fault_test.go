package client

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
)

// breaker is a proxy for connections to a task. After it has forwarded a given
// number of bytes, it breaks all connections, including later ones.
type breaker struct {
	addr string
	mu   sync.Mutex
	left int
	ends func(conns ...net.Conn) // breaks a connection
}

func newBreaker(t *testing.T, to string, after int, ends func(conns ...net.Conn)) *breaker {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &breaker{addr: ln.Addr().String(), left: after, ends: ends}
	var carrying sync.WaitGroup
	t.Cleanup(func() { ln.Close(); carrying.Wait() })
	carrying.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			t.Cleanup(func() { in.Close(); out.Close() })
			carrying.Go(func() { b.carry(in, out, true) })
			carrying.Go(func() { b.carry(out, in, false) })
		}
	})
	return b
}

func (b *breaker) carry(in, out net.Conn, counts bool) {
	defer out.Close()
	buffer := make([]byte, 4096)
	for {
		n, err := in.Read(buffer)
		b.mu.Lock()
		if counts {
			b.left -= n
		}
		broken := b.left < 0
		b.mu.Unlock()
		if broken {
			b.ends(in, out)
			return
		}
		if err != nil {
			return
		}
		out.Write(buffer[:n])
	}
}

// large returns a job on three servers. Its table takes several frames to
// move, and all its rows were updated.
func large(t *testing.T, a policy.Architecture) (*testJob, []*member) {
	d := movableTables(4, 2, optimizer.Momentum)
	d.Variables[5].Shape = []int{4000, 200}
	d.SilenceMillis = 2000
	j := newJob(t, d, a, 3)
	members := j.connect(t)
	for s := range uint64(3) {
		_, errs := step(members, s, 0.1)
		must(t, errs)
	}
	return j, members
}

// detour makes the servers reach ps:1 at another address.
func (j *testJob) detour(addr string) {
	for i := range j.served {
		j.reroute(i, j.cluster.PS[0], addr, j.cluster.PS[2])
	}
}

// reroute changes the addresses of all servers that server i uses. Server i
// shares the slice and reads it after taking its lock, which orders this write
// before the read.
func (j *testJob) reroute(i int, servers ...string) {
	j.served[i].Workers()
	copy(j.routes[i], servers)
	j.served[i].Workers()
}

// endsBlaming checks that all workers and servers blame one of the given
// tasks, with an error that contains what.
func endsBlaming(t *testing.T, j *testJob, errs []error, what string, tasks ...cluster.Task) {
	t.Helper()
	for i, ended := range j.ended {
		if !containsTask(tasks, server0(i)) {
			errs = append(errs, within(t, ended))
		}
	}
	for _, err := range errs {
		var peer *peers.PeerError
		if !errors.As(err, &peer) || !containsTask(tasks, peer.Task) || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want %v to blame and %q", err, tasks, what)
		}
	}
}

func containsTask(all []cluster.Task, t cluster.Task) bool {
	for _, task := range all {
		if task == t {
			return true
		}
	}
	return false
}

// If a connection between two shard holders breaks during a move, training
// ends, and all tasks blame one of the two.
func TestBrokenConnectionDuringMoveIsReported(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	for _, after := range []int{0, 5000, 1500000} {
		j, members := large(t, policy.Servers)
		b := newBreaker(t, j.cluster.PS[1], after, func(conns ...net.Conn) {
			for _, c := range conns {
				c.Close()
			}
		})
		j.detour(b.addr)
		errs := repartition(members, onHolder(&j.d, 1))
		what := "connection lost"
		if after == 0 { // the connection breaks during authentication, which the dialler retries
			what = "not reached within 2s"
		}
		endsBlaming(t, j, errs, what, server0(0), server0(1), server0(2))
	}
}

// If the network between two shard holders drops all data during a move,
// training ends after the declared silence limit.
func TestSilentConnectionDuringMoveIsReported(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	t.Parallel()
	j, members := large(t, policy.Servers)
	over := make(chan struct{})
	b := newBreaker(t, j.cluster.PS[1], 700000, func(...net.Conn) { <-over })
	t.Cleanup(func() { close(over) })
	j.detour(b.addr)
	began := time.Now()
	errs := repartition(members, onHolder(&j.d, 1))
	endsBlaming(t, j, errs, "silent", server0(0), server0(1), server0(2))
	if took := time.Since(began); took > patience.Limit/2 {
		t.Errorf("took %v", took)
	}
}

// If a shard holder dies during a move, all tasks blame it.
func TestDeadHolderDuringMoveIsReported(t *testing.T) {
	for _, a := range []policy.Architecture{policy.Servers, policy.Hybrid} {
		j, members := large(t, a)
		died := make(chan struct{})
		var once sync.Once
		b := newBreaker(t, j.cluster.PS[1], 700000, func(conns ...net.Conn) {
			once.Do(func() { dies(j, 1); close(died) })
			for _, c := range conns {
				c.Close()
			}
		})
		j.detour(b.addr)
		errs := repartition(members, onHolder(&j.d, 1))
		within(t, died)
		endsBlaming(t, j, errs, "connection lost", server0(1))
	}
}

// dies simulates the death of a server's process.
func dies(j *testJob, i int) { j.served[i].End(nil) } // without an error, so that the server closes its connections without a report

// If a worker dies while variables move, all tasks blame it.
func TestDeadWorkerDuringMoveIsReported(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	j, members := large(t, policy.Servers)
	var once sync.Once
	over := make(chan struct{})
	b := newBreaker(t, j.cluster.PS[1], 700000, func(...net.Conn) {
		once.Do(func() { die(members[1]) })
		<-over
	})
	t.Cleanup(func() { close(over) })
	j.detour(b.addr)
	ctx, cancel := context.WithTimeout(context.Background(), patience.Limit)
	defer cancel()
	left := make(chan error, 1)
	go func() { left <- members[1].Placement.Repartition(ctx, onHolder(&j.d, 1)) }()
	err := members[0].Placement.Repartition(ctx, onHolder(&j.d, 1))
	endsBlaming(t, j, []error{err}, "connection lost", worker(1))
	cancel()
	within(t, left)
}

// moverConn returns a connection to ps:0, as if another shard holder had
// opened it to send rows.
func moverConn(t testing.TB, j *testJob, from cluster.Task) *wire.Conn {
	t.Helper()
	raw, err := peers.Dial(context.Background(), j.peers(from), server0(0), j.cluster.PS[0], transition.Purpose)
	if err != nil {
		t.Fatal(err)
	}
	conn := wire.NewConn(raw, 0, patience.Limit)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// moves returns a job in which ps:1 must send all its rows to ps:0. The test
// sends them instead of ps:1.
func moves(t testing.TB) (*testJob, []*member, chan []error) {
	d := movableTables(2, 2, optimizer.Momentum)
	d.Variables = d.Variables[5:6]
	j := newJob(t, d, policy.Servers, 2)
	members := j.connect(t)
	must(t, repartition(members, []layout.Piece{{Variable: 0, Holder: 1, Offset: 0, Count: 20}, {Variable: 0, Holder: 1, Offset: 20, Count: 21}}))
	// ps:1 sends its own rows to this address, on which no task listens.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	j.reroute(1, ln.Addr().String(), j.cluster.PS[1])
	asked := make(chan []error, 1)
	go func() { asked <- repartition(members, []layout.Piece{{Variable: 0, Holder: 0, Offset: 0, Count: 41}}) }()
	return j, members, asked
}

// If a shard holder sends invalid rows, training ends with an explanation that
// names the holder.
func TestInvalidMoveFramesEndTraining(t *testing.T) {
	t.Parallel()
	row := func(index ...int64) []byte {
		table := newExport(t)
		return table.Export(nil, index)
	}
	move := func(offset uint64, payload []byte) wire.Frame {
		return wire.Frame{Header: wire.Header{Kind: wire.Move, Epoch: 2, Offset: offset}, Payload: payload}
	}
	moved := func(offset, updates uint64) wire.Frame {
		return wire.Frame{Header: wire.Header{Kind: wire.Moved, Epoch: 2, Offset: offset, Step: updates}}
	}
	other := func(change func(f *wire.Frame)) wire.Frame {
		f := move(0, row(3))
		change(&f)
		return f
	}
	for name, c := range map[string]struct {
		frames []wire.Frame
		want   string
	}{
		"other epoch":    {[]wire.Frame{other(func(f *wire.Frame) { f.Epoch = 1 })}, "unexpected move frame"},
		"other step":     {[]wire.Frame{other(func(f *wire.Frame) { f.Step = 9 })}, "unexpected move frame"},
		"other variable": {[]wire.Frame{other(func(f *wire.Frame) { f.Variable = 1 })}, "unexpected move frame"},
		"other range":    {[]wire.Frame{other(func(f *wire.Frame) { f.Offset = 20 })}, "unexpected move frame"},
		"other kind":     {[]wire.Frame{other(func(f *wire.Frame) { f.Kind = wire.Value })}, "unexpected value frame"},
		"row twice":      {[]wire.Frame{move(0, row(3)), move(0, row(3))}, "outside [4, 20)"},
		"row before":     {[]wire.Frame{move(0, row(3)), move(0, row(2, 5))}, "outside [4, 20)"},
		"row of another": {[]wire.Frame{move(0, row(20))}, "outside [0, 20)"},
		"nothing":        {[]wire.Frame{move(0, nil)}, "rows of variable 0"},
		"no rows":        {[]wire.Frame{move(0, row())}, "want one at least"},
		"cut short":      {[]wire.Frame{move(0, row(3)[:20])}, "rows of variable 0"},
		"too long":       {[]wire.Frame{move(0, make([]byte, 800))}, "want at most"},
		"long end":       {[]wire.Frame{other(func(f *wire.Frame) { f.Kind = wire.Moved })}, "unexpected moved frame"},
		"other count":    {[]wire.Frame{moved(0, 1), moved(20, 2)}, "2 updates of variable 0"},
		"end twice":      {[]wire.Frame{moved(0, 1), moved(0, 1)}, "unexpected moved frame"},
		"gives up": {[]wire.Frame{{Header: wire.Header{Kind: wire.Error}, Payload: peers.EncodeReport(errors.New("the disk is full"))}},
			"the disk is full"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j, _, asked := moves(t)
			conn := moverConn(t, j, server0(1))
			if err := conn.Send(c.frames...); err != nil {
				t.Fatal(err)
			}
			blames(t, within(t, j.ended[0]), server0(1), c.want)
			for _, err := range within(t, asked) {
				blames(t, err, server0(1), c.want)
			}
		})
	}
}

// A task that must not send rows is refused, and the move is completed.
func TestUnexpectedSenderOfRowsIsRefused(t *testing.T) {
	d := movableTables(2, 2, optimizer.Momentum)
	j := newJob(t, d, policy.Servers, 3)
	members := j.connect(t)
	refused := func(from cluster.Task, want string) {
		conn := moverConn(t, j, from)
		if err := conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Move}}); err != nil {
			t.Fatal(err)
		}
		h, err := conn.Next()
		if err != nil || h.Kind != wire.Error {
			t.Fatalf("%v, %v", h, err)
		}
		if said, err := peers.ReadReport(conn, h); err != nil || !strings.Contains(said.Error(), want) {
			t.Errorf("%v, %v; want %q", said, err, want)
		}
		conn.Close()
	}
	refused(worker(1), "it is no holder of movable variables")
	_, errs := step(members, 0, 0.1)
	must(t, errs)
	must(t, repartition(members, onHolder(&j.d, 1)))
	_, errs = step(members, 1, 0.1)
	must(t, errs)
	leave(t, j, members)
}

// newExport returns a table like that of moves, all of whose rows were
// updated.
func newExport(t *testing.T) *sparse.Table[float32] {
	table, err := sparse.NewTable[float32]("table", layout.RowInit{}, optimizer.Settings{Rule: optimizer.Momentum}, 0, 41, 3)
	if err == nil {
		zeros := sparse.Rows[float32]{Values: make([]float32, 41*3), Width: 3}
		for row := range int64(41) {
			zeros.Index = append(zeros.Index, row)
		}
		err = table.Apply(optimizer.Step{Scale: 1}, zeros)
	}
	if err != nil {
		t.Fatal(err)
	}
	return table
}
