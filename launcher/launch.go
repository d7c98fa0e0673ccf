package launcher

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
	"github.com/plx-run/plx/trainer/cluster"
)

// launch is one run of Launch.
type launch struct {
	cfg     Config
	voice   *voice
	signals *signals
	job     string

	checkpoints string // the name of the job's checkpoints

	fleet    *fleet
	place    placement
	cargo    *cargo
	starting chan struct{} // holds the agents that are being started
	stations []*station    // one per placed host, in the order of place.hosts
	created  time.Time
	secret   []byte
	dir      *logs.Dir // nil without --log-dir
	logs     logStreams
	lost     []*atomic.Bool      // by station: it has no agent
	joined   []protocol.Joining  // stations behind those that were placed
	laid     []protocol.HostPlan // where tasks run now; nil in the first generation
}

// Launch runs a job from its resource file to its verdict and returns plx's
// exit status. Detached, it returns once every task has started, and writes
// the job's id to stdout. signals delivers what the user sends: the first
// ends the job with its grace, the second at once.
func Launch(ctx context.Context, cfg Config, sig <-chan os.Signal) (code int, err error) {
	if err := cfg.validate(); err != nil {
		return Code(err), err
	}
	l := &launch{cfg: cfg, voice: newVoice(cfg.Terminal), starting: make(chan struct{}, fanOut)}
	if cfg.DryRun {
		err := l.dryRun()
		return Code(err), err
	}
	ctx, l.signals = watch(ctx, sig, cfg.ending(), l.voice)
	defer l.signals.close()
	defer func() {
		if err := l.close(); err != nil {
			l.voice.say("close: %v", err)
		}
	}()
	if err := l.openDirs(); err != nil {
		return Code(err), err
	}
	if err := l.prepare(ctx); err != nil {
		return Code(err), err
	}
	return l.run(ctx)
}

// openDirs makes the folders of --log-dir and --fetch, before any host is
// touched.
func (l *launch) openDirs() (err error) {
	if l.cfg.LogDir != "" {
		if l.dir, err = logs.NewDir(l.cfg.LogDir); err != nil {
			return Mistake(fmt.Errorf("--log-dir: %w", err), "")
		}
	}
	if l.cfg.Fetch != "" {
		if err := writable(l.cfg.Fetch); err != nil {
			return Mistake(fmt.Errorf("--fetch: %w", err), "")
		}
	}
	return nil
}

// writable makes a folder and makes sure that it takes files: later may be days
// later.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	trial, err := os.CreateTemp(dir, ".plx-*")
	if err != nil {
		return err
	}
	return errors.Join(trial.Close(), os.Remove(trial.Name()))
}

// prepare does all that comes before an agent is started. Interrupted, it
// leaves nothing on a host but blobs.
func (l *launch) prepare(ctx context.Context) error {
	if err := l.resume(ctx); err != nil {
		return err
	}
	l.sayWhere()
	fleet, err := openFleet(ctx, l.cfg.Reach, l.voice)
	if l.fleet = fleet; err != nil {
		return err
	}
	if err := fleet.survey(ctx); err != nil {
		return err
	}
	if l.place, err = place(fleet.machines(), l.cfg.placing()); err != nil {
		return err
	}
	l.sayIdle()
	l.voice.sayAll(l.place.inUse(fleet.machines()))
	if err := l.cfg.Restarts.fit(l.place); err != nil {
		return err
	}
	if err := fleet.checkTwins(l.place, l.voice); err != nil {
		return err
	}
	if l.cargo, err = pack(ctx, l.cfg, l.platforms(), l.voice); err != nil {
		return err
	}
	if err := l.sync(ctx); err != nil {
		return err
	}
	if err := l.checkName(ctx); err != nil {
		return err
	}
	return l.name()
}

func (l *launch) sayWhere() {
	if len(l.cfg.Hosts) == 0 {
		l.voice.say("no --hosts given: an embedded cluster of %s with %s each on this machine (--local HOSTSxWORKERS)",
			count(l.cfg.LocalHosts, "host"), count(l.cfg.LocalWorkers, "worker"))
	}
}

// sayIdle tells of GPUs that no worker gets because no driver serves them.
func (l *launch) sayIdle() {
	for _, r := range l.used() {
		if k := r.host.Devices.Kind; r.report.GPUTool == gpuprobe.ToolNone && r.report.GPUError != "" && (k == hostfile.AllGPUs || k == hostfile.Slots) {
			l.voice.say("host %s: its workers run on the CPU: %s", r.host.Name, r.report.GPUError)
		}
	}
}

func (c Config) placing() placing {
	return placing{workers: c.Workers, perHost: c.WorkersPerHost, servers: c.Servers, noServers: c.NoServers, visibleHost: c.VisibleHost}
}

// used are the remotes that have tasks, in the order of the placement.
func (l *launch) used() []*remote {
	var rs []*remote
	for _, h := range l.place.hosts {
		rs = append(rs, l.fleet.remotes[h.machine])
	}
	return rs
}

func (r *remote) platform() platform { return platform{r.facts.OS, r.facts.Arch} }

func (l *launch) platforms() []platform {
	var ps []platform
	seen := map[platform]bool{}
	for _, r := range l.used() {
		if p := r.platform(); !seen[p] {
			seen[p] = true
			ps = append(ps, p)
		}
	}
	return ps
}

// sync sends every platform's hosts what they need.
func (l *launch) sync(ctx context.Context) error {
	var errs []error
	for _, p := range l.platforms() {
		var targets []envsync.Target
		for _, r := range l.used() {
			if r.platform() == p {
				targets = append(targets, envsync.Target{Name: r.host.Name, Host: r, FileSystem: r.facts.FileSystem})
			}
		}
		m := newMeter(l.cfg.Terminal, l.voice, "sending")
		err := envsync.Sync(ctx, targets, l.cargo.blobs(p), m.moved)
		m.close(err)
		errs = append(errs, err)
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return errors.Join(errs...)
}

// name gives the job its id and its stations.
func (l *launch) name() error {
	base := l.cfg.Name
	if base == "" {
		base = strings.Trim(unsafeInFolder.ReplaceAllString(filepath.Base(l.cfg.Program), "-"), "-.")
	}
	if base == "" {
		base = "job"
	}
	l.created = time.Now().UTC()
	l.job = fmt.Sprintf("%.40s-%s-%.4s", base, l.created.Format("20060102-150405"), strings.ToLower(rand.Text()))
	if l.checkpoints == "" {
		l.checkpoints = l.job
	}
	l.secret = make([]byte, cluster.SecretSize)
	if _, err := rand.Read(l.secret); err != nil {
		return fmt.Errorf("make the job's secret: %w", err)
	}
	for _, r := range l.used() {
		l.lost = append(l.lost, new(atomic.Bool))
		l.stations = append(l.stations, &station{remote: r, job: l.job, folder: r.folder(),
			binary: envsync.BlobPath(l.cargo.agents[r.platform()].Sum)})
	}
	return saveRecord(l.record())
}

// spec is what the agent of host i is told.
func (l *launch) spec(i int, s *station, tasks []protocol.TaskSpec) (protocol.Spec, error) {
	addr, err := s.dataAddr()
	if err != nil {
		return protocol.Spec{}, err
	}
	spec := protocol.Spec{
		Job: l.job, Name: l.cfg.Name, Checkpoints: l.checkpoints, Host: s.host.Name, HostIndex: i, Folder: s.folder,
		Command: l.command(s.platform()), Env: raws(l.cfg.environ), LogLevel: l.cfg.LogLevel, Secret: l.secret,
		Tasks: tasks, WorldSize: l.place.workers, Bind: !l.cfg.NoBind,
		DataAddr: addr, PortLow: l.cfg.PortLow, PortHigh: l.cfg.PortHigh,
		Lease: l.cfg.Lease, Grace: l.cfg.Grace, Freeze: l.cfg.Freeze, Detached: l.cfg.Detach, SaveTime: l.cfg.SaveTime,
	}
	for _, b := range l.cargo.files {
		spec.Archives = append(spec.Archives, b.Sum)
	}
	return spec, nil
}

// tasks are those of the i-th placed host in the first generation.
func (l *launch) tasks(i int) []protocol.TaskSpec {
	return l.place.hosts[i].specs()
}

func (h placed) specs() (specs []protocol.TaskSpec) {
	for _, t := range h.tasks {
		specs = append(specs, protocol.TaskSpec{Task: t.task, Devices: t.visible, LocalRank: t.localRank})
	}
	return specs
}

func (l *launch) command(p platform) protocol.Command {
	c := protocol.Command{Args: raws(l.cfg.Args), Setup: protocol.Raw(l.cfg.Setup), Chdir: protocol.Raw(l.cfg.Chdir), Path: protocol.Raw(l.cfg.Path)}
	if program, shipped := l.cargo.programs[p]; shipped {
		c.Blob, c.Base = program.Sum, protocol.Raw(program.Name)
	} else {
		c.Name = protocol.Raw(l.cfg.Program)
	}
	return c
}

func raws(texts []string) []protocol.Raw {
	var rs []protocol.Raw
	for _, t := range texts {
		rs = append(rs, protocol.Raw(t))
	}
	return rs
}

func (l *launch) plan() protocol.Plan {
	p := protocol.Plan{Job: l.job, Grace: l.cfg.Grace, Settle: settle, StartTimeout: l.cfg.StartTimeout, MaxTime: l.cfg.MaxTime,
		Lease: l.cfg.Lease, Restarts: l.cfg.Restarts.plan(!l.cfg.Detach)}
	for i, s := range l.stations {
		p.Hosts = append(p.Hosts, protocol.HostPlan{Host: s.host.Name, Tasks: l.tasks(i), Seat: l.cfg.Detach && i == l.chief(),
			Folder: s.folder, Line: s.host.String(), Binary: s.binary})
	}
	return p
}

func (l *launch) close() error {
	var errs []error
	if l.fleet != nil {
		errs = append(errs, l.fleet.Close())
	}
	if l.cargo != nil {
		errs = append(errs, l.cargo.Close())
	}
	return errors.Join(errs...)
}
