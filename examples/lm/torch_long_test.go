//go:build long

package main

import (
	"context"
	"flag"
	"testing"

	"github.com/plx-run/plx/internal/test/torchtwin"
	"github.com/plx-run/plx/trainer"
)

// plx's training steps equal those of PyTorch, which uses the softmax samples
// that plx has drawn. The cases are the example's own sizes and a projection,
// with embeddings and with ordinary variables.
func TestTorchTwin(t *testing.T) {
	for name, arguments := range map[string][]string{
		"defaults":  nil,
		"projected": {"--vocabulary", "500", "--width", "24", "--hidden", "40", "--samples", "100"},
		"dense":     {"--vocabulary", "500", "--width", "24", "--hidden", "24", "--samples", "100", "--dense"},
	} {
		t.Run(name, func(t *testing.T) {
			var s settings
			f := flag.NewFlagSet("lm", flag.ContinueOnError)
			s.define(f)
			if err := f.Parse(arguments); err != nil {
				t.Fatal(err)
			}
			compare(t, &s)
		})
	}
}

func compare(t *testing.T, s *settings) {
	t.Helper()
	const warm = 50
	optimizer := trainer.Adagrad(s.rate).WithSchedule(trainer.WarmUp(warm, func(int) float64 { return s.rate }))
	optimizer.Settings.Accumulator = 1e-6
	torchtwin.Compare(t, torchtwin.Twin{
		Build: s.build, Optimizer: optimizer, Config: trainer.Config{GlobalBatch: s.batch, ClipNorm: 1, NoFindSparse: s.dense},
		Script: "testdata/torch_twin.py",
		Settings: map[string]any{"vocabulary": s.vocabulary, "width": s.width, "hidden": s.hidden, "length": s.length, "batch": s.batch,
			"rate": s.rate, "warm": warm},
		Feeds: func(_ context.Context, job *trainer.Job, session *trainer.Session) (func(int) (trainer.Feed, error), error) {
			text, _, err := s.open(job.Seed())
			if err != nil {
				return nil, err
			}
			return s.feeder(job, session, text)
		},
	})
}
