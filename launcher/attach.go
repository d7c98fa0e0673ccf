package launcher

import (
	"context"
	"fmt"

	"github.com/plx-run/plx/logs"
)

// Attach streams the newest lines of a running job and what follows, and
// returns the job's own exit status once it has ended. Leaving it does not
// end the job.
func Attach(ctx context.Context, q Query) (int, error) {
	j, err := q.open(ctx, true)
	if err != nil {
		return Code(err), err
	}
	defer j.fleet.Close() // nothing was written
	j.voice.say("attached to job %s: Ctrl-C leaves it running, plx stop ends it", j.Job)
	req := logs.Request{TailLines: 10, Follow: true}
	if err := j.print(ctx, j.stations, req, printing(q.Terminal), q.Terminal); err != nil {
		return Code(err), err
	}
	state, err := j.stations[j.Chief].state(ctx)
	if err != nil {
		return CodePlx, fmt.Errorf("host %s: %w", j.stations[j.Chief].host.Name, err)
	}
	if state.Verdict == nil {
		return CodePlx, fmt.Errorf("job %s: ended without a verdict", j.Job)
	}
	tell(j.voice, j.Job, *state.Verdict)
	return state.Verdict.Code, j.over(state.Verdict)
}
