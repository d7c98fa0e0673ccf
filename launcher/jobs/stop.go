package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/driver"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/transport"
	"github.com/plx-run/plx/trainer/cluster"
)

// stopCode is the exit status of a job that plx stop ended: that of SIGTERM.
const stopCode = 143

// StopConfig tells which job to end, and how.
type StopConfig struct {
	Query
	Code   int           // exit status of the job; 0: that of plx stop
	Reason string        // who stops the job; empty: plx stop
	Grace  time.Duration // between telling tasks to end and killing them; 0: kill at once; negative: that of the launch
	// SaveTime bounds the checkpoint that the job makes first. 0: it makes none.
	SaveTime time.Duration
}

// Stop ends a job, and returns when nothing of it is left on its hosts. If the job was to
// save a checkpoint and did not, that is an error.
//
// A launch that has no job yet is ended too, by its name: it leaves nothing on its hosts.
func Stop(ctx context.Context, cfg StopConfig) error {
	var err error
	if cfg.Query, err = cfg.meant(ctx, "plx stop"); err != nil {
		return err
	}
	launch, found, err := cfg.launching()
	if found {
		if cfg.Job, err = launch.stop(ctx); err == nil && cfg.Job == "" {
			cfg.printer().Printf("the launch of %s was stopped before its job began", launch.label())
			return nil
		}
	}
	if err != nil {
		return err
	}
	query, done, err := unqueue(ctx, cfg.Query)
	if done || err != nil {
		return err
	}
	cfg.Query = query
	j, err := cfg.open(ctx, true)
	if err != nil {
		return err
	}
	defer j.close()
	if cfg.Grace < 0 {
		cfg.Grace = j.Grace
	}
	s := &stopper{job: j, cfg: cfg, last: map[*hosts.AgentHost]protocol.State{}}
	ended, verdict := j.ended(ctx)
	if cfg.SaveTime > 0 && !ended && s.maySave(ctx) {
		j.printer.Printf("job %s: it is saved first if it keeps checkpoints, for at most %s", j.Job, cfg.SaveTime)
	}
	failed := s.stop(ctx) // even if the job has ended: something may be left
	if failed != nil && s.outlived(ctx) {
		// With plx's job that of Slurm has ended, and what asked there. What is known of the
		// job now is in its folders.
		if j, err = cfg.exactly(j.Job).open(ctx, true); err != nil {
			return err
		}
		defer j.close()
		s.job = j
		failed = s.stop(ctx)
	}
	if err := s.note(ctx, failed); err != nil {
		j.printer.Error(err)
	}
	if err := failed; err != nil {
		if ctx.Err() != nil {
			j.printer.Printf("job %s: interrupted: hosts that were asked still end it: plx jobs", j.Job)
		}
		return err
	}
	stopped := fmt.Sprintf("job %s: stopped on %s", j.Job, console.Count(len(j.present()), "host"))
	switch {
	case ended:
		j.printer.Printf("job %s: had ended already%s", j.Job, ending(verdict))
	case cfg.SaveTime > 0:
		step, err := s.saved(ctx)
		if err != nil {
			return fmt.Errorf("%s, not saved: %w", stopped, err)
		}
		j.printer.Printf("%s, saved at step %d", stopped, step)
	default:
		j.printer.Printf("%s", stopped)
	}
	return nil
}

// maySave reports whether the chief has told that it uses plx's trainer: other programs do not
// save when they are asked.
func (s *stopper) maySave(ctx context.Context) bool {
	ctx, cancel := within(ctx, askTime)
	defer cancel()
	state, err := s.job.chief().State(ctx) // without an answer nothing is promised
	return err == nil && native(state)
}

// native reports whether a job's chief uses plx's trainer.
func native(state protocol.State) bool {
	chief := state.Tasks[cluster.Chief.String()]
	return chief != nil && chief.Native
}

// note records how the job ended, so that plx jobs knows it after its hosts have forgotten
// the job, unless whoever launched it has done so. failed is why hosts were not stopped.
func (s *stopper) note(ctx context.Context, failed error) error {
	r, found, err := byID(s.job.Job)
	if !found || r.Verdict != nil || ctx.Err() != nil {
		return err
	}
	ctx, cancel := within(ctx, askTime)
	defer cancel()
	for i := range s.job.agents { // every host knows the verdict
		a := s.job.agents[(s.job.Chief+i)%len(s.job.agents)]
		if state, err := s.state(ctx, a); err == nil && state.Verdict != nil {
			return r.Finish(*state.Verdict)
		}
	}
	if failed != nil {
		return nil // it may go on there
	}
	return r.Finish(protocol.Verdict{Code: cmp.Or(s.cfg.Code, stopCode), Reason: s.reason()})
}

// stopper is one run of Stop.
type stopper struct {
	job *Job
	cfg StopConfig

	mu   sync.Mutex
	last map[*hosts.AgentHost]protocol.State // of agents that were seen to end
}

// outlived reports whether the job ran in an allocation of Slurm that is over now.
func (s *stopper) outlived(ctx context.Context) bool {
	if s.job.Slurm.ID == "" {
		return false
	}
	over, err := s.job.Slurm.Over(ctx)
	return err == nil && over
}

// stop asks the agents of all hosts, and waits until nothing of the job is left.
func (s *stopper) stop(ctx context.Context) error {
	tell := s.job.printer.NewTally("stopping", len(s.job.present()))
	return hosts.Each(ctx, s.job.present(), func(_ int, a *hosts.AgentHost) error {
		tell.Begin(a.Name())
		defer tell.End(a.Name())
		if err := s.host(ctx, a); err != nil {
			return fmt.Errorf("stop job %s: %w", s.job.Job, err)
		}
		return nil
	})
}

// tries is how often an agent is asked that ends while it is asked. All agents end when
// the driver's agent ends.
const tries = 4

// host stops the job on one host. The time that it has does not include the dial.
func (s *stopper) host(ctx context.Context, a *hosts.AgentHost) error {
	ctx, cancel, err := a.WithTimeout(ctx, s.cfg.SaveTime+s.cfg.Grace+2*askTime)
	if err != nil {
		return err
	}
	defer cancel()
	for try := 1; ; try++ {
		ended, err := s.ask(ctx, a)
		switch {
		case ended != nil || errors.Is(err, driver.ErrNoAgent):
			s.keep(a, ended)
			return nil // the host has looked for what is left
		case ctx.Err() != nil:
			return fmt.Errorf("it did not end in time: %w", context.Cause(ctx))
		case err == nil:
			return a.Reap(ctx) // whatever ended the connection
		case try == tries || !agentEnded(err):
			return err
		}
	}
}

// agentEnded reports whether a connection to an agent broke because the agent ended.
func agentEnded(err error) bool {
	return transport.ExitStatus(err) >= 0 || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// ask asks an agent to stop the job, and returns after its stream has ended: with the last
// state if the host has ended it, which it does when nothing of the job is left there.
func (s *stopper) ask(ctx context.Context, a *hosts.AgentHost) (last *protocol.State, err error) {
	conn, err := a.Visit(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	stop := protocol.Stop{Grace: s.cfg.Grace, SaveTime: s.cfg.SaveTime, Reason: s.reason(), Code: cmp.Or(s.cfg.Code, stopCode)}
	if err := conn.Send(protocol.Message{Stop: &stop}); err != nil {
		return nil, err
	}
	for {
		m, err := conn.Receive()
		switch {
		case err == nil && m.State != nil:
			last = m.State
		case err == io.EOF && last != nil && last.Phase == protocol.Over:
			return last, nil
		case err != nil:
			return nil, ctx.Err()
		}
	}
}

// keep keeps the last state of the job on a host; nil: it is not known.
func (s *stopper) keep(a *hosts.AgentHost, last *protocol.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last != nil {
		s.last[a] = *last
	}
}

// state returns the state of the job on a host, which is asked if it is not known.
func (s *stopper) state(ctx context.Context, a *hosts.AgentHost) (protocol.State, error) {
	s.mu.Lock()
	last, known := s.last[a]
	s.mu.Unlock()
	if known {
		return last, nil
	}
	return a.State(ctx)
}

func (s *stopper) reason() string { return protocol.StoppedBy + cmp.Or(s.cfg.Reason, "plx stop") }

// saved returns the step of the checkpoint that the stopped job made. It asks the chief's
// host, then the others: every host knows the verdict.
func (s *stopper) saved(ctx context.Context) (int64, error) {
	ctx, cancel := within(ctx, askTime)
	defer cancel()
	var errs []error
	for i := range s.job.agents {
		a := s.job.agents[(s.job.Chief+i)%len(s.job.agents)]
		state, err := s.state(ctx, a)
		switch {
		case err != nil:
			errs = append(errs, a.Named(err))
		case state.Verdict == nil || state.Verdict.Saved == nil:
			errs = append(errs, a.Named(errors.New("it ended otherwise"+ending(state.Verdict))))
		case state.Verdict.Saved.Cause != "":
			return 0, errors.New(state.Verdict.Saved.Cause)
		default:
			return state.Verdict.Saved.Step, nil
		}
	}
	return 0, errors.Join(errs...)
}
