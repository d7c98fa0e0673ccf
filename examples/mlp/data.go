package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"gorgonia.org/tensor"
)

// clustersPerClass is the number of separate clusters of each class. With
// several clusters, no linear model can separate the classes.
const clustersPerClass = 10

// generator generates samples of a classification task, as make_classification
// of scikit-learn does. The first half of the features is informative: in
// these features, each cluster has its centre at its own vertex of the ±1
// cube. All features have normal noise of unit variance. Cluster i belongs to
// class i modulo the number of classes.
//
// A sample depends only on the seed and its number. Therefore all workers see
// the same data, and each may generate only the samples that it needs.
type generator struct {
	features int
	classes  int
	seed     uint64
	centres  [][]float32 // centre of each cluster, in the informative features only
}

// newGenerator chooses the centres of the clusters. It returns an error if the
// cube has fewer vertices than there are clusters.
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

// sample writes the features of sample i to row and returns the sample's
// class.
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

// dataset holds samples in memory, from which it makes batches.
type dataset struct {
	features, classes int
	rows              []float32 // features of all samples, one sample after another
	labels            []int
}

// samples generates the samples with indices in [from, to).
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

// all returns all samples as a single batch.
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

// batches makes batches in two alternating buffers, because the next batch is
// made while a step still uses the current batch.
type batches struct {
	from   *dataset
	places [2]struct{ x, y *tensor.Dense }
	made   int
}

// next returns the same as [dataset.batch]. It overwrites the buffers of the
// batch before the last one.
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

// order is an endless dataset of sample indices in training order. Each epoch
// has a new random order. It leaves out the last samples if they do not fill a
// batch. Every worker computes the same order and takes its own share of each
// batch.
type order struct {
	samples, batch int
	seed           uint64
	about          string // description of the input files; empty for generated samples

	mu          sync.Mutex
	epoch       int
	permutation []int
}

// Len returns a number larger than any training reads, because the dataset is
// endless.
func (o *order) Len() int { return math.MaxInt }

// Describe returns a description of the input files, by which the trainer
// checks that all workers read the same files.
func (o *order) Describe() string { return o.about }

// At returns the index of the i-th sample in training order.
func (o *order) At(i int) (int, error) { return o.step(i / o.batch)[i%o.batch], nil }

// step returns the indices of the samples of a step, for all workers together.
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

// Each use of random numbers has its own stream. (The initial weights use the
// trainer's streams instead.)
const (
	streamCentres = iota
	streamNoise
	streamOrder
)

// stream returns a random number generator that depends only on the three
// arguments.
func stream(seed, use, index uint64) *rand.Rand {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[0:], seed)
	binary.LittleEndian.PutUint64(key[8:], use)
	binary.LittleEndian.PutUint64(key[16:], index)
	return rand.New(rand.NewChaCha8(key))
}
