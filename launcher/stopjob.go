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

// StopConfig says which job is to end, and how.
type StopConfig struct {
	Query
	Grace time.Duration // below 0: as launched
	// SaveTime has the job saved first, and bounds that. 0: it is not.
	SaveTime time.Duration
}

// Stop ends a job and returns when nothing of it is left on its hosts. One that
// was to be saved and was not is an error.
func Stop(ctx context.Context, cfg StopConfig) error {
	j, err := cfg.open(ctx, true)
	if err != nil {
		return err
	}
	defer j.fleet.Close() // what was to be said has been answered
	ended := j.ended(ctx)
	if cfg.Grace < 0 {
		cfg.Grace = j.Grace
	}
	if cfg.SaveTime > 0 && !ended {
		j.voice.say("job %s: it is saved first, for at most %s", j.Job, cfg.SaveTime)
	}
	if err := j.stop(ctx, cfg); err != nil {
		if ctx.Err() != nil {
			j.voice.say("job %s: interrupted: hosts that have been asked end it all the same: plx jobs", j.Job)
		}
		return err
	}
	stopped := fmt.Sprintf("job %s: stopped on %s", j.Job, count(len(j.present()), "host"))
	switch {
	case ended: // its hosts were looked at all the same
		j.voice.say("job %s: had ended already%s", j.Job, j.ending())
	case cfg.SaveTime > 0:
		step, err := j.saved(ctx)
		if err != nil {
			return fmt.Errorf("%s, not saved: %w", stopped, err)
		}
		j.voice.say("%s, saved at step %d", stopped, step)
	default:
		j.voice.say("%s", stopped)
	}
	return nil
}

// stop asks the agents of all hosts, and waits until they are gone.
func (j *job) stop(ctx context.Context, cfg StopConfig) error {
	stop := protocol.Message{Stop: &protocol.Stop{Grace: cfg.Grace, SaveTime: cfg.SaveTime, Reason: "stopped by plx stop", Code: stopCode}}
	errs := make([]error, len(j.stations))
	var wg sync.WaitGroup
	for i, s := range j.stations {
		if j.Hosts[i].Left {
			continue
		}
		wg.Go(func() {
			err := s.within(ctx, cfg.SaveTime+cfg.Grace+2*askTime, func(ctx context.Context) error { return s.stop(ctx, stop) })
			if err != nil {
				errs[i] = s.named(fmt.Errorf("stop job %s: %w", j.Job, err))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// saved is the step at which a job that was stopped was saved. Every host knows
// the verdict; the chief's is asked first.
func (j *job) saved(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var errs []error
	for i := range j.stations {
		s := j.stations[(j.Chief+i)%len(j.stations)]
		state, err := s.state(ctx)
		switch {
		case err != nil:
			errs = append(errs, s.named(err))
		case state.Verdict == nil || state.Verdict.Saved == nil:
			errs = append(errs, s.named(errors.New("it ended otherwise"+endingOf(state.Verdict))))
		case state.Verdict.Saved.Cause != "":
			return 0, errors.New(state.Verdict.Saved.Cause)
		default:
			return state.Verdict.Saved.Step, nil
		}
	}
	return 0, errors.Join(errs...)
}

// ending says how the job ended, where that is known.
func (j *job) ending() string { return endingOf(j.Verdict) }

func endingOf(v *protocol.Verdict) string {
	if v == nil {
		return ""
	}
	return ": " + v.Reason
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
