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
	j.voice.say("attached to job %s%s: Ctrl-C leaves it running, plx stop ends it", j.Job, j.generation(ctx))
	req := logs.Request{TailLines: 10, Follow: true}
	if err := j.print(ctx, j.present(), req, printing(q.Terminal), q.Terminal); err != nil {
		if !j.Restarts || ctx.Err() != nil {
			return Code(err), err
		}
		j.voice.say("%v", err) // of a host, perhaps, without which the job went on
	}
	state, err := j.stations[j.Chief].state(ctx)
	if err != nil {
		return CodePlx, j.resumable(fmt.Errorf("host %s: %w", j.stations[j.Chief].host.Name, err))
	}
	if state.Verdict == nil {
		return CodePlx, fmt.Errorf("job %s: ended without a verdict", j.Job)
	}
	tell(j.voice, j.Job, *state.Verdict, j.Saves)
	return state.Verdict.Code, j.learn(state, j.voice)
}

// present are the stations of the hosts that have not left the job.
func (j *job) present() (present []*station) {
	for i, s := range j.stations {
		if !j.Hosts[i].Left {
			present = append(present, s)
		}
	}
	return present
}

// generation says in which generation a job is that was restarted.
func (j *job) generation(ctx context.Context) string {
	if !j.Restarts {
		return ""
	}
	state, err := j.stations[j.Chief].state(ctx)
	if err != nil || state.Generation == 0 {
		return "" // what follows says what is wrong
	}
	return fmt.Sprintf(", generation %d", state.Generation)
}
