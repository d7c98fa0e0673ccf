package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/netcut"
	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// blames checks that err is a PeerError about task whose text contains what.
func blames(t *testing.T, err error, task cluster.Task, what string) {
	t.Helper()
	var peer *peers.PeerError
	if !errors.As(err, &peer) || peer.Task != task || !strings.Contains(err.Error(), what) {
		t.Errorf("got %v, want %s to blame, and %q", err, task, what)
	}
}

// die simulates the death of a worker's process: its sockets close without a
// report.
func die(m *member) {
	m.holders.parting.Store(true)
	for _, l := range m.holders.locals {
		l.server.End(nil) // without an error, so that the server closes its connections without a report
	}
	for _, l := range m.holders.connected() {
		l.session.Close()
	}
}

func TestAllTasksReportLostWorker(t *testing.T) {
	for _, a := range []policy.Architecture{policy.Servers, policy.AllReduce, policy.Hybrid} {
		t.Run(a.String(), func(t *testing.T) {
			j := newJob(t, mixed(3, 3), a, 2)
			members := j.connect(t)
			_, errs := step(members, 0, 0.1)
			must(t, errs)
			die(members[1])
			_, errs = step(members, 1, 0.1)
			for rank, err := range errs {
				if rank != 1 {
					blames(t, err, worker(1), "connection lost")
				}
			}
			for i, ended := range j.ended {
				if j.d.HolderIndex(server0(i)) >= 0 {
					blames(t, within(t, ended), worker(1), "connection lost")
				}
			}
		})
	}
}

func TestWorkersReportLostServer(t *testing.T) {
	d := example(2, 2)
	j := newJob(t, d, policy.Servers, 2)
	members := j.connect(t)
	go j.stop[1]()
	var errs []error
	for s := uint64(0); errs == nil || errs[0] == nil; s++ { // until it is noticed
		_, errs = step(members, s, 0.1)
	}
	for _, err := range errs { // this includes workers that learned of the loss from the other server
		blames(t, err, server0(1), j.cluster.PS[1])
	}
}

// If a worker gives up, all tasks report its reason.
func TestReasonForGivingUpReachesOtherWorkers(t *testing.T) {
	for _, a := range []policy.Architecture{policy.Servers, policy.AllReduce} {
		j := newJob(t, example(3, 3), a, 1)
		members := j.connect(t)
		aborted := make(chan bool)
		go func() { members[2].Abort(errors.New("the disk is full")); close(aborted) }()
		_, errs := step(members[:2], 0, 0.1)
		for _, err := range errs {
			blames(t, err, worker(2), "the disk is full")
		}
		within(t, aborted)
	}
}

// If the network drops all packets, both sides blame each other after the
// silence limit of the declaration.
func TestSilentServerEndsStep(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	t.Parallel()
	d := example(2, 2)
	d.SilenceMillis = 1500
	j := newJob(t, d, policy.Servers, 1)
	v := netcut.New(t, j.cluster.PS[0])
	j.cluster.PS[0] = v.Addr() // for both workers
	members := j.connect(t)
	_, errs := step(members, 0, 0.1)
	must(t, errs)
	v.Shut()
	began := time.Now()
	_, errs = step(members, 1, 0.1)
	for _, err := range errs {
		blames(t, err, server0(0), "silent")
	}
	err := within(t, j.ended[0])
	var peer *peers.PeerError
	if !errors.As(err, &peer) || peer.Task.Role != cluster.Worker || !errors.Is(err, wire.ErrPeerTimeout) {
		t.Errorf("server: %v", err)
	}
	if took := time.Since(began); took > patience.Limit/2 {
		t.Errorf("took %v", took)
	}
}

// If a worker that holds variables hangs, the workers that wait for it blame
// it.
func TestWorkersReportSilentHolder(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	t.Parallel()
	d := example(3, 3)
	d.SilenceMillis = 1500
	j := newJob(t, d, policy.AllReduce, 0)
	var all []*netcut.Proxy
	for rank, addr := range j.cluster.Worker {
		all = append(all, netcut.New(t, addr))
		j.cluster.Worker[rank] = all[rank].Addr() // the address under which the other workers reach this one
	}
	members := j.connect(t)
	_, errs := step(members, 0, 0.1)
	must(t, errs)
	for _, v := range all {
		v.Shut()
	}
	_, errs = step(members, 1, 0.1)
	for rank, err := range errs {
		var peer *peers.PeerError
		if !errors.As(err, &peer) || peer.Task == worker(rank) || !strings.Contains(err.Error(), "silent") {
			t.Errorf("worker:%d: %v", rank, err)
		}
	}
}

func TestWorkerWithWrongSecretIsRefused(t *testing.T) {
	for name, change := range map[string]func(c *Config){
		"wrong secret":     func(c *Config) { c.Peers.Key = cluster.PeerKey([]byte("other"), 0) },
		"other generation": func(c *Config) { c.Peers.Key = cluster.PeerKey([]byte("secret"), 1); c.Peers.Generation = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t, example(1, 1), policy.Servers, 1)
			c := j.config(0, firstValues(&j.d, 5))
			c.Listener = nil
			change(&c)
			_, err := Connect(context.Background(), c)
			blames(t, err, server0(0), j.cluster.PS[0])
			leave(t, j, j.connect(t)) // a worker with the right secret can still connect
		})
	}
}

func TestSecondConnectionOfAWorkerIsRefused(t *testing.T) {
	j := newJob(t, example(1, 1), policy.Servers, 1)
	members := j.connect(t)
	c := j.config(0, firstValues(&j.d, 5))
	c.Listener = nil
	_, err := Connect(context.Background(), c)
	if err == nil || !strings.Contains(err.Error(), "already connected") {
		t.Errorf("got %v", err)
	}
	_, errs := step(members, 0, 0.1)
	must(t, errs)
	leave(t, j, members)
}

// connectAll connects all workers, whose declarations change has modified, and
// returns their errors.
func connectAll(t *testing.T, j *testJob, change func(rank int, d *layout.Declaration)) []error {
	t.Helper()
	errs, clients := make([]error, len(j.d.Workers)), make([]*Client, len(j.d.Workers))
	var connecting sync.WaitGroup
	for rank := range errs {
		c := j.config(rank, firstValues(&j.d, 1))
		c.Declaration.Variables = append([]layout.Variable(nil), j.d.Variables...)
		change(rank, &c.Declaration)
		connecting.Go(func() { clients[rank], errs[rank] = Connect(context.Background(), c) })
	}
	connecting.Wait()
	for _, c := range clients {
		if c != nil {
			c.Abort(errors.New("the test is over"))
		}
	}
	return errs
}

func TestDifferentDeclarationsEndTraining(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	t.Parallel()
	for _, a := range []policy.Architecture{policy.Servers, policy.AllReduce} {
		j := newJob(t, example(3, 3), a, 2)
		errs := connectAll(t, j, func(rank int, d *layout.Declaration) {
			if rank == 2 {
				d.Variables[1].Name = "bias"
			}
		})
		for rank, err := range errs {
			what := `variable 1 is named "bias", not "b"`
			if rank == 2 && a == policy.AllReduce {
				continue // it may first receive another worker's error
			}
			blames(t, err, worker(2), what)
		}
	}
}

// Workers whose declarations place variables on different holders get the
// error before the start time ends.
func TestDifferentHoldersEndTraining(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	t.Parallel()
	j := newJob(t, example(3, 3), policy.Servers, 1)
	began := time.Now()
	errs := connectAll(t, j, func(rank int, d *layout.Declaration) {
		if rank == 2 {
			if err := d.AssignPieces(policy.AllReduce, 0, 0); err != nil {
				t.Error(err)
			}
		}
	})
	for rank, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "shard holders [") {
			t.Errorf("worker:%d: %v", rank, err)
		}
	}
	if took := time.Since(began); took > patience.Limit/2 {
		t.Errorf("took %v", took)
	}
}

func TestDifferentFingerprintIsRefusedWithExact(t *testing.T) {
	for _, exact := range []bool{true, false} {
		j := newJob(t, example(2, 2), policy.Servers, 1)
		errs := connectAll(t, j, func(rank int, d *layout.Declaration) {
			d.Exact, d.Fingerprint = exact, fmt.Sprintf("kernel %d", rank)
		})
		for _, err := range errs {
			if exact {
				blames(t, err, worker(1), `arithmetic "kernel 1", not "kernel 0"`)
			} else if err != nil {
				t.Error(err)
			}
		}
	}
}

func TestMissingWorkerIsReported(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	t.Parallel()
	for _, a := range []policy.Architecture{policy.Servers, policy.AllReduce} {
		d := example(3, 3)
		d.StartMillis = 2000
		j := newJob(t, d, a, 1)
		errs := make(chan error, 2)
		for rank := range 2 {
			go func() {
				_, err := Connect(context.Background(), j.config(rank, firstValues(&j.d, 1)))
				errs <- err
			}()
		}
		for range 2 {
			err := within(t, errs)
			if a == policy.AllReduce { // the listener is open, but no task accepts connections
				blames(t, err, worker(2), "not ready within 2s")
			} else {
				blames(t, err, worker(2), "no sign of [worker:2]")
			}
		}
	}
}

func TestUnreachableServerIsReported(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close() // no process listens on this address any more
	j := newJob(t, example(1, 1), policy.Servers, 1)
	j.cluster.PS[0] = ln.Addr().String()
	j.d.StartMillis = 300
	_, err = Connect(context.Background(), j.config(0, firstValues(&j.d, 1)))
	blames(t, err, server0(0), "not reached within 300ms")
}
