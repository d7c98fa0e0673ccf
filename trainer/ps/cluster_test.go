package ps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/wire"
)

// memories is one worker's values and gradients.
type memories struct {
	d                 Declaration
	values, gradients [][]byte
}

func newMemory(d Declaration) *memories {
	m := &memories{d: d}
	for _, v := range d.Variables {
		n, _ := v.Elements()
		if v.Dtype == Float32 {
			m.values = append(m.values, wire.Bytes(make([]float32, n)))
			m.gradients = append(m.gradients, wire.Bytes(make([]float32, n)))
		} else {
			m.values = append(m.values, wire.Bytes(make([]float64, n)))
			m.gradients = append(m.gradients, wire.Bytes(make([]float64, n)))
		}
	}
	return m
}

// randomize writes numbers that depend on the arguments alone.
func (m *memories) randomize(to [][]byte, a, b uint64) {
	random := rand.New(rand.NewPCG(a, b))
	for i, v := range m.d.Variables {
		if v.Dtype == Float32 {
			for j := range wire.Floats[float32](to[i]) {
				wire.Floats[float32](to[i])[j] = float32(random.NormFloat64())
			}
		} else {
			for j := range wire.Floats[float64](to[i]) {
				wire.Floats[float64](to[i])[j] = random.NormFloat64()
			}
		}
	}
}

func (m *memories) fill(seed uint64)        { m.randomize(m.values, seed, 99) }
func (m *memories) grow(rank int, s uint64) { m.randomize(m.gradients, uint64(rank)+1000, s) }

// naive is a one-goroutine twin of the servers: it adds recursively, divides
// and applies, variable by variable.
type naive struct {
	d      Declaration
	values [][]byte
	f32    map[int]*optimizer.State[float32]
	f64    map[int]*optimizer.State[float64]
	steps  uint64
}

func newNaive(d Declaration, from *memories) *naive {
	n := &naive{d: d, f32: map[int]*optimizer.State[float32]{}, f64: map[int]*optimizer.State[float64]{}}
	for i := range d.Variables {
		n.values = append(n.values, append([]byte(nil), from.values[i]...))
		n.f32[i], _ = optimizer.New[float32](d.Optimizer, len(from.values[i])/4)
		n.f64[i], _ = optimizer.New[float64](d.Optimizer, len(from.values[i])/8)
	}
	return n
}

func (n *naive) step(all []*memories, rate float64) {
	for i, v := range n.d.Variables {
		if v.Dtype == Float32 {
			n.f32[i].Apply(n.steps, rate, wire.Floats[float32](n.values[i]), naiveSum[float32](all, i, n.d.Sum))
		} else {
			n.f64[i].Apply(n.steps, rate, wire.Floats[float64](n.values[i]), naiveSum[float64](all, i, n.d.Sum))
		}
	}
	n.steps++
}

func naiveSum[T wire.Float](all []*memories, i int, sum bool) []T {
	var add func(all []*memories) []T
	add = func(all []*memories) []T {
		if len(all) == 1 {
			return append([]T(nil), wire.Floats[T](all[0].gradients[i])...)
		}
		a, b := add(all[:len(all)/2]), add(all[len(all)/2:])
		for j := range a {
			a[j] += b[j]
		}
		return a
	}
	g := add(all)
	if !sum {
		for j := range g {
			g[j] /= T(len(all))
		}
	}
	return g
}

// compare wants the same bits.
func (n *naive) compare(t *testing.T, m *memories, rank int) {
	t.Helper()
	for i, v := range n.d.Variables {
		if string(n.values[i]) != string(m.values[i]) {
			t.Fatalf("worker:%d: %s differs from the twin after %d steps", rank, v.Name, n.steps)
		}
	}
}

// testCluster is a job's servers in this process.
type testCluster struct {
	key    cluster.Key
	d      Declaration
	addrs  []string
	stop   []context.CancelFunc
	ended  []chan error
	logged sync.Map
}

func newCluster(t testing.TB, d Declaration, servers int) *testCluster {
	t.Helper()
	d.Pieces = Place(d.Variables, servers)
	c := &testCluster{key: cluster.PeerKey([]byte("secret"), 0), d: d}
	for i := range servers {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		c.addrs, c.stop, c.ended = append(c.addrs, ln.Addr().String()), append(c.stop, cancel), append(c.ended, ended)
		config := ServerConfig{
			Self: cluster.Task{Role: cluster.PS, Index: i}, Key: c.key, Workers: d.Workers, Servers: servers,
			Logf: func(_ slog.Level, format string, args ...any) { c.logged.Store(fmt.Sprintf(format, args...), true) },
		}
		go func() { ended <- Serve(ctx, ln, config); close(ended) }()
		t.Cleanup(func() {
			cancel()
			select {
			case <-ended:
			case <-time.After(20 * time.Second):
				t.Error("a server did not end")
			}
		})
	}
	return c
}

func worker(rank int) cluster.Task { return cluster.Task{Role: cluster.Worker, Index: rank} }

func (c *testCluster) config(rank int, m *memories) ClientConfig {
	return ClientConfig{Self: worker(rank), Key: c.key, Servers: c.addrs, Declaration: c.d,
		Values: m.values, Gradients: m.gradients}
}

// dial connects every worker; the chief's values are those of seed 1.
func (c *testCluster) dial(t testing.TB) ([]*Client, []*memories) {
	t.Helper()
	clients, all := make([]*Client, c.d.Workers), make([]*memories, c.d.Workers)
	errs := make([]error, c.d.Workers)
	var dialling sync.WaitGroup
	for rank := range clients {
		all[rank] = newMemory(c.d)
		all[rank].fill(uint64(rank) + 1)
		dialling.Go(func() {
			clients[rank], errs[rank] = Dial(context.Background(), c.config(rank, all[rank]))
		})
	}
	dialling.Wait()
	for rank, err := range errs {
		if err != nil {
			t.Fatalf("worker:%d: %v", rank, err)
		}
		t.Cleanup(func() { clients[rank].Abort(errors.New("the test is over")) })
	}
	return clients, all
}

// step makes every worker take step number s; its loss is rank + s.
func step(clients []*Client, all []*memories, s uint64, rate float64) []error {
	errs := make([]error, len(clients))
	var stepping sync.WaitGroup
	for rank, c := range clients {
		stepping.Go(func() {
			all[rank].grow(rank, s)
			loss, err := c.Step(context.Background(), rate, float64(rank)+float64(s))
			if want := float64(len(clients)-1)/2 + float64(s); err == nil && math.Abs(loss-want) > 1e-12 {
				err = fmt.Errorf("loss %v, want %v", loss, want)
			}
			errs[rank] = err
		})
	}
	stepping.Wait()
	return errs
}

// Any number of workers and servers gives the bits of the naive twin, and
// everybody leaves in good order.
func TestStepsAreTheTwins(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 5} {
		for _, servers := range []int{1, 2, 4} {
			t.Run(fmt.Sprintf("%dx%d", workers, servers), func(t *testing.T) {
				c := newCluster(t, example(workers), servers)
				clients, all := c.dial(t)
				n := newNaive(c.d, all[0])
				for rank, m := range all {
					n.compare(t, m, rank) // everybody has the chief's values
				}
				for s := range uint64(20) {
					for rank, err := range step(clients, all, s, 0.05) {
						if err != nil {
							t.Fatalf("worker:%d: %v", rank, err)
						}
					}
					n.step(all, 0.05)
					for rank, m := range all {
						n.compare(t, m, rank)
					}
				}
				leave(t, c, clients)
			})
		}
	}
}

// leave says all goodbyes and wants every server to end well.
func leave(t *testing.T, c *testCluster, clients []*Client) {
	t.Helper()
	var closing sync.WaitGroup
	for rank, client := range clients {
		closing.Go(func() {
			if err := client.Close(); err != nil {
				t.Errorf("worker:%d: close: %v", rank, err)
			}
		})
	}
	closing.Wait()
	for i := range c.ended {
		if err := within(t, c.ended[i]); err != nil {
			t.Errorf("ps:%d: %v", i, err)
		}
	}
}

// within returns what comes from ch, in bounded time.
func within[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case got := <-ch:
		return got
	case <-time.After(20 * time.Second):
		t.Fatal("nothing happened")
		panic("unreachable")
	}
}

func TestSumIsNotDivided(t *testing.T) {
	d := example(3)
	d.Sum = true
	c := newCluster(t, d, 2)
	clients, all := c.dial(t)
	n := newNaive(c.d, all[0])
	losses := make(chan float64, 3)
	for rank := range clients {
		all[rank].grow(rank, 0)
		go func() {
			loss, err := clients[rank].Step(context.Background(), 0.1, float64(rank+1))
			if err != nil {
				t.Error(err)
			}
			losses <- loss
		}()
	}
	for range clients {
		if loss := within(t, losses); loss != 6 {
			t.Errorf("loss %v, want 6", loss)
		}
	}
	n.step(all, 0.1)
	n.compare(t, all[2], 2)
	leave(t, c, clients)
}

func BenchmarkStep(b *testing.B) {
	d := example(2)
	d.Variables = []Variable{{"w", Float32, []int{1 << 20}}, {"v", Float32, []int{1 << 20}}}
	c := newCluster(b, d, 2)
	clients, all := c.dial(b)
	b.SetBytes(4 << 21)
	b.ReportAllocs()
	for b.Loop() {
		var stepping sync.WaitGroup
		for rank, client := range clients {
			stepping.Go(func() {
				if _, err := client.Step(context.Background(), 0.1, 1); err != nil {
					b.Error(rank, err)
				}
			})
		}
		stepping.Wait()
	}
	_ = all
}
