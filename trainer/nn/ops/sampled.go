package ops

import (
	"fmt"
	"math"
	"slices"

	"github.com/plx-run/plx/trainer/nn/exponential"
	"github.com/plx-run/plx/trainer/nn/matrix"
	"github.com/plx-run/plx/trainer/nn/recurrent"
	"github.com/plx-run/plx/trainer/random"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Candidates are the classes of a sampled softmax: each row's own class, and
// classes that are sampled once for all rows. The weights of all classes are a
// table, whose rows have width+1 elements: the class's weights, then its bias.
type Candidates struct {
	Label     *gorgonia.Node // vector (n) with the class number of each row, of any integer type
	LabelRows *gorgonia.Node // matrix (n, width+1) with the rows of the weight table for the classes in Label
	LabelLog  *gorgonia.Node // vector (n) with the logarithm of the expected count of each class of Label in a draw

	Sample     *gorgonia.Node // vector (s) of the sampled class numbers
	SampleRows *gorgonia.Node // matrix (s, width+1) with the rows of the weight table for the classes in Sample
	SampleLog  *gorgonia.Node // vector (s) with the logarithm of the expected count of each class of Sample in a draw
}

// SampledCrossEntropy returns the mean cross entropy, over the rows of x (n,
// width), of a softmax over a sample of the classes (Jean et al. 2015, "On
// using very large target vocabulary"). The softmax includes the row's own
// class and the sampled classes. From each logit it subtracts the logarithm of
// the class's expected count. A sampled class that equals the row's own class
// is ignored in that row. The loss has gradients with respect to x, LabelRows
// and SampleRows.
//
// The loss is smaller than the cross entropy over all classes. The second
// result, estimate, approximates that full cross entropy: it weights each
// sampled class by the inverse of its expected count. It has no gradient.
//
// A Sampler draws the classes and computes the logarithms.
func SampledCrossEntropy(x *gorgonia.Node, c Candidates) (loss, estimate *gorgonia.Node, err error) {
	s, err := newSampled(x, c)
	if err != nil {
		return nil, nil, err
	}
	trace := newOp(s.what+" of each row", s.dtype, tensor.Shape{s.rows * (3 + s.samples)},
		chooseValues(s.dtype, sampledTrace[float32], sampledTrace[float64], s)).with(nil, 7)
	mean := newOp(s.what, s.dtype, nil, choose(s.dtype, meanOf[float32], meanOf[float64], piece{0, s.rows})).with(s.gradients, 1)
	full := newOp("estimate of full cross entropy", s.dtype, nil,
		choose(s.dtype, meanOf[float32], meanOf[float64], piece{s.rows, 2 * s.rows})).with(nil, 1)
	b := &adder{}
	t := b.apply(trace, x, c.LabelRows, c.SampleRows, c.Label, c.Sample, c.LabelLog, c.SampleLog)
	loss = b.apply(mean, x, c.LabelRows, c.SampleRows, t)
	estimate = b.apply(full, t)
	return loss, estimate, b.err
}

// sampled holds the sizes of a sampled softmax, which are the parameters of
// its kernels.
type sampled struct {
	what                 string
	dtype                tensor.Dtype
	rows, width, samples int
	label, sample        func(v gorgonia.Value, i int) float64
	classes              []float64 // scratch memory for the sampled class numbers
}

// piece is the range [from, to) of elements of a vector.
type piece struct{ from, to int }

func newSampled(x *gorgonia.Node, c Candidates) (s sampled, err error) {
	s.what = "sampled cross entropy"
	if s.dtype, err = floats(s.what, x, c.LabelRows, c.SampleRows, c.LabelLog, c.SampleLog); err != nil {
		return s, err
	}
	if c.Label == nil || c.Sample == nil {
		return s, fmt.Errorf("%s: %w", s.what, errNil)
	}
	shape, drawn := x.Shape(), c.SampleRows.Shape()
	if len(shape) != 2 || len(drawn) != 2 {
		return s, fmt.Errorf("%s: x is %s, the samples' rows %s: want matrices", s.what, told(x), told(c.SampleRows))
	}
	s.rows, s.width, s.samples, s.classes = shape[0], shape[1], drawn[0], make([]float64, drawn[0])
	for _, want := range []struct {
		n     *gorgonia.Node
		shape []int
	}{
		{c.LabelRows, []int{s.rows, s.width + 1}}, {c.SampleRows, []int{s.samples, s.width + 1}},
		{c.Label, []int{s.rows}}, {c.LabelLog, []int{s.rows}}, {c.Sample, []int{s.samples}}, {c.SampleLog, []int{s.samples}},
	} {
		if !slices.Equal(want.n.Shape(), want.shape) {
			return s, fmt.Errorf("%s: x is %s, so %s must be %v", s.what, told(x), told(want.n), want.shape)
		}
	}
	if s.label, s.sample = classOf[c.Label.Dtype()], classOf[c.Sample.Dtype()]; s.label == nil || s.sample == nil {
		return s, fmt.Errorf("%s: labels are %v, samples %v: want whole numbers", s.what, c.Label.Dtype(), c.Sample.Dtype())
	}
	return s, nil
}

// rests holds the parts of the trace of a sampled softmax. The trace is the
// list of intermediate results that the gradients need.
type rests[T float] struct {
	loss, full []T // for each row, its loss and its estimated loss over all classes
	own        []T // for each row, the probability of its own class, minus 1
	others     []T // probabilities of the sampled classes, of shape (rows, samples)
}

func cutRests[T float](s sampled, x []T) rests[T] {
	return rests[T]{x[:s.rows], x[s.rows : 2*s.rows], x[2*s.rows : 3*s.rows], x[3*s.rows:]}
}

// sampledTrace computes the trace (the intermediate results that the gradients
// need) from all inputs of SampledCrossEntropy.
func sampledTrace[T float](s sampled, out gorgonia.Value, in []gorgonia.Value) error {
	t, x, own, drawn := cutRests(s, data[T](out)), data[T](in[0]), data[T](in[1]), data[T](in[2])
	labelLog, sampleLog := data[T](in[5]), data[T](in[6])
	offset := t.others[:s.samples]
	for j := range offset {
		offset[j], s.classes[j] = drawn[j*(s.width+1)+s.width]-sampleLog[j], s.sample(in[4], j)
	}
	matrix.Fill(t.others[s.samples:], offset)
	matrix.Mul(s.rows, s.samples, s.width, matrix.Whole(x, s.width), matrix.Whole(drawn, s.width+1).T(), 1, matrix.Whole(t.others, s.samples))
	for i := range s.rows {
		weights, label := row(own, i, s.width+1), s.label(in[3], i)
		logit := float64(weights[s.width])
		for k, v := range row(x, i, s.width) {
			logit += float64(float64(v) * float64(weights[k]))
		}
		others := row(t.others, i, s.samples)
		for j, class := range s.classes {
			if class == label {
				others[j] = T(math.Inf(-1))
			}
		}
		t.row(i, logit, float64(labelLog[i]), others)
	}
	return nil
}

// row computes the loss of row i. The slice others holds the logits of the
// sampled classes, which row replaces by their probabilities. logit is the
// logit of the row's own class. log is the logarithm of that class's expected
// count.
func (t rests[T]) row(i int, logit, log float64, others []T) {
	own := logit - log
	most := T(own)
	for _, v := range others {
		if v > most {
			most = v
		}
	}
	largest, sum := float64(most), exponential.Shifted(others, most)
	total := sum + math.Exp(own-largest)
	t.loss[i] = T(math.Log(total) + (largest - own))
	t.full[i] = T(math.Log(sum+math.Exp(logit-largest)) + (largest - logit))
	t.own[i] = T(-sum / total)
	part := T(1 / total)
	for j := range others {
		others[j] *= part
	}
}

// meanOf computes the mean of a range of elements of the last input.
func meanOf[T float](p piece, out []T, in [][]T) {
	sum := 0.0
	for _, v := range in[len(in)-1][p.from:p.to] {
		sum += float64(v)
	}
	out[0] = T(sum / float64(p.to-p.from))
}

// gradients adds the gradients of x, LabelRows and SampleRows to the graph.
func (s sampled) gradients(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	x, own, drawn, t := in[0], in[1], in[2], in[3]
	b := &adder{what: s.what, dtype: s.dtype}
	return gorgonia.Nodes{
		b.add("x", choose(s.dtype, sampledX[float32], sampledX[float64], s), x.Shape(), own, drawn, t, dy),
		b.add("labels' rows", choose(s.dtype, sampledOwn[float32], sampledOwn[float64], s), own.Shape(), x, t, dy),
		b.add("samples' rows", pass(s.dtype, sampledOthers[float32], sampledOthers[float64], s), drawn.Shape(), x, t, dy),
		nil,
	}, b.err
}

func sampledX[T float](s sampled, dx []T, in [][]T) {
	own, drawn, t := in[0], in[1], cutRests(s, in[2])
	scale := T(float64(in[3][0]) / float64(s.rows))
	matrix.Mul(s.rows, s.width, s.samples, matrix.Whole(t.others, s.samples), matrix.Whole(drawn, s.width+1), 0, matrix.Whole(dx, s.width))
	for i, part := range t.own {
		to, weights := dx[i*s.width:][:s.width], own[i*(s.width+1):]
		for k, v := range to {
			to[k] = scale * (v + T(part*weights[k]))
		}
	}
}

func sampledOwn[T float](s sampled, out []T, in [][]T) {
	x, t := in[0], cutRests(s, in[1])
	scale := T(float64(in[2][0]) / float64(s.rows))
	for i, part := range t.own {
		to := row(out, i, s.width+1)
		for k, v := range x[i*s.width:][:s.width] {
			to[k] = scale * part * v
		}
		to[s.width] = scale * part
	}
}

func sampledOthers[T float](s sampled) recurrent.Pass[T] {
	bias, scratch := make([]T, s.samples), make([]float64, s.samples)
	return func(to []T, in [][]T) {
		x, t := in[0], cutRests(s, in[1])
		scale := T(float64(in[2][0]) / float64(s.rows))
		matrix.Mul(s.samples, s.width, s.rows, matrix.Whole(t.others, s.samples).T(), matrix.Whole(x, s.width), 0, matrix.Whole(to, s.width+1))
		matrix.SumRows(bias, t.others, scratch)
		for j, v := range bias {
			to[j*(s.width+1)+s.width] = v
		}
		for i, v := range to {
			to[i] = scale * v
		}
	}
}

// Sampler draws classes for a sampled softmax. Classes are numbered by
// decreasing frequency. A Sampler draws class k with probability
// log((k+2)/(k+1)) / log(classes+1), which is close to Zipf's law, until it
// has enough different classes. The draw depends only on the arguments. A
// Sampler holds scratch memory, so only one goroutine may use it at a time.
type Sampler struct {
	classes, samples int
	seen             []uint64 // a bit for each class, set if the current draw contains it; all zero between draws
}

// NewSampler returns a sampler that draws `samples` different classes out of
// `classes`. It returns an error if samples is more than half of classes,
// which would take too many tries.
func NewSampler(classes, samples int) (*Sampler, error) {
	if samples < 1 || samples > classes/2 {
		return nil, fmt.Errorf("sampler: %d samples of %d classes: want at least 1 and at most half", samples, classes)
	}
	return &Sampler{classes: classes, samples: samples, seen: make([]uint64, (classes+63)/64)}, nil
}

// Draw draws samples for consecutive virtual workers (equal parts of a batch).
// first is the number of the first one, and workers is how many there are.
// Each virtual worker has its own random stream, so its samples do not depend
// on the process that draws them. labels holds the labels of all these virtual
// workers in order, the same number for each. Draw returns the samples of each
// virtual worker, and the logarithms of the expected counts of samples and
// labels:
//
//	samples, logs, labelLogs := s.Draw(random.New(seed, "samples").Derive(step), job.ShardID(), job.NumReplicasPerWorker(), labels)
func (s *Sampler) Draw(stream random.Stream, first, workers int, labels []int64) (samples []int64, logs, labelLogs []float32) {
	each := len(labels) / workers
	for w := range workers {
		drawn, tries := s.draw(stream.Derive(uint64(first + w)))
		samples, logs = append(samples, drawn...), s.logs(logs, drawn, tries)
		labelLogs = s.logs(labelLogs, labels[w*each:(w+1)*each], tries)
	}
	return samples, logs, labelLogs
}

// draw draws classes until it has the required number of different ones. It
// returns these classes and the number of tries.
func (s *Sampler) draw(stream random.Stream) (drawn []int64, tries int) {
	for ; len(drawn) < s.samples; tries++ {
		u, v := stream.Pair(uint64(tries / 2))
		if tries%2 == 1 {
			u = v
		}
		k := random.Zipf(u, s.classes)
		if bit := uint64(1) << (k % 64); s.seen[k/64]&bit == 0 {
			s.seen[k/64] |= bit
			drawn = append(drawn, int64(k))
		}
	}
	for _, k := range drawn {
		s.seen[k/64] = 0
	}
	return drawn, tries
}

// logs appends to a slice (to) the logarithm of each class's expected count.
// The expected count is the probability that a draw with the given number of
// tries contains the class.
func (s *Sampler) logs(to []float32, classes []int64, tries int) []float32 {
	for _, k := range classes {
		p := random.ZipfChance(int(k), s.classes)
		to = append(to, float32(math.Log(-math.Expm1(float64(tries)*math.Log1p(-p)))))
	}
	return to
}
