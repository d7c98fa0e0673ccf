package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/conductor"
	"github.com/plx-run/plx/launcher/protocol"
)

// stopCode is the exit status of a job that plx stop ended: that of SIGTERM.
const stopCode = 143

// Stop ends a job and returns when nothing of it is left on its hosts.
func Stop(ctx context.Context, q Query, grace time.Duration) error {
	j, err := q.open(ctx, true)
	if err != nil {
		return err
	}
	defer j.fleet.Close() // what was to be said has been answered
	ended := j.Verdict != nil || !stillRuns(ctx, j.record, j.voice)
	if grace < 0 {
		grace = j.Grace
	}
	stop := protocol.Message{Stop: &protocol.Stop{Grace: grace, Reason: "stopped by plx stop", Code: stopCode}}
	errs := make([]error, len(j.stations))
	var wg sync.WaitGroup
	for i, s := range j.stations {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, grace+2*askTime)
			defer cancel()
			if err := s.stop(ctx, stop); err != nil {
				errs[i] = fmt.Errorf("host %s: stop job %s: %w", s.host.Name, j.Job, err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if ended { // its hosts were looked at all the same
		j.voice.say("job %s: had ended already%s", j.Job, j.ending())
		return nil
	}
	j.voice.say("job %s: stopped on %s", j.Job, count(len(j.stations), "host"))
	return nil
}

// ending says how the job ended, where that is known.
func (j *job) ending() string {
	if j.Verdict == nil {
		return ""
	}
	return ": " + j.Verdict.Reason
}

// stopTries is how often an agent is asked that ends while it is asked, as all
// do when the chief's has been heard first.
const stopTries = 4

// stop asks the host's agent and waits until nothing of the job is left there.
func (s *station) stop(ctx context.Context, stop protocol.Message) error {
	for try := 1; ; try++ {
		err := s.askStop(ctx, stop)
		switch {
		case err == nil, errors.Is(err, conductor.ErrNoAgent):
			return s.reap(ctx) // whatever ended the agent: look that nothing is left
		case ctx.Err() != nil:
			return fmt.Errorf("it did not end in time: %w", context.Cause(ctx))
		case try == stopTries || !(exitStatus(err) >= 0 || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
			return err
		}
	}
}

// askStop returns nil once the agent's stream has ended, which it does when
// nothing of the job is left on the host.
func (s *station) askStop(ctx context.Context, stop protocol.Message) error {
	conn, err := s.visit(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.Send(stop); err != nil {
		return err
	}
	for {
		if _, err := conn.Receive(); err != nil {
			return ctx.Err()
		}
	}
}
