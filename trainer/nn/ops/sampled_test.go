package ops

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/random"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// sampling returns a model of the loss, or of the estimate. Its inputs are x,
// the rows and logarithms of labels and samples, and the class numbers of
// both.
func sampling(estimate bool) model {
	return func(in []*gorgonia.Node) (*gorgonia.Node, error) {
		loss, full, err := SampledCrossEntropy(in[0], Candidates{LabelRows: in[1], SampleRows: in[2],
			LabelLog: in[3], SampleLog: in[4], Label: in[5], Sample: in[6]})
		if estimate {
			return full, err
		}
		return loss, err
	}
}

// sampledTwin is the formula.
func sampledTwin(rows, width, samples int, v [][]float64) (loss, full float64) {
	logit := func(i int, weights []float64) float64 {
		sum := weights[width]
		for k := range width {
			sum += v[0][i*width+k] * weights[k]
		}
		return sum
	}
	for i := range rows {
		own := logit(i, v[1][i*(width+1):])
		others := 0.0
		for j := range samples {
			if v[6][j] != v[5][i] {
				others += math.Exp(logit(i, v[2][j*(width+1):]) - v[4][j])
			}
		}
		loss += math.Log(math.Exp(own-v[3][i])+others) - (own - v[3][i])
		full += math.Log(math.Exp(own)+others) - own
	}
	return loss / float64(rows), full / float64(rows)
}

func TestSampledCrossEntropy(t *testing.T) {
	for _, s := range [][3]int{{1, 1, 1}, {4, 3, 5}, {6, 2, 3}} {
		rows, width, samples := s[0], s[1], s[2]
		shapes := [][]int{{rows, width}, {rows, width + 1}, {samples, width + 1}, {rows}, {samples}, {rows}, {samples}}
		values := numbers(17, shapes...)
		for i := range values[5] {
			values[5][i] = float64(i % 3)
		}
		for j := range values[6] {
			values[6][j] = float64(j + 1) // some samples equal a row's own class
		}
		loss, full := sampledTwin(rows, width, samples, values)
		near(t, "loss", checkGradient(t, shapes, values, 3, training, sampling(false)), []float64{loss}, 1e-12)
		f := feed(t, shapes, values, sampling(true))
		f.run(t, training)
		near(t, "estimate", f.get(f.out), []float64{full}, 1e-12)
	}
}

// If the samples include every other class and the correction is zero, loss
// and estimate must equal the cross entropy over all classes. This includes
// large logits, and rows with no other class.
func TestSampledCrossEntropyOfAllClassesIsExact(t *testing.T) {
	for _, spread := range []float64{1, 500} {
		v := numbers(18, []int{1, 2}, []int{1, 3}, []int{3, 3}, []int{1}, []int{3}, []int{1}, []int{3})
		clear(v[3])
		clear(v[4])
		copy(v[1], v[2][3:6])
		v[5][0] = 1
		copy(v[6], []float64{0, 1, 2})
		v[0][0] *= spread
		logits := make([]float64, 3)
		for k := range logits {
			logits[k] = v[2][3*k+2] + v[0][0]*v[2][3*k] + v[0][1]*v[2][3*k+1]
		}
		most, sum := slices.Max(logits), 0.0
		for _, l := range logits {
			sum += math.Exp(l - most)
		}
		for _, estimate := range []bool{false, true} {
			f := feed(t, [][]int{{1, 2}, {1, 3}, {3, 3}, {1}, {3}, {1}, {3}}, v, sampling(estimate))
			f.run(t, training)
			near(t, "loss", f.get(f.out), []float64{math.Log(sum) + most - logits[1]}, 1e-12)
		}
	}
}

func TestSampledCrossEntropyErrors(t *testing.T) {
	g := gorgonia.NewGraph()
	node := func(name string, dtype tensor.Dtype, s ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, dtype, len(s), gorgonia.WithShape(s...), gorgonia.WithName(name))
	}
	x, own, drawn := node("x", tensor.Float32, 4, 2), node("own", tensor.Float32, 4, 3), node("drawn", tensor.Float32, 5, 3)
	four, five := node("four", tensor.Float32, 4), node("five", tensor.Float32, 5)
	right := Candidates{Label: node("label", tensor.Int64, 4), LabelRows: own, LabelLog: four, Sample: node("sample", tensor.Int64, 5), SampleRows: drawn, SampleLog: five}
	_, _, err := SampledCrossEntropy(x, right)
	must(t, err)
	for want, change := range map[string]func(c *Candidates){
		`"five" (5) must be [4]`:       func(c *Candidates) { c.LabelLog = five },
		`"drawn" (5, 3) must be [4 3]`: func(c *Candidates) { c.LabelRows = drawn },
		"nil":                          func(c *Candidates) { c.Sample = nil },
		"bool":                         func(c *Candidates) { c.Label = node("bool", tensor.Bool, 4) },
		"want matrices":                func(c *Candidates) { c.SampleRows = five },
	} {
		c := right
		change(&c)
		if _, _, err := SampledCrossEntropy(x, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A draw must contain distinct classes, each as often as its logarithm
// predicts.
func TestSampler(t *testing.T) {
	const classes, each, draws = 50, 12, 4000
	s, err := NewSampler(classes, each)
	must(t, err)
	counts, expected := make([]float64, classes), make([]float64, classes)
	all := make([]int64, classes)
	for i := range all {
		all[i] = int64(i)
	}
	for i := range uint64(draws) {
		samples, logs, allLogs := s.Draw(random.New(3, "samples").Derive(i), 0, 1, all)
		for k, l := range allLogs {
			expected[k] += math.Exp(float64(l))
		}
		for j, k := range samples {
			if counts[k]++; len(samples) != each || slices.Contains(samples[:j], k) || logs[j] != allLogs[k] {
				t.Fatalf("draw %d: %v with %v", i, samples, logs)
			}
		}
	}
	for k, n := range counts {
		if math.Abs(n-expected[k]) > 0.1*n+30 {
			t.Errorf("class %d is in %v draws, expected %v", k, n, expected[k])
		}
	}
}

// The samples and logarithms of a virtual worker must not depend on the other
// virtual workers in the same call.
func TestSamplerDrawsTheSameInEveryProcess(t *testing.T) {
	stream, labels := random.New(3, "samples").Derive(9), []int64{1, 2, 3, 40, 41, 42}
	all, _ := NewSampler(100, 7)
	samples, logs, labelLogs := all.Draw(stream, 4, 3, labels)
	for w := range 3 {
		one, _ := NewSampler(100, 7)
		a, b, c := one.Draw(stream, 4+w, 1, labels[2*w:2*w+2])
		if !slices.Equal(a, samples[7*w:7*w+7]) || !slices.Equal(b, logs[7*w:7*w+7]) || !slices.Equal(c, labelLogs[2*w:2*w+2]) {
			t.Errorf("virtual worker %d draws %v, among others %v", 4+w, a, samples[7*w:7*w+7])
		}
	}
	if slices.Equal(samples[:7], samples[7:14]) {
		t.Error("two virtual workers draw the same")
	}
}

func TestSamplerRejectsMoreThanHalfOfTheClasses(t *testing.T) {
	s, err := NewSampler(9, 4)
	must(t, err)
	if samples, _, _ := s.Draw(random.New(0, "x"), 0, 2, nil); len(samples) != 8 {
		t.Errorf("two virtual workers draw %v, want 4 each", samples)
	}
	for _, c := range [][2]int{{9, 5}, {1, 1}, {2, 0}, {-4, -4}} {
		if _, err := NewSampler(c[0], c[1]); err == nil || !strings.Contains(err.Error(), "at most half") {
			t.Errorf("%d of %d: %v", c[1], c[0], err)
		}
	}
}

// The mean estimate over many draws must be close to the cross entropy over
// all classes. The loss is far below it.
func TestEstimateApproximatesTheFullLoss(t *testing.T) {
	const classes, width, each, draws = 60, 3, 20, 800
	table, label := numbers(21, []int{classes, width + 1})[0], int64(31)
	x := []float64{0.3, -0.5, 0.2}
	full, own := 0.0, 0.0
	for k := range classes {
		w := table[k*(width+1):]
		logit := w[3] + w[0]*x[0] + w[1]*x[1] + w[2]*x[2]
		if full += math.Exp(logit); k == int(label) {
			own = logit
		}
	}
	full = math.Log(full) - own
	v := [][]float64{x, table[label*4 : label*4+4], make([]float64, each*4), {0}, make([]float64, each), {float64(label)}, make([]float64, each)}
	s, err := NewSampler(classes, each)
	must(t, err)
	loss, estimate := 0.0, 0.0
	for i := range uint64(draws) {
		samples, logs, labelLogs := s.Draw(random.New(4, "samples").Derive(i), 0, 1, []int64{label})
		v[3][0] = float64(labelLogs[0])
		for j, k := range samples {
			copy(v[2][j*4:j*4+4], table[k*4:])
			v[4][j], v[6][j] = float64(logs[j]), float64(k)
		}
		a, b := sampledTwin(1, width, each, v)
		loss, estimate = loss+a/draws, estimate+b/draws
	}
	if math.Abs(estimate-full) > 0.03*full || loss > 0.8*full {
		t.Errorf("loss %v, estimate %v, of all classes %v", loss, estimate, full)
	}
}
