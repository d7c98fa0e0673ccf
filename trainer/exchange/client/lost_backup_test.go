package client

import (
	"fmt"
	"testing"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// accepted0 waits until the first shard holder has accepted a worker's
// gradients for step 0.
func accepted0(t *testing.T, j *testJob, rank int) {
	t.Helper()
	selects := serverOf(t, j, 0).Shards().Selection()
	eventually(t, fmt.Sprintf("worker:%d was accepted", rank), func() bool { return selects.Counted(rank) > 0 })
}

// brings sends a server the first gradients of step 0, for a worker with one
// virtual worker whose gradients were accepted. It returns after the server
// has received them, because a server drops frames that arrive after it
// learned that the worker is lost.
func (m *member) brings(t *testing.T, j *testJob, server, gradients int) {
	t.Helper()
	all := []wire.Frame{{Header: wire.Header{Kind: wire.Step}, Payload: message.EncodeBeginning(nil, aggregate.Beginning{Rate: 1, Present: []int{1}})}}
	for _, p := range m.holders.d.PiecesOf(server)[:gradients] {
		v := m.holders.d.Variable(p.Variable)
		f := frame(wire.Push, uint32(p.Variable), uint32(m.rank), 0, p.Count*v.Dtype.Size())
		f.Offset = uint64(p.Offset)
		fill(v.Dtype, f.Payload, 1)
		all = append(all, f)
	}
	session := m.holders.links[server].session
	if err := session.Send(all...); err != nil {
		t.Fatal(err)
	}
	sent, _ := session.Traffic()
	eventually(t, fmt.Sprintf("ps:%d has what worker:%d sent", server, m.rank), func() bool {
		return serverOf(t, j, server).Workers()[m.rank].Received >= sent
	})
}

// If a worker is lost after its gradients were accepted, the step uses those
// gradients that have arrived. Other workers do not wait for the rest, and no
// other worker is accepted instead.
func TestTrainingContinuesAfterLossOfAcceptedWorker(t *testing.T) {
	const (
		nothing = -1 // not even the Step frame is sent
		all     = -2
	)
	for name, came := range map[string][]int{ // by server: gradients
		"with nothing":     {nothing, nothing, nothing},
		"with one server":  {nothing, nothing, all},
		"with the first":   {all, nothing, nothing},
		"with beginnings":  {0, 0, 0},
		"with some of all": {1, 1, 1},
		"with everything":  {all, all, all},
	} {
		for _, sum := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " ", sum), func(t *testing.T) {
				d := in("backup:1", example(3, 3))
				d.Optimizer, d.Sum = optimizer.Settings{Rule: optimizer.SGD}, sum
				j := newJob(t, d, policy.Servers, 3)
				j.zeros = true
				members := j.connect(t)
				lost := members[1]
				if err := lost.holders.links[0].session.Send(frame(wire.Commit, 0, 0, 0, 0)); err != nil {
					t.Fatal(err)
				}
				accepted0(t, j, 1)
				with := map[layout.Place]bool{}
				for server, n := range came {
					if n == all {
						n = len(j.d.PiecesOf(server))
					}
					if n != nothing {
						lost.brings(t, j, server, n)
						for _, p := range j.d.PiecesOf(server)[:n] {
							with[layout.Place{Variable: p.Variable, Offset: p.Offset}] = true
						}
					}
				}
				die(lost)
				end, err := members[0].count()
				if err != nil || end.Late || end.Over || !sum && end.Loss != 1 {
					t.Fatalf("%+v, %v", end, err)
				}
				if end, err := members[2].count(); err != nil || !end.Late || members[2].Step() != 1 {
					t.Fatalf("worker:2 takes the place of the lost one: %+v, %v", end, err)
				}
				done := make(chan error, 2)
				for _, m := range []*member{members[0], members[2]} {
					go func() {
						_, err := m.count()
						done <- err
					}()
				}
				must(t, []error{within(t, done), within(t, done)})
				members[0].saveCut(t, Passing)
				for _, x := range j.saved(t, j.d.Pieces, 2) {
					for _, k := range x.Pieces {
						want := 2.0 // steps
						if sum {
							want = 3
							if with[layout.Place{Variable: k.Variable, Offset: k.Offset}] {
								want = 4
							}
						}
						if down := downBy(t, &j.d, k); down != want || k.Updates != 2 {
							t.Errorf("variable %d from %d went down by %v in %d updates, want %v in 2", k.Variable, k.Offset, down, k.Updates, want)
						}
					}
				}
				leave(t, j, []*member{members[0], members[2]})
			})
		}
	}
}

// One worker has left and one is lost, so too few remain. A step for which
// enough gradients were accepted is still completed, any other step is not.
func TestBackupModeEndsWhenLossLeavesTooFewWorkers(t *testing.T) {
	for _, closed := range []bool{true, false} {
		t.Run(fmt.Sprint("closed ", closed), func(t *testing.T) {
			j := newJob(t, in("backup:1", example(3, 3)), policy.Servers, 3)
			members := j.connect(t)
			if closed {
				if err := members[1].holders.links[0].session.Send(frame(wire.Commit, 0, 0, 0, 0)); err != nil {
					t.Fatal(err)
				}
				accepted0(t, j, 1)
			}
			ends := make(chan Outcome, 1)
			go func() {
				end, err := members[0].count()
				if err != nil {
					t.Error(err)
				}
				ends <- end
			}()
			accepted0(t, j, 0)
			if err := members[2].Close(); err != nil {
				t.Error(err)
			}
			die(members[1])
			if end := within(t, ends); end.Over == closed || end.Late || closed && end.VirtualWorkers != 1 {
				t.Errorf("%+v", end)
			}
			if closed {
				if end, err := members[0].count(); err != nil || !end.Over {
					t.Errorf("after it: %+v, %v", end, err)
				}
			}
			leave(t, j, members[:1])
		})
	}
}

// If more workers are lost than may be late, training fails, because it cannot
// be completed.
func TestTooManyLossesEndTraining(t *testing.T) {
	j := newJob(t, in("backup:1", example(3, 3)), policy.Servers, 3)
	members := j.connect(t)
	die(members[2])
	for _, s := range j.served {
		eventually(t, "worker:2 is lost", func() bool {
			return s.Workers()[2].Lost
		})
	}
	failed := make(chan error, 1)
	go func() {
		_, err := members[0].count()
		failed <- err
	}()
	accepted0(t, j, 0)
	die(members[1])
	const what = "2 of 3 workers are lost, backup:1 tolerates 1"
	blames(t, within(t, failed), worker(1), what)
	for i := range j.ended {
		blames(t, within(t, j.ended[i]), worker(1), what)
	}
}
