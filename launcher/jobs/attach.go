package jobs

import (
	"context"
	"fmt"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/logs"
)

// attachLines is how many lines of each stream Attach prints that are already there.
const attachLines = 10

// Attach prints the newest lines of a running job and follows it. It returns the job's
// exit status after the job has ended. To leave it does not end the job.
func Attach(ctx context.Context, q Query) (int, error) {
	j, err := q.open(ctx, true)
	if err != nil {
		return exit.Code(err), err
	}
	defer j.close()
	generation := ""
	if j.Restarts {
		if state, err := j.chief().State(ctx); err == nil && state.Generation > 0 { // the print below reports an error
			generation = fmt.Sprintf(", generation %d", state.Generation)
		}
	}
	j.printer.Printf("attached to job %s%s: Ctrl-C leaves it running, plx stop ends it", j.Job, generation)
	req := logs.Request{TailLines: attachLines, Follow: true}
	if err := j.print(ctx, j.present(), req, logs.Options{}, q.Terminal); err != nil {
		if !j.Restarts || ctx.Err() != nil {
			return exit.Code(err), err
		}
		j.printer.Error(err) // the job may have continued without the host
	}
	state, err := j.chief().State(ctx)
	if err != nil {
		return exit.CodePlx, j.resumable(j.chief().Named(err))
	}
	if state.Verdict == nil {
		return exit.CodePlx, fmt.Errorf("job %s: ended without a verdict", j.Job)
	}
	PrintVerdict(j.printer, j.Job, *state.Verdict, j.Saves)
	return state.Verdict.Code, j.learn(state, j.printer)
}
