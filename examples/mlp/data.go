package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"gorgonia.org/tensor"
)

// clustersPerClass is the number of separate clusters of a class. With several,
// no linear model can separate the classes.
const clustersPerClass = 10

// generator makes samples of a classification task, like scikit-learn's
// make_classification. Every cluster has its own vertex of the ±1 cube in the
// informative features (the first half). Every feature has normal noise of unit
// variance. Clusters belong to the classes in turn.
//
// A sample depends only on the seed and its number. So every worker sees the
// same data, and may make only the samples that it needs.
type generator struct {
	features int
	classes  int
	seed     uint64
	centres  [][]float32 // by cluster, the informative features only
}

// newGenerator places the clusters. It returns an error if the cube has fewer
// vertices than there are clusters.
func newGenerator(features, classes int, seed uint64) (*generator, error) {
	informative, clusters := max(1, features/2), classes*clustersPerClass
	if informative < 31 && 1<<informative < clusters {
		return nil, fmt.Errorf("%d features: %d informative ones have %d vertices, too few for %d clusters (%d per class): raise --dim-in or lower --n-classes",
			features, informative, 1<<informative, clusters, clustersPerClass)
	}
	g := &generator{features: features, classes: classes, seed: seed}
	random := stream(seed, streamCentres, 0)
	taken := make(map[string]bool, clusters)
	for len(g.centres) < clusters {
		centre := vertex(random, informative)
		key := fmt.Sprint(centre)
		if !taken[key] {
			taken[key] = true
			g.centres = append(g.centres, centre)
		}
	}
	return g, nil
}

func vertex(random *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(2*random.IntN(2) - 1)
	}
	return v
}

// sample writes the features of sample i into row and returns its class.
func (g *generator) sample(i int, row []float32) (class int) {
	random := stream(g.seed, streamNoise, uint64(i))
	for j := range row {
		row[j] = float32(random.NormFloat64())
	}
	cluster := i % len(g.centres)
	for j, c := range g.centres[cluster] {
		row[j] += c
	}
	return cluster % g.classes
}

// dataset holds samples in the form of feeds.
type dataset struct {
	features, classes int
	rows              []float32 // one sample after the other
	labels            []int
}

// samples makes samples [from, to).
func (g *generator) samples(from, to int) *dataset {
	d := &dataset{
		features: g.features, classes: g.classes,
		rows: make([]float32, (to-from)*g.features), labels: make([]int, to-from),
	}
	for i := range d.labels {
		d.labels[i] = g.sample(from+i, d.row(i))
	}
	return d
}

// all returns every sample as one batch.
func (d *dataset) all() (x, y tensor.Tensor) {
	indices := make([]int, len(d.labels))
	for i := range indices {
		indices[i] = i
	}
	return d.batch(indices)
}

func (d *dataset) row(i int) []float32 { return d.rows[i*d.features : (i+1)*d.features] }

// batch returns the samples with the given indices: features of shape
// (len(indices), features) and one-hot labels of shape (len(indices), classes).
func (d *dataset) batch(indices []int) (x, y tensor.Tensor) {
	return (&batches{from: d}).next(indices)
}

// batches makes batches one after the other, in two places in turn: a step's batch is made
// before the one of the step before it is used.
type batches struct {
	from   *dataset
	places [2]struct{ x, y *tensor.Dense }
	made   int
}

// next is like [dataset.batch]. The batch before the last one is overwritten.
func (b *batches) next(indices []int) (x, y tensor.Tensor) {
	d, p := b.from, &b.places[b.made%2]
	b.made++
	if p.x == nil || p.x.Shape()[0] != len(indices) {
		p.x = tensor.New(tensor.WithShape(len(indices), d.features), tensor.Of(tensor.Float32))
		p.y = tensor.New(tensor.WithShape(len(indices), d.classes), tensor.Of(tensor.Float32))
	}
	rows, hot := p.x.Float32s(), p.y.Float32s()
	clear(hot)
	for i, index := range indices {
		copy(rows[i*d.features:], d.row(index))
		hot[i*d.classes+d.labels[index]] = 1
	}
	return p.x, p.y
}

// order is the dataset of the indices of samples in the order of training. Epochs follow one another, each in a
// new order, without the last samples that do not fill a batch. Every worker
// computes the same order and takes its part of it.
type order struct {
	samples, batch int
	seed           uint64
	about          string // of the samples, if they come from files

	mu          sync.Mutex
	epoch       int
	permutation []int
}

// Len is more than any training reads.
func (o *order) Len() int { return math.MaxInt }

// Describe lets the trainer compare the files of all workers.
func (o *order) Describe() string { return o.about }

// At returns the index of the i-th sample that is taken.
func (o *order) At(i int) (int, error) { return o.step(i / o.batch)[i%o.batch], nil }

// step returns the samples of a step.
func (o *order) step(step int) []int {
	o.mu.Lock()
	defer o.mu.Unlock()
	perEpoch := o.samples / o.batch
	if epoch := step / perEpoch; o.permutation == nil || epoch != o.epoch {
		o.epoch = epoch
		o.permutation = stream(o.seed, streamOrder, uint64(epoch)).Perm(o.samples)
	}
	from := step % perEpoch * o.batch
	return o.permutation[from : from+o.batch]
}

// Each use of randomness has its own stream. The first weights use the
// trainer's.
const (
	streamCentres = iota
	streamNoise
	streamOrder
)

// stream returns random numbers that depend only on the three arguments.
func stream(seed, use, index uint64) *rand.Rand {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[0:], seed)
	binary.LittleEndian.PutUint64(key[8:], use)
	binary.LittleEndian.PutUint64(key[16:], index)
	return rand.New(rand.NewChaCha8(key))
}
