package client

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
)

// onHosts returns a job with local aggregation whose workers have taken one
// step.
func onHosts(t *testing.T, workers int, hosts []layout.Range) (*testJob, []*member) {
	t.Helper()
	d := wide(workers, workers)
	d.Hosts = hosts
	j := newJob(t, d, policy.Servers, 2)
	members := j.connect(t)
	_, errs := step(members, 0, 0.1)
	must(t, errs)
	return j, members
}

// awaited sends a prefetch request and awaits its rows on another goroutine.
func awaited(m *member, wanted []message.RowRequest) <-chan error {
	done := make(chan error, 1)
	go func() { done <- errors.Join(m.Rows.Prefetch(wanted), m.Rows.Await(context.Background())) }()
	return done
}

// A host requests each row once, even if several of its workers need it, and
// every worker receives its rows.
func TestHostRequestsEachRowOnce(t *testing.T) {
	j, members := onHosts(t, 4, []layout.Range{{Lo: 0, Hi: 3}, {Lo: 3, Hi: 4}})
	table := make([]byte, 700*12)
	if err := members[3].Rows.Whole(context.Background(), 5, table); err != nil {
		t.Fatal(err)
	}
	wants := [][]message.RowRequest{rowsFrom(0, 60), rowsFrom(40, 100), nil, rowsFrom(90, 110)}
	var done []<-chan error
	for i, m := range members {
		done = append(done, awaited(m, wants[i]))
	}
	for i, m := range members {
		if err := within(t, done[i]); err != nil {
			t.Fatalf("worker:%d: %v", i, err)
		}
		for _, w := range wants[i] {
			lo := w.Index[0] * 12
			if string(w.Into) != string(table[lo:int(lo)+len(w.Into)]) {
				t.Errorf("worker:%d got other rows", i)
			}
		}
		if got, want := m.pulledRows(5), []uint64{100, 60, 0, 720}[i]; got != want {
			t.Errorf("%d rows came to worker:%d, want %d", got, i, want)
		}
	}
	leave(t, j, members)
}

// A worker that begins a step without a prefetch request, or without data,
// does not delay the requests of its host.
func TestHostDoesNotWaitForWorkerWithoutRequest(t *testing.T) {
	j, members := onHosts(t, 3, []layout.Range{{Lo: 0, Hi: 3}})
	first, second := awaited(members[0], rowsFrom(0, 5)), awaited(members[1], rowsFrom(3, 9))
	third := make(chan error, 1)
	go func() {
		_, err := members[2].take(context.Background(), 1, 0.1, func(int) bool { return false })
		third <- err
	}()
	must(t, []error{within(t, first), within(t, second)})
	_, errs := step(members[:2], 1, 0.1)
	must(t, append(errs, within(t, third)))
	leave(t, j, members)
}

func TestCanceledContextEndsAwait(t *testing.T) {
	_, members := onHosts(t, 2, []layout.Range{{Lo: 0, Hi: 2}})
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	done := make(chan error, 1)
	go func() { done <- errors.Join(members[1].Rows.Prefetch(rowsFrom(0, 5)), members[1].Rows.Await(ctx)) }()
	cancel(why) // the other worker of the host sends no request, so the rows cannot arrive
	if err := within(t, done); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

// A worker that waits for rows gets an error that names the lost task, a
// worker of its host or a server.
func TestLossDuringAwaitIsReported(t *testing.T) {
	for _, dead := range []int{0, 1} { // the first worker of the host, and another one
		_, members := onHosts(t, 4, []layout.Range{{Lo: 0, Hi: 3}, {Lo: 3, Hi: 4}})
		done := awaited(members[2], rowsFrom(0, 9))
		die(members[dead])
		blames(t, within(t, done), worker(dead), "connection lost")
	}
	j, members := onHosts(t, 2, []layout.Range{{Lo: 0, Hi: 2}})
	done := awaited(members[1], rowsFrom(0, 9))
	j.stop[1]()
	blames(t, within(t, done), server0(1), j.cluster.PS[1])
}

// If workers of a host take different numbers of steps, they get an error.
// Before that, their pending prefetch requests are still answered.
func TestWorkersOfHostLeaveOneByOne(t *testing.T) {
	for _, gone := range []int{0, 1, 2} {
		for _, late := range []bool{false, true} {
			_, members := onHosts(t, 3, []layout.Range{{Lo: 0, Hi: 3}})
			stays := []int{1, 2, 0}[gone]
			third := 3 - gone - stays
			var done <-chan error
			if !late {
				done = awaited(members[stays], rowsFrom(0, 9))
			}
			closing := make(chan error, 1)
			go func() { closing <- members[gone].Close() }()
			if late {
				eventually(t, "it said goodbye", func() bool { return members[0].holders.locals[0].server.Workers()[gone].Gone })
				done = awaited(members[stays], rowsFrom(0, 9))
			}
			other := awaited(members[third], rowsFrom(3, 12))
			must(t, []error{within(t, done), within(t, other)})
			_, err := members[stays].take(context.Background(), 1, 0.1, everyLeaf)
			if err == nil || !strings.Contains(err.Error(), "stopped after 1 steps") {
				t.Errorf("worker:%d left first: got %v", gone, err)
			}
			members[third].Abort(errors.New("the test is over"))
			within(t, closing) // whatever it says
		}
	}
}

// Training can end although a worker has not awaited its prefetched rows.
func TestGoodbyeWithPendingPrefetch(t *testing.T) {
	for _, hosts := range [][]layout.Range{nil, {{Lo: 0, Hi: 3}}, {{Lo: 0, Hi: 2}, {Lo: 2, Hi: 3}}} {
		for range 5 {
			j, members := onHosts(t, 3, hosts)
			for i, m := range members {
				if err := m.Rows.Prefetch(rowsFrom(0, int64(100*i+1))); err != nil {
					t.Fatal(err)
				}
			}
			leave(t, j, members)
		}
	}
}
