package logstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/logs"
)

// Print writes the hosts' logs to out until their end. Without Follow it merges them in
// the order of time. A host that was connected may be away for its lease, since its
// tasks live as long, and then for a moment more.
func Print(ctx context.Context, agents []*hosts.AgentHost, req logs.Request, out *Output, lease time.Duration) error {
	show := merge
	if req.Follow {
		show = followAll
	}
	errs := show(ctx, agents, req, out, lease+patience)
	for i, err := range errs {
		if errors.Is(err, errOutput) {
			errs[i] = nil // Output.Close returns it
		} else if err != nil {
			errs[i] = agents[i].Named(fmt.Errorf("logs: %w", err))
		}
	}
	return errors.Join(errs...)
}

// followAll writes chunks as they come, and returns the error of each host.
func followAll(ctx context.Context, agents []*hosts.AgentHost, req logs.Request, out *Output, patience time.Duration) []error {
	errs := make([]error, len(agents))
	var wg sync.WaitGroup
	for i, a := range agents {
		wg.Go(func() { errs[i] = follow(ctx, a, req, out, &hearing{}, patience) })
	}
	wg.Wait()
	return errs
}

// merge writes chunks in the order of time, and returns the error of each host.
func merge(ctx context.Context, agents []*hosts.AgentHost, req logs.Request, out *Output, patience time.Duration) []error {
	var next []func() (logs.Chunk, error)
	for _, a := range agents {
		f := &feed{agent: a, req: req, cursor: &out.cursor, heard: &hearing{}, patience: patience}
		defer f.close()
		f.open(ctx) // on all hosts at once: logs.Merge asks one after the other
		next = append(next, func() (logs.Chunk, error) { return f.next(ctx) })
	}
	return logs.Merge(next, func(i int, c logs.Chunk) error { return out.take(agents[i].Host, c) })
}
