package launcher

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/artifacts"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/entrypoint"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/jobs"
	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/provision"
	"github.com/plx-run/plx/launcher/reservation"
	"github.com/plx-run/plx/launcher/submission"
	"github.com/plx-run/plx/trainer/cluster"
)

// prepare runs all stages of a launch before the agents start. If the user
// interrupts prepare, only cached files remain on the hosts, and the next
// launch can use them.
func (l *launch) prepare(ctx context.Context) error {
	defer func() { l.announced() }()
	l.revision = readRevision(ctx, l.cfg)
	for _, stage := range []struct {
		doing string // text displayed while the stage runs; "" for a stage that takes no time or displays its own progress
		work  func(context.Context) error
	}{
		{"preparing the connections", l.open},
		{"reading what the job needs", l.read},
		{"", l.announce},
		{"looking at the hosts", l.survey},
		{"looking for the program", l.find},
		{"", l.place},
		{"preparing what is sent", l.pack},
		{"waiting for GPUs", l.reserveGPUs},
		{"looking for jobs of the same name", l.name},
		{"preparing the hosts", l.ready},
		{"", func(context.Context) error { return l.record().Save() }},
		{"asking git for the commit", l.keepRun},
	} {
		done := l.printer.Phase(console.Waiting(stage.doing, nil))
		err := stage.work(ctx)
		done()
		if err != nil {
			return err
		}
	}
	return nil
}

// announce records this launch on this machine. With this file, plx stop finds
// the launch before the launch's job has a record. A launch from a batch
// submission writes no file, because plx stop finds the submission.
func (l *launch) announce(context.Context) error {
	if l.cfg.Submission != "" {
		return nil
	}
	done, err := jobs.Announce(l.cfg.Name, filepath.Base(l.cfg.Program))
	if err != nil {
		return fmt.Errorf("record the launch: %w", err)
	}
	l.announced = done
	return nil
}

// survey connects to the hosts and asks for their platform, GPUs, cached files
// and other facts. It also determines the name of the job's checkpoints.
func (l *launch) survey(ctx context.Context) (err error) {
	if l.checkpoints, err = l.checkpointName(ctx); err != nil {
		return err
	}
	if len(l.cfg.Hosts) == 0 {
		l.printer.Printf("%s", embeddedLine(l.cfg))
	}
	if l.cfg.Slurm.ID != "" {
		l.printer.Printf("%s", inSlurm(l.cfg))
	}
	l.source = artifacts.Source{Program: l.cfg.Program, Kind: l.program.Kind, Agent: l.set.Agent}
	var all []*provision.Target
	for _, h := range l.set.Hosts {
		all = append(all, &provision.Target{AgentHost: h.Agent()})
	}
	recipe := provision.Recipe{Set: l.set, Printer: l.printer, Likely: l.source.Expected()}
	if err := recipe.Survey(ctx, all); err != nil {
		if exit.Hint(err) != "" || len(l.cfg.Hosts) == 0 || ctx.Err() != nil {
			return err
		}
		return exit.WithHint(err, "plx doctor with the same --hosts finds what else would fail, on all hosts")
	}
	return nil
}

// find asks the hosts whether the program links plx's trainer. It is used for
// a program that is a command installed on the hosts. Only a program that
// links the trainer gets parameter servers by default.
func (l *launch) find(ctx context.Context) error {
	if !l.program.AskHosts {
		return nil
	}
	var agents []*hosts.AgentHost
	var names []string
	for _, h := range l.set.Hosts {
		agents, names = append(agents, h.Agent()), append(names, h.Name())
	}
	found := make([]protocol.Found, len(agents))
	tally := l.printer.NewHostProgress("looking for the program", len(agents))
	err := hosts.Each(ctx, agents, func(i int, a *hosts.AgentHost) (err error) {
		tally.Begin(a.Name())
		defer tally.End(a.Name())
		want := protocol.Find{Name: protocol.Raw(l.program.Command), Path: protocol.Raw(l.cfg.Path), Env: protocol.Raws(slices.Concat(l.cfg.environ, a.Resource.Env))}
		if found[i], err = hosts.Call[protocol.Found](ctx, a, hosts.AnswerTime, protocol.DoFind, want); err != nil {
			err = fmt.Errorf("look for the program: %w", err)
		}
		return err
	})
	if err != nil {
		return err
	}
	trainer, note := agreed(l.cfg, names, found)
	if note != "" {
		l.printer.Printf("%s", note)
	}
	l.program.Trainer, l.program.AskHosts = trainer, false
	if l.cfg.AutoServers {
		l.cfg.NoServers = !trainer
	}
	return nil
}

// agreed reports whether the program links plx's trainer, according to what
// the hosts found. All hosts that have the program must agree. A host without
// the program either runs no task or makes the launch fail later. note
// explains why the job gets no parameter servers, or is empty.
func agreed(c Config, names []string, found []protocol.Found) (trainer bool, note string) {
	with, without := -1, -1
	for i, f := range found {
		switch {
		case f.Trainer:
			with = i
		case f.There:
			without = i
		}
	}
	switch {
	case !c.AutoServers:
	case with >= 0 && without >= 0:
		note = fmt.Sprintf("note: %s links plx's trainer on host %s and not on host %s, so the job has no servers (--ps all)", c.Program, names[with], names[without])
	case with < 0 && without < 0 && c.Setup != "":
		note = fmt.Sprintf("note: %s is on no host's PATH before --setup, so the job has no servers; if it links plx's trainer, add --ps all", c.Program)
	}
	return with >= 0 && without < 0, note
}

// pack builds the program and plx's agent for the hosts' platforms.
func (l *launch) pack(ctx context.Context) (err error) {
	if l.artifacts, err = artifacts.Pack(ctx, l.source, l.platforms(), l.printer); err != nil {
		return nameHosts(err, l.agents)
	}
	return nil
}

// embeddedLine returns the line that says that the job runs on an embedded
// cluster (hosts simulated on this machine). Together with the prefix that plx
// prints, the line fits into 80 columns.
func embeddedLine(cfg Config) string {
	why := "no --hosts: "
	if cfg.LocalGiven {
		why = ""
	}
	return fmt.Sprintf("%sembedded cluster of %s x %s (--local %dx%d)", why,
		plural.Count(cfg.LocalHosts, "host"), plural.Count(cfg.LocalWorkers, "worker"), cfg.LocalHosts, cfg.LocalWorkers)
}

// inSlurm returns the line that says that the job runs on the hosts of a Slurm
// allocation.
func inSlurm(cfg Config) string {
	return fmt.Sprintf("in job %s of Slurm, with %s (--no-slurm leaves it out)", cfg.Slurm.ID, plural.Count(len(cfg.Hosts), "host"))
}

// ready provisions the hosts: it sends the program and files and runs the
// checks that must pass before the tasks start.
func (l *launch) ready(ctx context.Context) error {
	var all []*provision.Target
	for i, a := range l.agents {
		all = append(all, &provision.Target{AgentHost: a, GPUs: l.placed.Hosts[i].GPUWorkers()})
	}
	if err := l.recipe().Ready(ctx, all); err != nil {
		return err
	}
	table := console.NewTable("HOST", "INTERFACE", "DATA ADDRESS")
	for _, h := range l.agents {
		addr, _ := h.DataAddr() // the error is ignored: Ready has already rejected hosts without an address
		table.Row(h.Name(), cmp.Or(h.Resource.Interface, "as SSH"), addr)
	}
	lines := table.Lines()
	if l.cfg.Verbose {
		l.printer.Lines(lines)
	}
	l.planned = append(l.planned, lines...)
	return nil
}

// recipe returns what plx must install and check on each host before the tasks
// start.
func (l *launch) recipe() provision.Recipe {
	spec := protocol.Spec{Command: l.command(envsync.Platform{}), Env: protocol.Raws(l.cfg.environ), SetupTime: l.cfg.SetupTime, Imports: l.cfg.CheckImport,
		PortLow: l.cfg.PortLow, PortHigh: l.cfg.PortHigh}
	return provision.Recipe{Set: l.set, Printer: l.printer, Program: l.artifacts.Program, Venv: l.venv, Files: &l.workdir, Spec: spec}
}

// checkPlacement returns an error if --min-workers exceeds the number of workers, or if
// --task or --rank matches no task.
func checkPlacement(c Config, p placement.Placement) error {
	if least := c.Restarts.MinWorkers; least > p.Workers {
		return exit.Mistake(fmt.Errorf("--min-workers %d, the job has %s", least, plural.Count(p.Workers, "worker")), "--min-workers %d, or less", p.Workers)
	}
	_, err := jobs.ChooseTasks(taskNames(p), c.ShowTasks)
	return err
}

// place decides which task runs on which host and device, and prints notes on
// results that may surprise the user. It fails if other processes use the GPUs
// or other launches have reserved them. So the launch fails before plx builds
// or sends anything.
func (l *launch) place(ctx context.Context) (err error) {
	machines := l.set.Machines()
	if l.placed, err = placement.Place(machines, l.cfg.Options); err != nil {
		return err
	}
	if err := checkPlacement(l.cfg, l.placed); err != nil {
		return err
	}
	for _, h := range l.placed.Hosts {
		l.agents = append(l.agents, l.set.Hosts[h.Machine].Agent())
	}
	var onCPU []string
	for _, h := range l.agents {
		k := h.Resource.Devices.Kind
		if h.Report.GPUTool == gpuprobe.ToolNone && h.Report.GPUError != "" && (k == hostfile.AllGPUs || k == hostfile.Slots) {
			onCPU = append(onCPU, fmt.Sprintf("host %s: its workers run on the CPU: %s", h.Name(), h.Report.GPUError))
		}
	}
	l.printer.Lines(onCPU)
	l.printer.Lines(overruled(l.placed, machines))
	device := trainerDevice(l.cfg.Args, !l.program.Trainer)
	l.planned = planTable(device, machines, l.placed)
	if l.cfg.Verbose {
		l.printer.Lines(l.planned)
	}
	l.printer.Lines(deviceNotes(device, machines, l.placed))
	l.printer.Lines(l.placed.Notes(machines, l.cfg.Options))
	surprising := foreignNotes(l.cfg, l.program, l.placed, machines)
	l.printer.Lines(surprising)
	l.planned = append(l.planned, surprising...)
	notes, err := l.placed.Conflicts(machines)
	l.printer.Lines(notes)
	if err != nil {
		return err
	}
	if l.cfg.WaitGPUs > 0 {
		return nil
	}
	if err := jobs.InUse(l.placed, machines, l.cfg.ShareGPUs, jobs.BusyHint, l.printer); err != nil {
		return err
	}
	return cmp.Or(context.Cause(ctx), jobs.CheckReservations(ctx, l.placed, l.agents, l.ticket, jobs.BusyHint))
}

// foreignNotes returns notes for a program that does not link plx's trainer.
// The notes are about effects of the placement and of flags that the user may
// not expect.
func foreignNotes(c Config, program entrypoint.Program, p placement.Placement, machines []placement.Machine) (notes []string) {
	if program.Trainer || program.AskHosts { // in a dry run AskHosts is still true, because plx asks no host whether the program links the trainer
		return nil
	}
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if p.Servers > 0 {
		note("%s does not link plx's trainer: on servers it gets TF_CONFIG; RANK, WORLD_SIZE, MASTER_ADDR and torch's other variables are set for workers only", c.Program)
	}
	if inner := program.Launcher; inner != "" {
		starts := "each worker runs " + inner
		if program.Where != "" {
			starts = program.Where + " starts " + inner + " in each worker"
		}
		note("note: %s, which starts processes of its own: plx starts one worker per device itself, so leave %s and its options out", starts, inner)
	}
	if c.TLS {
		note("note: --tls does not encrypt what the tasks of %s send each other (NCCL, Gloo, MPI): it covers plx's trainer and plx's own connections", c.Program)
	}
	if c.Fetch != "" && len(c.outputs) == 0 {
		note("note: --fetch %s brings nothing but logs: %s does not link plx's trainer, so it has no checkpoints, and no --output names files that it makes, as --output '*.pt' does", c.Fetch, c.Program)
	}
	for _, m := range machines {
		if c.AutoServers && m.Devices.Kind == hostfile.ServerOnly {
			note("host %s gets no task: %s does not link plx's trainer, so the job has no servers (--ps all)", m.Name, c.Program)
		}
	}
	return notes
}

// overruled returns a note for each host on which an environment variable,
// such as CUDA_VISIBLE_DEVICES, selects other GPUs than the tasks will use.
func overruled(p placement.Placement, machines []placement.Machine) (lines []string) {
	for _, h := range p.Hosts {
		m := machines[h.Machine]
		if h.GPUWorkers() == 0 || m.Report.Visible == "" {
			continue
		}
		var given []string
		for _, t := range h.Tasks {
			for id := range strings.SplitSeq(t.VisibleIDs, ",") {
				if id != "" && !slices.Contains(given, id) {
					given = append(given, id)
				}
			}
		}
		if want := strings.Split(m.Report.Visible, ","); !sameSet(given, want) {
			lines = append(lines, fmt.Sprintf("note: host %s: its environment sets %s=%s, which does not count here: its tasks get %s; to keep the host's choice, write %s: %s",
				m.Name, m.Report.Vendor.Variable(), m.Report.Visible, strings.Join(given, ","), m.Name, m.Report.Visible))
		}
	}
	return lines
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// reserveGPUs acts only if --wait-gpus is given. It waits until no other process
// uses the job's GPUs, and then reserves them, so that no other launch of plx
// gets them.
func (l *launch) reserveGPUs(ctx context.Context) error {
	if l.cfg.WaitGPUs == 0 || !l.placed.Claims() {
		return nil
	}
	busy := func(ctx context.Context) (string, error) {
		if err := hosts.Each(ctx, l.agents, func(_ int, a *hosts.AgentHost) error { return a.FindGPUs(ctx, nil) }); err != nil {
			return "", err
		}
		return jobs.BusyText(l.placed.Busy(l.set.Machines())), nil
	}
	var err error
	l.reserved, err = reservation.Wait(ctx, reservation.Request{Hosts: jobs.Reservations(l.placed, l.agents), Ticket: l.ticket, Limit: l.cfg.WaitGPUs, Printer: l.printer, Busy: busy})
	if err != nil && ctx.Err() == nil {
		err = exit.WithHint(err, jobs.BusyHint)
	}
	return err
}

// name creates the job's id and secret. It fails if a running job uses the
// same name for its checkpoints.
func (l *launch) name(ctx context.Context) error {
	if err := l.checkName(ctx); err != nil {
		return err
	}
	l.created = time.Now().UTC()
	l.job = jobs.NewID(l.cfg.Name, entrypoint.Title(l.cfg.Program, l.cfg.Args), l.created)
	if l.cfg.Submission != "" {
		l.job = submission.RunID(l.cfg.Submission, l.cfg.Slurm.Restarts)
	}
	l.checkpoints = cmp.Or(l.checkpoints, l.job)
	l.secret = make([]byte, cluster.SecretSize)
	rand.Read(l.secret) // the error is ignored: crypto/rand.Read never returns one
	for _, a := range l.agents {
		a.Job, a.Folder = l.job, a.JobFolder()
	}
	return nil
}

// nameHosts handles the error that plx has no binary for a platform: it adds
// the names of the hosts with that platform. It returns other errors
// unchanged.
func nameHosts(err error, agents []*hosts.AgentHost) error {
	var of *artifacts.PlatformError
	if !errors.As(err, &of) {
		return err
	}
	var names []string
	for _, h := range agents {
		if h.Facts.Platform == of.Platform {
			names = append(names, h.Name())
		}
	}
	return fmt.Errorf("%s: %w", hosts.Listed(names), err)
}

// checkpointName returns the name under which hosts store the job's
// checkpoints. With --resume, it is that of the resumed job. Without --resume,
// it is the job's --name. If the job has no name either, checkpointName
// returns "", and the job's id will be the name. checkpointName also prints a
// note if an earlier job used the name.
func (l *launch) checkpointName(ctx context.Context) (string, error) {
	if l.cfg.Resume == "" {
		return l.cfg.Name, l.reportUse()
	}
	r, err := jobs.Query{Job: l.cfg.Resume, Reach: l.cfg.Reach}.Find(ctx, false, l.printer)
	if err != nil {
		return "", fmt.Errorf("--resume: %w", err)
	}
	name := r.CheckpointName()
	if !jobName().MatchString(name) {
		return "", fmt.Errorf("--resume: job %s keeps its checkpoints under %q, which is not a valid name", r.Job, name)
	}
	l.printer.Printf("resume job %s: this job resumes from the checkpoints that its hosts have under the name %s", r.Job, name)
	return name, nil
}

// reportUse prints a note about the newest earlier job that had the same
// --name as this job.
func (l *launch) reportUse() error {
	if l.cfg.Name == "" {
		return nil
	}
	rs, err := jobs.Records()
	for _, r := range slices.Backward(rs) {
		if r.CheckpointName() == l.cfg.Name {
			l.printer.Printf("job %s had the name %s too: %s", r.Job, l.cfg.Name, l.reuse(r.Verdict))
			break
		}
	}
	return err
}

// reuse returns a text about an earlier job of the same name: whether this job
// resumes from that job's checkpoints. before is the earlier job's verdict, or
// nil if it is unknown.
func (l *launch) reuse(before *protocol.Verdict) string {
	saved := before != nil && before.Saved != nil && before.Saved.Cause == ""
	switch promise := l.saving(); {
	case promise == sureSaving:
		return "this job resumes from the checkpoints that hosts have under it"
	case promise == maybeSaving || saved:
		return "if this job keeps checkpoints, it resumes from those that hosts have under it"
	}
	return "it means this job from now on"
}

// checkName fails if a running job on one of the hosts uses the same name for
// its checkpoints. Agents check the name again when they start, but at that
// time other agents of the job may already run.
func (l *launch) checkName(ctx context.Context) error {
	if l.checkpoints == "" {
		return nil // the job's id will be the name, and ids are unique
	}
	tally := l.printer.NewHostProgress("looking for jobs of the same name", len(l.agents))
	return hosts.Each(ctx, l.agents, func(_ int, a *hosts.AgentHost) error {
		tally.Begin(a.Name())
		defer tally.End(a.Name())
		_, err := hosts.Call[struct{}](ctx, a, hosts.AnswerTime, protocol.DoCheckName, protocol.CheckName{Name: l.checkpoints})
		if failure := (*protocol.Failure)(nil); err != nil && !(errors.As(err, &failure) && failure.Code == protocol.CodeTaken) {
			err = fmt.Errorf("look for jobs: %w", err)
		}
		return err
	})
}
