package launcher

import (
	"context"
	"errors"
	"fmt"
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
	j.voice.say("job %s: stopped on %s", j.Job, count(len(j.stations), "host"))
	return nil
}

// stop asks the host's agent and waits until its stream ends, which it does
// when nothing of the job is left there.
func (s *station) stop(ctx context.Context, stop protocol.Message) error {
	conn, err := s.visit(ctx)
	if errors.Is(err, conductor.ErrNoAgent) {
		return s.reap(ctx)
	}
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
			if ctx.Err() != nil {
				return fmt.Errorf("it did not end in time: %w", context.Cause(ctx))
			}
			return s.reap(ctx) // whatever ended the stream: look that nothing is left
		}
	}
}
