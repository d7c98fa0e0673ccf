package nn

import (
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/random"
)

// Sampler draws classes for a sampled softmax. Classes are numbered by how
// often they occur. It draws class k with probability log((k+2)/(k+1)) /
// log(classes+1), which is close to Zipf's law, until enough different classes
// are drawn. It holds scratch memory, so it is for one goroutine at a time.
// What it draws depends only on its arguments.
type Sampler struct {
	classes, samples int
	seen             []uint64 // a bit for each class
}

// NewSampler returns a sampler of a number of classes. It refuses more samples
// than half of the classes, which would take long to draw.
func NewSampler(classes, samples int) (*Sampler, error) {
	if samples < 1 || samples > classes/2 {
		return nil, fmt.Errorf("sampler: %d samples of %d classes: want at least 1 and at most half", samples, classes)
	}
	return &Sampler{classes: classes, samples: samples, seen: make([]uint64, (classes+63)/64)}, nil
}

// Draw draws samples for a number of virtual workers, beginning with the
// virtual worker first. Each has a stream of its own, so its samples do not
// depend on who draws them. labels are those of all these virtual workers,
// equally many for each. Draw returns each one's different samples, and the
// logarithms of the expected counts of samples and labels:
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

// draw draws until there are enough different classes. It returns the number of
// tries.
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

// logs appends the logarithms of the probabilities that the classes are drawn
// in a number of tries.
func (s *Sampler) logs(to []float32, classes []int64, tries int) []float32 {
	for _, k := range classes {
		p := random.ZipfChance(int(k), s.classes)
		to = append(to, float32(math.Log(-math.Expm1(float64(tries)*math.Log1p(-p)))))
	}
	return to
}
