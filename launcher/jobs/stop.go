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
	s := &stopper{job: j, cfg: cfg}
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

// maySave reports whether the chief has told that it uses plx's trainer: other programs do not
// save when they are asked.
func (s *stopper) maySave(ctx context.Context) bool {
	state, err := s.job.state(ctx) // without an answer nothing is promised
	chief := state.Tasks[cluster.Chief.String()]
	return err == nil && chief != nil && chief.Native
}

// note records how the job ended, so that plx jobs knows it after its hosts have forgotten
// the job, unless whoever launched it has done so. failed is why hosts were not stopped.
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
		return nil // it may go on there
	}
	return r.Finish(protocol.Verdict{Code: cmp.Or(s.cfg.Code, submission.CodeStopped), Reason: s.reason()})
}

// stopper is one run of Stop.
type stopper struct {
	job  *Job
	cfg  StopConfig
	last []*protocol.State // of the job's hosts, in their order; nil: the agent was not seen to end
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

// tries is how often an agent is asked that ends while it is asked. All agents end when
// the driver's agent ends.
const tries = 4

// host stops the job on one host, and returns its last state there if that is known. The time
// that it has does not include the dial.
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
			return last, nil // the host has looked for what is left
		case ctx.Err() != nil:
			return nil, fmt.Errorf("it did not end: %w", context.Cause(ctx))
		case err == nil:
			return nil, a.Reap(ctx) // whatever ended the connection
		case try == tries || !agentEnded(err):
			return nil, err
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

// saved returns the step of the checkpoint that the stopped job made.
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

// verdict returns the first verdict that is as wanted: of the chief's host, then of the others,
// since every host knows it. A host whose last state is not known is asked. If there is none, the
// error says what each host knows.
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
		errs = append(errs, a.Named(errors.New("it ended otherwise"+ending(v))))
	}
	return nil, errors.Join(errs...)
}
