package client

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
)

// Repartition refuses invalid pieces before it sends anything, and training
// can continue.
func TestRepartitionRefusesInvalidPieces(t *testing.T) {
	for want, change := range map[string]func(d *layout.Declaration, pieces []layout.Piece) []layout.Piece{
		"only sparse variables": func(d *layout.Declaration, pieces []layout.Piece) []layout.Piece {
			for i, p := range pieces {
				if d.Variables[p.Variable].Sparse == nil {
					pieces[i].Holder = 1 - p.Holder
				}
			}
			return pieces
		},
		"bad piece":           func(d *layout.Declaration, pieces []layout.Piece) []layout.Piece { pieces[0].Holder = 9; return pieces },
		"have a shard holder": func(d *layout.Declaration, pieces []layout.Piece) []layout.Piece { return pieces[1:] },
		"undeclared variable": func(d *layout.Declaration, pieces []layout.Piece) []layout.Piece {
			return append(pieces, layout.Piece{Variable: 77, Count: 1})
		},
	} {
		j := newJob(t, movableTables(2, 2, optimizer.SGD), policy.Servers, 2)
		members := j.connect(t)
		pieces := change(&j.d, onHolder(&j.d, 1))
		for _, err := range append(repartition(members, pieces), members[0].Placement.Room(context.Background(), pieces)) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
		_, errs := step(members, 0, 0.1)
		must(t, errs)
		leave(t, j, members)
	}
}

func TestRepartitionNeedsMovable(t *testing.T) {
	d := mixed(1, 1)
	j := newJob(t, d, policy.Servers, 1)
	members := j.connect(t)
	err := members[0].Placement.Repartition(context.Background(), j.d.Pieces)
	if err == nil || !strings.Contains(err.Error(), "not declared movable") {
		t.Error(err)
	}
	if err := members[0].Begin(0.1); err != nil {
		t.Fatal(err)
	}
	if err := members[0].Placement.Repartition(context.Background(), j.d.Pieces); err == nil || !strings.Contains(err.Error(), "not in step 0") {
		t.Error(err)
	}
}

// With local aggregation, the workers of a host add the gradients of variables
// on servers. So a table can move only between servers or only between
// workers.
func TestRepartitionBetweenServersAndWorkersIsRefusedWithLocalAggregation(t *testing.T) {
	d := movableTables(2, 2, optimizer.SGD)
	d.Hosts = []layout.Range{{Lo: 0, Hi: 2}}
	j := newJob(t, d, policy.Hybrid, 1)
	members := j.connect(t)
	for _, err := range repartition(members, onHolder(&j.d, 1)) {
		if err == nil || !strings.Contains(err.Error(), "only between servers or only between workers") {
			t.Error(err)
		}
	}
	leave(t, j, members)
}

// blameAll checks that all errors blame a worker and contain what.
func blameAll(t *testing.T, errs []error, what string) {
	t.Helper()
	for rank, err := range errs {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("worker:%d: got %v, want %q", rank, err, what)
		}
	}
}

func TestWorkersMustRequestTheSameMove(t *testing.T) {
	for _, a := range []policy.Architecture{policy.Servers, policy.AllReduce} {
		j := newJob(t, movableTables(3, 3, optimizer.SGD), a, 2)
		members := j.connect(t)
		errs := make([]error, 3)
		var moving sync.WaitGroup
		for i, m := range members {
			moving.Go(func() { errs[i] = m.Placement.Repartition(context.Background(), onHolder(&j.d, min(i, 1))) })
		}
		moving.Wait()
		blameAll(t, errs, "wants other shard holders before step 0 than worker:")
	}
}

// If a worker takes a step instead of requesting the move like the others,
// training ends. That also holds for a worker whose host aggregates.
func TestWorkerThatSkipsMoveIsReported(t *testing.T) {
	for name, hosts := range map[string][]layout.Range{"alone": nil, "hosts": {{Lo: 0, Hi: 3}}} {
		for astray := range 3 {
			for range 4 {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					d := movableTables(3, 3, optimizer.SGD)
					d.Hosts = hosts
					j := newJob(t, d, policy.Servers, 2)
					members := j.connect(t)
					_, errs := step(members, 0, 0.1)
					must(t, errs)
					var going sync.WaitGroup
					for i, m := range members {
						going.Go(func() {
							if i == astray {
								_, errs[i] = m.take(context.Background(), 1, 0.1, everyLeaf)
							} else {
								errs[i] = m.Placement.Repartition(context.Background(), onHolder(&j.d, 1))
							}
						})
					}
					going.Wait()
					blameAll(t, errs, "wants variables to move before step 1")
				})
			}
		}
	}
}

// If a worker leaves instead of requesting the move, training ends.
func TestWorkerThatLeavesInsteadOfMovingIsReported(t *testing.T) {
	j := newJob(t, movableTables(2, 2, optimizer.SGD), policy.Servers, 2)
	members := j.connect(t)
	left := make(chan error, 1)
	go func() { left <- members[1].Close() }()
	err := members[0].Placement.Repartition(context.Background(), onHolder(&j.d, 1))
	blameAll(t, []error{err}, "wants variables to move before step 0")
	within(t, left)
}

func TestCanceledContextEndsRepartition(t *testing.T) {
	j := newJob(t, movableTables(2, 2, optimizer.SGD), policy.Servers, 2)
	members := j.connect(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("enough"))
	err := members[0].Placement.Repartition(ctx, onHolder(&j.d, 1))
	blameAll(t, []error{err}, "enough")
	_, err = members[1].take(context.Background(), 0, 0.1, everyLeaf)
	blames(t, err, worker(0), "enough")
}
