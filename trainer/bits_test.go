package trainer

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"testing"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/config"
)

// everything returns the trainings whose results must have the same bits for
// any number of workers. They cover Adam, clipping, dropout, batch norm and
// rows that several workers look up.
func everything() map[string]trial {
	options := []Option{GlobalBatch(24), ClipNorm(0.5), MeasureNorm()}
	return map[string]trial{
		"mlp with dropout":      {build: dropoutMLP, feed: classified(60), opt: Adam(0.02), options: options, steps: 4},
		"cnn with batch norm":   {build: smallCNN, feed: classified(2, 6, 6), opt: Adam(0.02), options: options, steps: 4},
		"embedding, duplicates": {build: words, feed: sentences, opt: Adam(0.05), options: options, steps: 4},
	}
}

// architecture is a value of --arch with a number of servers.
type architecture struct {
	arch    string
	servers int
}

var layouts = []architecture{{"ps", 1}, {"ps", 2}, {"ps", 3}, {"allreduce", 0}, {"hybrid", 2}}

// each returns the names of the trainings, sorted.
func each(all map[string]trial) (names []string) { return slices.Sorted(maps.Keys(all)) }

// The weights must have the same bits for any number of workers and any
// --arch. This test covers each model with each number of workers; a long test
// covers all combinations.
func TestSameBits(t *testing.T) {
	testSameBits(t, func(model, workers, at int) bool { return (model*2+workers)%len(layouts) == at })
}

// testSameBits compares the weights for the combinations of model, number of
// workers and architecture that the function chosen selects.
func testSameBits(t *testing.T, chosen func(model, workers, at int) bool) {
	all := everything()
	for model, name := range each(all) {
		x := all[name]
		t.Run(name, func(t *testing.T) {
			for virtual, workers := range map[int][]int{6: {1, 2, 3, 4, 5, 6}, 8: {1, 2, 4, 8}} {
				seed := Seed(uint64(virtual))
				want := x.alone(t, VirtualWorkers(virtual), seed)
				if want.norms[0] <= 0.5 {
					t.Errorf("a norm of %v is not clipped: the test shows nothing", want.norms[0])
				}
				for k, w := range workers {
					for i, at := range layouts {
						if !chosen(model, k, i) {
							continue
						}
						tj := newTestJob(t, w, at.servers, VirtualWorkers(virtual), seed, Arch(at.arch), scattered)
						done, err := x.together(tj)
						if err == nil {
							err = done.same(want)
						}
						if err != nil {
							t.Errorf("%d virtual, %d workers, %s, %d servers: %v", virtual, w, at.arch, at.servers, err)
						}
					}
				}
				if other := x.alone(t, VirtualWorkers(virtual), Seed(99)); other.digest == want.digest {
					t.Error("another seed gives the same")
				}
			}
		})
	}
}

// Another --seed must change the dropout, not only the initial values.
func TestDropoutFollowsTheSeed(t *testing.T) {
	x := everything()["mlp with dropout"]
	x.build = func(uint64) Build { return dropoutMLP(1) }
	if a, b := x.alone(t, Seed(1)), x.alone(t, Seed(2)); a.losses[0] == b.losses[0] {
		t.Errorf("first losses are both %v", a.losses[0])
	}
}

// One worker with several replicas, or with several accumulated batches, must
// give the same bits as several workers.
func TestReplicasHaveSameBitsAsWorkers(t *testing.T) {
	lanes := func(n int) Setting { return flags(func(c *config.Config) { c.ParallelReplicas = n }) }
	for name, x := range everything() {
		t.Run(name, func(t *testing.T) {
			want, err := x.together(newTestJob(t, 6, 0, Arch("allreduce"), scattered))
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				workers, servers int
				settings         []Setting
			}{
				{1, 0, []Setting{Replicas(6), lanes(1)}},
				{1, 0, []Setting{Replicas(6), lanes(2)}},
				{1, 0, []Setting{Replicas(6), lanes(6)}},
				{2, 0, []Setting{Replicas(3), Arch("allreduce"), lanes(2)}},
				{3, 2, []Setting{Replicas(2), Arch("ps"), lanes(1)}},
				{3, 1, []Setting{Accumulate(2), Arch("ps"), lanes(2)}},
				{1, 1, []Setting{Accumulate(3), Replicas(2), Arch("hybrid"), lanes(2)}},
				{2, 1, []Setting{VirtualWorkers(6), Arch("hybrid"), lanes(2)}},
			} {
				done, err := x.together(newTestJob(t, c.workers, c.servers, append(c.settings, scattered)...))
				if err == nil {
					err = done.same(want)
				}
				if err != nil {
					t.Errorf("%+v: %v", c, err)
				}
			}
		})
	}
}

// Hosts may have different numbers of workers, and so different numbers of
// gradients that they add up before sending.
func TestSameBitsOnUnevenHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	testUnevenHosts(t, func(model, hosts, at int) bool {
		apart := (model + hosts + at) % len(layouts)
		return apart == 0 || apart == 2 // so that after three models each layout was tested with each division into hosts
	})
}

func testUnevenHosts(t *testing.T, chosen func(model, hosts, at int) bool) {
	all := everything()
	for model, name := range each(all) {
		x := all[name]
		t.Run(name, func(t *testing.T) {
			want := x.alone(t, VirtualWorkers(8))
			for k, hosts := range [][]string{
				{"127.0.0.2", "127.0.0.2", "127.0.0.2", "127.0.0.3"},
				{"127.0.0.2", "127.0.0.3", "127.0.0.3", "127.0.0.3", "127.0.0.3", "127.0.0.4"},
				{"127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3", "127.0.0.3"},
				{"127.0.0.2", "127.0.0.3", "127.0.0.2"}, // not side by side
			} {
				for i, at := range layouts {
					if !chosen(model, k, i) {
						continue
					}
					tj := newTestJobOn(t, hosts, at.servers, VirtualWorkers(8), Arch(at.arch), scattered)
					done, err := x.together(tj)
					if err == nil {
						err = done.same(want)
					}
					if err != nil {
						t.Errorf("%v, %s, %d servers: %v", hosts, at.arch, at.servers, err)
					}
					aggregated := tj.jobs[0].session.Load().training.declared.Hosts
					want := len(slices.Compact(slices.Clone(hosts)))
					if want == len(hosts) || !slices.ContainsFunc(tj.jobs[0].session.Load().training.declared.Holders, func(t cluster.Task) bool { return t.Role == cluster.PS }) {
						want = 0
					}
					if len(aggregated) != want {
						t.Errorf("%v, %s: aggregated as %v", hosts, at.arch, aggregated)
					}
				}
			}
		})
	}
}

// Another number of virtual workers changes the order of additions and so the
// bits. If it did not, the other tests of bits could never fail.
func TestNumberOfVirtualWorkersChangesBits(t *testing.T) {
	x := everything()["mlp with dropout"]
	digests := map[string]int{}
	for _, virtual := range []int{2, 6, 8} {
		done, err := x.run(soloJob(io.Discard, VirtualWorkers(virtual)))
		if err != nil {
			t.Fatal(err)
		}
		digests[done.digest] = virtual
	}
	if len(digests) != 3 {
		t.Error(fmt.Errorf("digests of 2, 6 and 8 virtual workers: %v", digests))
	}
}
