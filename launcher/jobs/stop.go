package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/driver"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/submission"
	"github.com/plx-run/plx/launcher/transport"
	"github.com/plx-run/plx/trainer/cluster"
)

// StopConfig selects the job that Stop ends, and how it does so.
type StopConfig struct {
	Query
	Code   int           // exit status for the job; 0 means the default, submission.CodeStopped
	Reason string        // command that stops the job, shown to users as the reason; empty means "plx stop"
	Grace  time.Duration // time between SIGTERM and SIGKILL; 0 kills at once, negative means the time set at the launch
	// SaveTime is the time limit for a checkpoint that the job saves before it
	// ends. If it is 0, the job saves none.
	SaveTime time.Duration
}

// Stop ends a job and returns when all its processes on its hosts have ended.
// If cfg.SaveTime is set and the job did not save a checkpoint, Stop returns
// an error.
//
// Stop also ends a launch whose job does not exist yet, selected by the
// launch's name.
func Stop(ctx context.Context, cfg StopConfig) error {
	var err error
	if cfg.Query, err = cfg.resolve(ctx, "plx stop"); err != nil {
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
	s := &stopper{job: j, cfg: cfg}
	ended, verdict := j.ended(ctx)
	if cfg.SaveTime > 0 && !ended && s.maySave(ctx) {
		j.printer.Printf("job %s: it first saves a checkpoint if it keeps any, for at most %s", j.Job, cfg.SaveTime)
	}
	// Stop the agents even if the job has ended, because processes may be
	// left.
	failed := s.stop(ctx)
	if failed != nil && s.outlived(ctx) {
		// The Slurm job has ended together with plx's job, and so has the srun
		// step through which Stop reached the hosts. How plx's job ended is
		// stored in the job's folders, which the new connection reads.
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
			j.printer.Printf("job %s: interrupted: hosts that received the request still stop the job, see plx jobs", j.Job)
		}
		return err
	}
	stopped := fmt.Sprintf("job %s: stopped on %s", j.Job, plural.Count(len(j.present()), "host"))
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

// maySave reports whether the job can save a checkpoint on request. Only a job
// that uses plx's trainer can. Its chief (worker 0) reports to the agent that
// it uses the trainer.
func (s *stopper) maySave(ctx context.Context) bool {
	state, err := s.job.state(ctx) // the error is ignored: a job with an unknown state counts as unable to save
	chief := state.Tasks[cluster.Chief.String()]
	return err == nil && chief != nil && chief.Native
}

// note writes to this machine's file about the job how the job ended, unless
// plx launch has already done so. plx jobs needs this file after the hosts
// have removed the job's files. failed has the errors of hosts on which the
// job could not be stopped; it is nil if there are none.
func (s *stopper) note(ctx context.Context, failed error) error {
	r, found := byID(s.job.Job)
	if !found || r.Verdict != nil || ctx.Err() != nil {
		return nil
	}
	known := func(v *protocol.Verdict) bool { return v != nil }
	if v, _ := s.verdict(ctx, known); v != nil {
		return r.Finish(*v)
	}
	if failed != nil {
		return nil // do not record that the job has ended, because it may still run on these hosts
	}
	return r.Finish(protocol.Verdict{Code: cmp.Or(s.cfg.Code, submission.CodeStopped), Reason: s.reason()})
}

// stopper holds the state of one call of Stop.
type stopper struct {
	job  *Job
	cfg  StopConfig
	last []*protocol.State // last state of each host's agent, indexed like job.agents; nil if plx did not see the agent end
}

// outlived reports whether the job ran in a Slurm allocation that has ended.
func (s *stopper) outlived(ctx context.Context) bool {
	if s.job.Slurm.ID == "" {
		return false
	}
	over, err := s.job.Slurm.HasEnded(ctx)
	return err == nil && over
}

// stop asks the agents of all hosts to end the job, and waits until no process
// of the job is left.
func (s *stopper) stop(ctx context.Context) error {
	tell := s.job.printer.NewHostProgress("stopping", len(s.job.present()))
	s.last = make([]*protocol.State, len(s.job.agents))
	return hosts.Each(ctx, s.job.agents, func(i int, a *hosts.AgentHost) (err error) {
		if s.job.Hosts[i].Left {
			return nil
		}
		tell.Begin(a.Name())
		defer tell.End(a.Name())
		if s.last[i], err = s.host(ctx, a); err != nil {
			return fmt.Errorf("stop job %s: %w", s.job.Job, err)
		}
		return nil
	})
}

// tries is how often plx sends a request whose agent (plx's process on the
// host) ends before it replies. This is likely while a job ends, because all
// agents end together with the process that controls the job.
const tries = 4

// host stops the job on one host and returns the agent's last state, or nil if
// that is not known. The time limit starts after the connection to the host is
// open.
func (s *stopper) host(ctx context.Context, a *hosts.AgentHost) (last *protocol.State, err error) {
	ctx, cancel, err := a.WithTimeout(ctx, s.cfg.SaveTime+s.cfg.Grace+2*askTime)
	if err != nil {
		return nil, err
	}
	defer cancel()
	for try := 1; ; try++ {
		last, err := s.ask(ctx, a)
		switch {
		case last != nil || errors.Is(err, driver.ErrNoAgent):
			return last, nil // the host has checked that no process of the job is left
		case ctx.Err() != nil:
			return nil, fmt.Errorf("the job did not end: %w", context.Cause(ctx))
		case err == nil:
			return nil, a.Reap(ctx) // the connection ended without a last state, so kill the processes that are left
		case try == tries || !agentEnded(err):
			return nil, err
		}
	}
}

// agentEnded reports whether a connection to an agent broke because the agent ended.
func agentEnded(err error) bool {
	return transport.ExitStatus(err) >= 0 || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// ask asks an agent to stop the job and waits until the agent closes the
// connection. If the agent has ended the job, last is its final state, and no
// process of the job is left on its host. Otherwise last is nil.
func (s *stopper) ask(ctx context.Context, a *hosts.AgentHost) (last *protocol.State, err error) {
	stop := protocol.Stop{Grace: s.cfg.Grace, SaveTime: s.cfg.SaveTime, Reason: s.reason(), Code: cmp.Or(s.cfg.Code, submission.CodeStopped)}
	conn, err := a.Visit(ctx, protocol.Message{Stop: &stop})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
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

func (s *stopper) reason() string { return protocol.StoppedBy + cmp.Or(s.cfg.Reason, "plx stop") }

// saved returns the training step of the checkpoint that the job saved before
// it was stopped.
func (s *stopper) saved(ctx context.Context) (int64, error) {
	v, err := s.verdict(ctx, func(v *protocol.Verdict) bool { return v != nil && v.Saved != nil })
	switch {
	case v == nil:
		return 0, err
	case v.Saved.Cause != "":
		return 0, errors.New(v.Saved.Cause)
	}
	return v.Saved.Step, nil
}

// verdict returns the first verdict (how the job ended) for which the function
// wanted returns true. Every host knows the verdict. verdict asks the host of
// the chief (worker:0) first, and requests the state of a host only if its
// last state is not known. If wanted accepts no verdict, the error says what
// each host knows.
func (s *stopper) verdict(ctx context.Context, wanted func(*protocol.Verdict) bool) (*protocol.Verdict, error) {
	ctx, cancel := within(ctx, askTime)
	defer cancel()
	var errs []error
	for k := range s.job.agents {
		i := (s.job.Chief + k) % len(s.job.agents)
		a := s.job.agents[i]
		if s.last[i] == nil {
			state, err := a.State(ctx)
			if err != nil {
				errs = append(errs, a.Named(err))
				continue
			}
			s.last[i] = &state
		}
		v := s.last[i].Verdict
		if wanted(v) {
			return v, nil
		}
		errs = append(errs, a.Named(errors.New("the job ended without a checkpoint"+ending(v))))
	}
	return nil, errors.Join(errs...)
}
