package client

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
)

// A server without pieces is dismissed by the chief and returns nil while the
// other tasks train.
func TestServersWithoutPiecesReturnNil(t *testing.T) {
	for a, servers := range map[policy.Architecture]int{policy.AllReduce: 2, policy.Servers: 6} { // for 4 variables
		j := newJob(t, example(2, 2), a, servers)
		members := j.connect(t)
		for i := range j.ended {
			if j.d.HolderIndex(server0(i)) >= 0 {
				continue
			}
			if err := within(t, j.ended[i]); err != nil {
				t.Errorf("ps:%d: %v", i, err)
			}
		}
		_, errs := step(members, 0, 0.1)
		must(t, errs)
		leave(t, j, members)
	}
}

// Close of a worker that holds variables returns only after the other workers
// have left.
func TestHolderServesUntilOtherWorkersLeave(t *testing.T) {
	j := newJob(t, mixed(2, 2), policy.AllReduce, 0)
	members := j.connect(t)
	closed := make(chan error, 1)
	go func() { closed <- members[1].Close() }()
	eventually(t, "worker:1 said goodbye", func() bool {
		return members[0].holders.local.server.Workers()[1].Gone
	})
	got := make([]byte, 41*3*4)
	if err := members[0].Rows.Whole(context.Background(), 5, got); err != nil {
		t.Error(err)
	}
	if string(got) != string(newReference(&j.d).table(5)) {
		t.Error("the table differs from the reference")
	}
	select {
	case err := <-closed:
		t.Errorf("worker:1 is gone: %v", err)
	default:
	}
	if err := members[0].Close(); err != nil {
		t.Error(err)
	}
	if err := within(t, closed); err != nil {
		t.Error(err)
	}
}

func TestCloseDoesNotWaitForever(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	t.Parallel()
	d := example(2, 2)
	d.StartMillis = 700
	j := newJob(t, d, policy.AllReduce, 0)
	members := j.connect(t)
	closed := make(chan error, 1)
	go func() { closed <- members[1].Close() }() // worker:0 never says goodbye
	if err := within(t, closed); err == nil || !strings.Contains(err.Error(), "did not say goodbye within 700ms") {
		t.Errorf("got %v", err)
	}
	if err := members[1].Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

// If another goroutine closes the client, a running step or pull returns an
// error.
func TestCloseDuringStepEndsStep(t *testing.T) {
	for _, a := range []policy.Architecture{policy.Servers, policy.Hybrid} {
		d := mixed(3, 3)
		d.Hosts, d.StartMillis = []layout.Range{{Lo: 0, Hi: 2}, {Lo: 2, Hi: 3}}, 2000
		j := newJob(t, d, a, 1)
		members := j.connect(t)
		got := make(chan error, 3)
		for _, m := range members[:2] { // worker:2 never comes
			go func() {
				_, err := m.take(context.Background(), 0, 0.1, everyLeaf)
				got <- err
			}()
		}
		for _, m := range members[:2] {
			go m.Close()
		}
		for range 2 {
			if err := within(t, got); err == nil {
				t.Errorf("%s: a step without worker:2", a)
			}
		}
	}
}

// Random bytes on the tasks' ports, before and during training, do not disturb
// it.
func TestInvalidDataDoesNotDisturbTraining(t *testing.T) {
	for _, a := range []policy.Architecture{policy.Servers, policy.AllReduce} {
		j := newJob(t, example(2, 2), a, 2)
		addrs := append(append([]string{}, j.cluster.Worker...), j.cluster.PS...)
		stop := make(chan struct{})
		var throwing sync.WaitGroup
		var thrown atomic.Int64
		for i := range 4 {
			throwing.Go(func() {
				for k := 0; ; k++ {
					select {
					case <-stop:
						return
					default:
						throwGarbage(addrs[k%len(addrs)], i+k)
						thrown.Add(1)
					}
				}
			})
		}
		members := j.connect(t)
		n := newReference(&j.d)
		for s := uint64(0); s < 30 || thrown.Load() < 100; s++ {
			_, errs := step(members, s, 0.05)
			must(t, errs)
			n.step(0, 2, s, 0.05, everyLeaf)
			n.compare(t, members[1].values, "worker:1")
		}
		close(stop)
		throwing.Wait()
		leave(t, j, members)
	}
}

// throwGarbage connects and sends bytes that are no valid authentication.
func throwGarbage(addr string, which int) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return // the server has ended
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(200 * time.Millisecond))
	noise := make([]byte, 4096)
	switch which % 4 {
	case 0:
		io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n")
	case 1:
		rand.Read(noise)
		conn.Write(noise)
	case 2: // begins like a peer
		rand.Read(noise)
		conn.Write(append([]byte("plx-peer-1\n\x0eworker:0/owner\x0aps:0/owner"), noise...))
	case 3:
		cluster.Dial(context.Background(), conn, cluster.PeerKey([]byte("guess"), 0), "worker:1/owner", "ps:0/owner")
	}
}

func TestAbortDoesNotWaitForever(t *testing.T) {
	for _, a := range []policy.Architecture{policy.Servers, policy.AllReduce} {
		j := newJob(t, example(3, 3), a, 1)
		members := j.connect(t)
		began := time.Now()
		var all sync.WaitGroup
		for _, m := range members {
			all.Go(func() { m.Abort(errors.New("no more")) })
		}
		all.Wait()
		if took := time.Since(began); took > patience.Limit/2 {
			t.Errorf("took %v", took)
		}
	}
}

// A connection that ends before the first frame does not end the training, and
// the worker may connect again.
func TestWorkerMayReconnectBeforeFirstFrame(t *testing.T) {
	j := newJob(t, example(2, 2), policy.Servers, 1)
	for range 3 {
		known := func() bool { return j.served[0].Workers()[1].Addr != "" }
		conn := proven(t, j, 1, 0)
		eventually(t, "the connection is known", known)
		conn.Close()
		eventually(t, "the connection is forgotten", func() bool { return !known() })
	}
	members := j.connect(t)
	_, errs := step(members, 0, 0.1)
	must(t, errs)
	leave(t, j, members)
}
