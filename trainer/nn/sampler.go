package nn

import (
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/random"
)

// Sampler draws classes for a sampled softmax: of classes numbered by how often
// they come, class k with the probability log((k+2)/(k+1)) / log(classes+1),
// which is nearly Zipf's law, until so many different ones are there. It holds
// scratch memory, so it is for one goroutine at a time; what it draws depends
// on its arguments alone.
type Sampler struct {
	classes, samples int
	seen             []uint64 // a bit for each class
}

// NewSampler draws so many samples of so many classes. More than half of them
// would take long to draw, and are refused.
func NewSampler(classes, samples int) (*Sampler, error) {
	if samples < 1 || samples > classes/2 {
		return nil, fmt.Errorf("sampler: %d samples of %d classes: want at least 1 and at most half", samples, classes)
	}
	return &Sampler{classes: classes, samples: samples, seen: make([]uint64, (classes+63)/64)}, nil
}

// Draw draws samples for each of so many virtual workers, the first of them
// with a number, from streams of their own: what one draws does not depend on
// who computes it. labels are those of all of them, as many for each. It returns
// different samples for each, and the logarithms of how often samples and
// labels were to be expected among as many draws as that took:
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

// draw draws until there are enough different classes.
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

// logs appends the logarithms of the probabilities that classes are among so
// many draws.
func (s *Sampler) logs(to []float32, classes []int64, tries int) []float32 {
	for _, k := range classes {
		p := random.ZipfChance(int(k), s.classes)
		to = append(to, float32(math.Log(-math.Expm1(float64(tries)*math.Log1p(-p)))))
	}
	return to
}
