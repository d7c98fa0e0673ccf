package jobs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/provision"
	"github.com/plx-run/plx/launcher/reservation"
	"github.com/plx-run/plx/launcher/scratch"
)

// ScaleConfig selects a running job and the hosts on which it continues.
type ScaleConfig struct {
	Query                  // Query.Reach lists all hosts that the job has after the change
	SaveTime time.Duration // time limit of the checkpoint that the job saves before the change
}

// prepareTime bounds the preparation of new hosts (copying files, starting
// agents). After it, the job's driver, the process that controls the job, adds
// them.
const prepareTime = 15 * time.Minute

// Scale moves a running job to another set of hosts after its next training
// step. If Scale fails, the job continues on its current hosts.
func Scale(ctx context.Context, cfg ScaleConfig) error {
	if err := cfg.Reach.CheckVariables(); err != nil {
		return err
	}
	var err error
	if cfg.Query, err = cfg.resolve(ctx, "plx scale"); err != nil {
		return err
	}
	j, err := cfg.open(ctx, true)
	if err != nil {
		return err
	}
	defer j.close()
	if j.Embedded {
		return exit.Mistake(fmt.Errorf("job %s: it runs on an embedded cluster, which has no other hosts", j.Job), "launch it with --hosts FILE")
	}
	if ended, verdict := j.ended(ctx); ended {
		return fmt.Errorf("job %s: it has ended%s", j.Job, ending(verdict))
	}
	s := &scaler{job: j, cfg: cfg}
	defer s.close()
	done := j.printer.Watch(func() string { return fmt.Sprintf("scaling job %s: it has to save and to start again", j.Job) })
	answer, err := s.scale(ctx)
	done()
	if err != nil && ctx.Err() != nil {
		j.printer.Printf("job %s: %s", j.Job, s.interrupted())
	}
	if err != nil {
		return fmt.Errorf("job %s: not scaled: %w", j.Job, err)
	}
	if answer.To == 0 {
		j.printer.Printf("job %s: nothing to do: the job already runs on these hosts", j.Job)
		return nil
	}
	// Update the record before printing: the print may fail if nothing reads
	// the output.
	err = j.learn(protocol.State{Layout: &protocol.Layout{Generation: answer.Generation, Hosts: answer.Hosts}})
	j.printer.Printf("job %s: %s", j.Job, answer)
	return err
}

// scaler holds the state of one call of Scale.
type scaler struct {
	job     *Job
	cfg     ScaleConfig
	spec    protocol.Spec      // settings of a running agent of the job, used for the agents on new hosts
	set     *hosts.Set         // the new hosts; nil if no host joins
	group   hosts.Group        // agents of the new hosts
	join    []protocol.Joining // the new hosts, in the form that is sent to the job's driver (the process that controls the job)
	scratch *scratch.Folder    // true if the driver may have accepted the request of plx scale; the job may then already use the new hosts
	asked   bool               // true if the driver may have accepted the request; the job may then use the new hosts
}

// interrupted returns the message for a user who has interrupted plx scale. It
// says what happens to the job.
func (s *scaler) interrupted() string {
	if s.asked {
		return "interrupted: the job continues on either the new or the old hosts, see plx jobs"
	}
	return "interrupted: the job is not scaled and continues on its hosts"
}

func (s *scaler) scale(ctx context.Context) (answer protocol.Scaled, err error) {
	preparing, cancel := context.WithTimeoutCause(ctx, prepareTime, fmt.Errorf("not ready within %v", prepareTime))
	defer cancel()
	layout, err := s.ask(preparing, protocol.Scale{ID: rand.Text()})
	if err != nil {
		return answer, err
	}
	fresh, leave := diffHosts(s.cfg.Reach.Hosts, layout.Hosts)
	if len(fresh)+len(leave) == 0 {
		return answer, nil
	}
	if err := canLeave(layout.Hosts, leave); err != nil {
		return answer, err
	}
	if err := s.prepare(preparing, fresh, len(layout.Hosts)); err != nil {
		return answer, errors.Join(err, s.endGroup(err))
	}
	ctx, cancel = context.WithTimeoutCause(ctx, s.replyTimeout(), fmt.Errorf("not scaled within %v", s.replyTimeout()))
	defer cancel()
	answer, err = s.ask(ctx, protocol.Scale{ID: rand.Text(), Known: len(layout.Hosts), Join: s.join, Leave: leave, SaveTime: s.cfg.SaveTime})
	s.asked = answer.Cause == ""
	if !s.asked {
		err = errors.Join(err, s.endGroup(err))
		// The job's driver (the process that controls the job) may have added
		// the new hosts. If it has not, no process renews the leases of the
		// new hosts' agents, and these agents end by themselves.
	} else if err != nil {
		err = fmt.Errorf("no reply from the driver: %w; the job may still be scaled, see plx jobs", err)
	}
	return answer, err
}

// replyTimeout returns the time limit for the reply of the job's driver (the
// process that controls the job). In this time the driver saves a checkpoint,
// ends and restarts all tasks, and waits for their first step. It may also
// have to wait until the lease of a lost host expires.
func (s *scaler) replyTimeout() time.Duration {
	return 2*s.cfg.SaveTime + s.spec.StartTimeout + s.spec.Grace + s.spec.Lease + 2*askTime
}

// ask sends a scale request to the job's driver and returns the reply. The
// driver is the code that decides for the job; it runs in an agent or in plx
// launch. The request goes through the agent of the chief's host (worker:0).
// If the connection breaks, ask connects and sends the request again.
func (s *scaler) ask(ctx context.Context, scale protocol.Scale) (answer protocol.Scaled, err error) {
	for try := 1; ; try++ {
		answer, err = s.askOnce(ctx, scale)
		switch {
		case err == nil && answer.Cause != "":
			return answer, errors.New(answer.Cause)
		case err == nil:
			return answer, nil
		case ctx.Err() != nil:
			return answer, s.job.chief().Named(context.Cause(ctx))
		case try == tries:
			return answer, s.job.chief().Named(err)
		}
	}
}

func (s *scaler) askOnce(ctx context.Context, scale protocol.Scale) (answer protocol.Scaled, err error) {
	conn, err := s.job.chief().Visit(ctx, protocol.Message{SpecAsk: true}, protocol.Message{Scale: &scale})
	if err != nil {
		return answer, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	for {
		m, err := conn.Receive()
		switch {
		case err != nil:
			return answer, err
		case m.Spec != nil:
			s.spec = *m.Spec
		case m.Scaled != nil && m.Scaled.ID == scale.ID:
			return *m.Scaled, nil
		case m.State != nil && m.State.Verdict != nil:
			return answer, fmt.Errorf("the job has ended: %s", m.State.Verdict.Reason)
		}
	}
}

// endGroup ends the agents on new hosts that did not join the job. The error
// why is the reason that the agents record.
func (s *scaler) endGroup(why error) error {
	return s.group.End(protocol.Verdict{Code: exit.CodePlx, Reason: "not scaled: " + why.Error()}, askTime)
}

func (s *scaler) close() {
	s.group.Close()
	if s.set != nil {
		s.set.Close() // the error is ignored because nothing was written to the hosts
	}
	_ = s.scratch.Remove() // the error is ignored: the next launch removes the folder
}

// prepare starts an agent of the job on every host in fresh, which are the new
// hosts. It copies the job's files from a host of the job, because another
// machine may have launched the job. known is the number of the job's current
// hosts.
func (s *scaler) prepare(ctx context.Context, fresh []hostfile.Host, known int) (err error) {
	if len(fresh) == 0 {
		return nil
	}
	if s.set, err = hosts.Open(ctx, hosts.Reach{Hosts: fresh, Interface: s.spec.JobInterface, Via: s.job.over(s.cfg.Reach), Slurm: s.job.Slurm, AcceptNewHostKeys: s.cfg.Reach.AcceptNewHostKeys, ProbeTime: s.cfg.Reach.ProbeTime, PortLow: s.spec.PortLow, PortHigh: s.spec.PortHigh}, s.job.printer); err != nil {
		return err
	}
	if err := s.provideAgent(ctx); err != nil {
		return err
	}
	var targets []*provision.Target
	for _, h := range s.set.Hosts {
		agent := &hosts.AgentHost{Host: h, Job: s.job.Job, Folder: h.JobFolder(), Binary: s.job.chief().Binary}
		targets = append(targets, &provision.Target{AgentHost: agent})
	}
	if err := (provision.Recipe{Set: s.set, Printer: s.job.printer}).Survey(ctx, targets); err != nil {
		return err
	}
	placed, err := s.place()
	if err != nil {
		return err
	}
	var agents []*hosts.AgentHost
	for i, h := range placed.Hosts { // placed.Hosts omits hosts without tasks, so its indices differ from those of the set
		targets[i].GPUs = h.GPUWorkers()
		agents = append(agents, targets[i].AgentHost)
	}
	// A new ticket (position in the queue for GPUs) puts this reservation
	// behind launches that already wait. The job's own ticket is older and
	// would put it before them.
	s.spec.Ticket = reservation.NewTicket()
	if err := CheckReservations(ctx, placed, agents, s.spec.Ticket, scaleBusyHint); err != nil {
		return err
	}
	recipe, err := provision.FromJob(ctx, s.job.chief(), s.spec, s.scratch.Path, s.job.printer)
	if err != nil {
		return err
	}
	recipe.Set = s.set
	if err := recipe.Ready(ctx, targets); err != nil {
		return err
	}
	return s.start(ctx, targets, placed, known)
}

// place assigns tasks to the new hosts according to the options of the
// original launch.
func (s *scaler) place() (p placement.Placement, err error) {
	machines := s.set.Machines()
	var lines []hostfile.Host
	for _, m := range machines {
		lines = append(lines, m.Host)
	}
	options := placement.Joining(s.spec.Placing, lines)
	if p, err = placement.Place(machines, options); err != nil {
		return p, err
	}
	notes, err := p.Conflicts(machines)
	s.job.printer.Lines(notes)
	if err != nil {
		return p, err
	}
	if len(p.Hosts) < len(lines) {
		return p, errors.New("some of the new hosts would have no tasks: leave them out")
	}
	return p, InUse(p, machines, options.ShareGPUs, scaleBusyHint, s.job.printer)
}

// provideAgent copies the agent's executable from a host of the job to this
// machine, from which plx installs it on the new hosts.
func (s *scaler) provideAgent(ctx context.Context) error {
	from := s.job.chief()
	if err := from.UpdateFacts(ctx); err != nil {
		return from.Named(err)
	}
	var err error
	if s.scratch, err = scratch.New(); err != nil {
		return err
	}
	agent, err := provision.TakeBlob(ctx, from, path.Base(from.Binary), s.scratch.Path)
	if err != nil {
		return err
	}
	s.set.UseAgent(agent, func(p envsync.Platform) (envsync.Blob, error) {
		if p != from.Facts.Platform {
			return agent, fmt.Errorf("the host is %s, but the job's program on host %s is for %s", p, from.Name(), from.Facts.Platform)
		}
		return agent, nil
	})
	return nil
}

// start starts the agents on the new hosts. An agent ends when its lease
// expires. This process renews the leases until the job's driver (the process
// that controls the job) takes over.
func (s *scaler) start(ctx context.Context, on []*provision.Target, p placement.Placement, known int) error {
	for k, t := range on {
		a := t.AgentHost
		addr, err := a.DataAddr()
		if err != nil {
			return a.Named(err)
		}
		spec := s.spec
		spec.Host, spec.HostIndex, spec.Folder, spec.DataAddr, spec.Tasks = a.Name(), known+k, a.Folder, addr, nil
		spec.Logs = false // agents send no logs to this process, because it does not print them
		spec.Claims = protocol.Claims(p.Hosts[k].Specs())
		spec.Interface, spec.OwnEnv = a.Resource.Interface, len(a.Resource.Env)
		spec.Env = s.spec.EnvOf(a.Resource.Env)
		s.group = append(s.group, &hosts.Start{Agent: a, Spec: spec, Again: true})
	}
	if err := s.group.Start(ctx, s.job.printer); err != nil {
		return err
	}
	for k, placed := range p.Hosts {
		a := s.group[k].Agent
		s.join = append(s.join, protocol.Joining{Addr: s.group[k].Addr, Interface: a.Resource.Interface, Env: protocol.Raws(a.Resource.Env),
			HostPlan: protocol.HostPlan{Host: a.Name(), Folder: a.Folder, Tasks: placed.Specs(), Line: a.Resource.WithoutSettings().String(), Binary: a.Binary}})
	}
	return nil
}
