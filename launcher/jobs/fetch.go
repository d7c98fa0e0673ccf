package jobs

import (
	"context"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/fetch"
)

// Fetch brings the checkpoints of a job into a folder of this machine, while the job
// runs or after.
func Fetch(ctx context.Context, q Query, dir string) error {
	j, err := q.open(ctx, false)
	if err != nil {
		return err
	}
	defer j.close()
	if err := fetch.Writable(dir); err != nil {
		return exit.Mistake(err, "")
	}
	return fetch.Checkpoints(ctx, fetch.Request{Hosts: j.agents, Name: j.CheckpointName(), Dir: dir, Terminal: q.Terminal, Printer: j.printer})
}
