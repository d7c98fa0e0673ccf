package launcher

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/artifacts"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/jobs"
	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// prepare does everything that comes before an agent is started. If it is interrupted it
// leaves nothing on a host but files that the next launch can use.
func (l *launch) prepare(ctx context.Context) (err error) {
	if l.foreign, err = decideByProgram(ctx, &l.cfg); err != nil {
		return err
	}
	if l.checkpoints, err = l.checkpointName(ctx); err != nil {
		return err
	}
	if len(l.cfg.Hosts) == 0 {
		l.printer.Printf("no --hosts given: an embedded cluster of %s with %s each on this machine (--local HOSTSxWORKERS)",
			console.Count(l.cfg.LocalHosts, "host"), console.Count(l.cfg.LocalWorkers, "worker"))
	}
	if l.set, err = hosts.Open(ctx, l.cfg.Reach, l.printer); err != nil {
		return err
	}
	if err := l.set.Survey(ctx); err != nil {
		return err
	}
	if err := l.place(); err != nil {
		return err
	}
	if l.artifacts, err = artifacts.Pack(ctx, artifacts.Source{Program: l.cfg.Program, Sent: l.workdir.program != "" || l.environment.program != "", Copy: l.cfg.Copy}, l.platforms(), l.printer); err != nil {
		return err
	}
	if err := l.findAddresses(ctx); err != nil {
		return err
	}
	if err := l.send(ctx); err != nil {
		return err
	}
	if err := l.environment.installAll(ctx, l.receivers(), l.printer); err != nil {
		return err
	}
	if err := l.checkName(ctx); err != nil {
		return err
	}
	l.name()
	if err := l.furnish(ctx); err != nil {
		return err
	}
	return l.record().Save()
}

// furnish makes the working directories, has --setup run in them, and imports the modules
// of --check-import there. After an error no host has a new directory.
func (l *launch) furnish(ctx context.Context) error {
	if err := l.sendWorkdir(ctx); err != nil {
		return err
	}
	err := l.setUp(ctx, l.agents)
	importing := l.agents
	if l.workdir.folder == nil {
		importing = l.receivers()
	}
	if err == nil {
		err = l.imports().run(ctx, importing, l.placed.Hosts)
	}
	if err != nil && l.workdir.folder != nil {
		hosts.Discard(ctx, l.agents)
	}
	return causeOr(ctx, err)
}

// setUp has hosts run --setup, unless each task does so.
func (l *launch) setUp(ctx context.Context, on []*hosts.AgentHost) error {
	return hosts.SetUp(ctx, on, protocol.Spec{Command: l.command(envsync.Platform{}), Env: raws(l.cfg.environ), SetupTime: l.cfg.SetupTime}, l.printer)
}

// place decides where the tasks run, and reports what the user may not expect.
func (l *launch) place() (err error) {
	machines := l.set.Machines()
	if l.placed, err = placement.Place(machines, l.cfg.Options); err != nil {
		return err
	}
	var onCPU []string
	for _, h := range l.used() {
		k := h.Resource.Devices.Kind
		if h.Report.GPUTool == gpuprobe.ToolNone && h.Report.GPUError != "" && (k == hostfile.AllGPUs || k == hostfile.Slots) {
			onCPU = append(onCPU, fmt.Sprintf("host %s: its workers run on the CPU: %s", h.Name(), h.Report.GPUError))
		}
	}
	l.printer.Lines(onCPU)
	if least := l.cfg.Restarts.MinWorkers; least > l.placed.Workers {
		return exit.Mistake(fmt.Errorf("--min-workers %d, the job has %s", least, console.Count(l.placed.Workers, "worker")), "")
	}
	l.planned = planTable(machines, l.placed)
	if l.cfg.Verbose {
		l.printer.Lines(l.planned)
	}
	if l.foreign {
		surprising := foreignNotes(l.cfg, l.placed, machines)
		l.printer.Lines(surprising)
		l.planned = append(l.planned, surprising...)
	}
	if _, err := jobs.ChooseTasks(l.tasks(), l.cfg.Show); err != nil {
		return err
	}
	notes, err := l.placed.Conflicts(machines)
	l.printer.Lines(notes)
	return err
}

// used returns the hosts that have tasks, in the order of the placement.
func (l *launch) used() (used []*hosts.Host) {
	for _, h := range l.placed.Hosts {
		used = append(used, l.set.Hosts[h.Machine])
	}
	return used
}

// receivers returns the hosts that have tasks, with the agent that was sent to them.
func (l *launch) receivers() (all []*hosts.AgentHost) {
	for _, h := range l.used() {
		all = append(all, &hosts.AgentHost{Host: h, Binary: l.artifacts.AgentPath(h.Facts.Platform)})
	}
	return all
}

// imports returns the check of --check-import.
func (l *launch) imports() importCheck {
	c := l.command(envsync.Platform{})
	c.Blob, c.Base, c.Name, c.Args = "", "", "python3", raws(append([]string{"-c", importScript}, l.cfg.CheckImport...))
	if c.SetupDone {
		c.Setup = ""
	}
	return importCheck{cfg: l.cfg, printer: l.printer, command: c}
}

// platforms returns the platforms of the hosts that have tasks, each once.
func (l *launch) platforms() (all []envsync.Platform) {
	for _, h := range l.used() {
		if !slices.Contains(all, h.Facts.Platform) {
			all = append(all, h.Facts.Platform)
		}
	}
	return all
}

// send brings the hosts of every platform what they need.
func (l *launch) send(ctx context.Context) error {
	var errs error
	bar := l.printer.NewTransfer("sending")
	for _, p := range l.platforms() {
		to := slices.DeleteFunc(l.used(), func(h *hosts.Host) bool { return h.Facts.Platform != p })
		errs = errors.Join(errs, hosts.SendAll(ctx, to, l.artifacts.Blobs(p), bar))
	}
	bar.Sent(errs)
	return cmp.Or(context.Cause(ctx), errs)
}

// findAddresses finds the data addresses on the interfaces that the user chose, if any.
// The agents list the interfaces, so they are sent before everything else.
func (l *launch) findAddresses(ctx context.Context) error {
	used := l.used()
	if !slices.ContainsFunc(used, func(h *hosts.Host) bool { return h.Resource.Interface != "" }) {
		l.planData(used)
		return nil
	}
	var errs error
	bar := l.printer.NewTransfer("sending")
	for _, p := range l.platforms() {
		to := slices.DeleteFunc(slices.Clone(used), func(h *hosts.Host) bool { return h.Facts.Platform != p })
		errs = errors.Join(errs, hosts.SendAll(ctx, to, l.artifacts.Agent(p), bar))
	}
	bar.Sent(errs)
	if err := cmp.Or(context.Cause(ctx), errs); err != nil {
		return err
	}
	var all []*hosts.AgentHost
	for _, h := range used {
		all = append(all, &hosts.AgentHost{Host: h, Binary: l.artifacts.AgentPath(h.Facts.Platform)})
	}
	if err := hosts.FindAddresses(ctx, all, ""); err != nil {
		return err
	}
	l.planData(used)
	return nil
}

// planData adds to the plan over which addresses data goes.
func (l *launch) planData(used []*hosts.Host) {
	table := dataTable(used)
	if l.cfg.Verbose {
		l.printer.Lines(table)
	}
	l.planned = append(l.planned, table...)
}

var unsafeInName = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// name gives the job its id and its secret.
func (l *launch) name() {
	program := unsafeInName.ReplaceAllString(filepath.Base(l.cfg.Program), "-")
	base := cmp.Or(l.cfg.Name, strings.Trim(program, "-."), "job")
	l.created = time.Now().UTC()
	l.job = fmt.Sprintf("%.40s-%s-%.4s", base, l.created.Format("20060102-150405"), strings.ToLower(rand.Text()))
	l.checkpoints = cmp.Or(l.checkpoints, l.job)
	l.secret = make([]byte, cluster.SecretSize)
	rand.Read(l.secret) // never fails
	for _, h := range l.used() {
		l.agents = append(l.agents, &hosts.AgentHost{Host: h, Job: l.job, Folder: h.JobFolder(), Binary: l.artifacts.AgentPath(h.Facts.Platform)})
	}
}

// checkpointName returns the name of the job's checkpoints: that of the job to resume,
// else the user's name for this one, else "" for the job's id. It tells the user if
// hosts may have checkpoints of that name already.
func (l *launch) checkpointName(ctx context.Context) (string, error) {
	if l.cfg.Resume == "" {
		return l.cfg.Name, l.reportUse()
	}
	r, err := jobs.Query{Job: l.cfg.Resume, Reach: l.cfg.Reach}.Find(ctx, false, l.printer)
	if err != nil {
		return "", fmt.Errorf("--resume: %w", err)
	}
	name := r.CheckpointName()
	if !jobName.MatchString(name) {
		return "", fmt.Errorf("--resume: job %s keeps its checkpoints under %q, which is no name", r.Job, name)
	}
	l.printer.Printf("resume job %s: this job resumes from the checkpoints that its hosts have under the name %s", r.Job, name)
	return name, nil
}

// reportUse reports the newest job that used the user's name for this one before.
func (l *launch) reportUse() error {
	if l.cfg.Name == "" {
		return nil
	}
	rs, err := jobs.Records()
	for _, r := range slices.Backward(rs) {
		if r.CheckpointName() == l.cfg.Name {
			l.printer.Printf("job %s had the name %s too: this job resumes from the checkpoints that hosts have under it", r.Job, l.cfg.Name)
			break
		}
	}
	return err
}

// nameTaken is the exit status of "agent claim" if a running job has the name.
const nameTaken = 5

// checkName asks every host whether a running job has checkpoints of the same name.
// Agents check it too when they start, but then the job has begun.
func (l *launch) checkName(ctx context.Context) error {
	if l.checkpoints == "" {
		return nil // to be the job's id
	}
	return hosts.Each(ctx, l.used(), func(_ int, h *hosts.Host) error {
		a := hosts.AgentHost{Host: h, Binary: l.artifacts.AgentPath(h.Facts.Platform)}
		err := a.Call(ctx, "claim "+l.checkpoints, nil, nil)
		var said *hosts.ScriptError
		if hosts.ExitStatus(err) == nameTaken && errors.As(err, &said) {
			return errors.New(strings.TrimPrefix(said.Stderr, "plx agent: "))
		}
		if err != nil {
			return fmt.Errorf("look for jobs: %w", err)
		}
		return nil
	})
}
