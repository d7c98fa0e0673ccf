package trainer

import (
	"context"
	"os"

	"github.com/plx-run/plx/trainer/config"
)

// Alone is Main for examples: without a launcher, without flags, and it returns.
// The trainer's own lines are left out.
func Alone(train func(ctx context.Context, job *Job) error, configs ...Config) {
	p := process{getenv: func(string) string { return "" }, log: discarded{}, out: os.Stdout, config: config.Default().With(configs...)}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	p.run(ctx, cancel, train)
}

type discarded struct{}

func (discarded) Write(b []byte) (int, error) { return len(b), nil }
