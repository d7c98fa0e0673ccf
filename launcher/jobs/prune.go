package jobs

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/submission"
)

// PruneConfig selects what Prune removes.
type PruneConfig struct {
	Query
	Older time.Duration // minimum age of what is removed: newer files are kept
	// If Discard is true, Prune also removes output files that the user has
	// not fetched, and if All is true also checkpoints. If Discard is false,
	// Prune keeps the jobs that have such files.
	Discard bool
	DryRun  bool // only print what Prune would remove
	// All removes the whole ~/.plx from each host, unless a process uses it.
	// Older must be 0.
	All bool

	answerTime time.Duration // time limit for connecting to a host and asking it; 0 means askTime
	connect    connector     // replaces hosts.Open in tests; nil means hosts.Open
}

// Prune removes the files of jobs that ended longer ago than cfg.Older. It
// removes the jobs' records on this machine, and the jobs' files on hosts. It
// also removes unused blobs (executables and other cached files). The hosts
// are those of the jobs and of cfg.Reach. With cfg.DryRun, Prune prints a
// table of these files and removes nothing.
//
// Prune removes all files of a job or none, so that a partly removed job
// cannot exist. Therefore it first asks all hosts. It keeps a job if one of
// its hosts has output files that have not been fetched, or cannot say whether
// it has.
//
// Prune works on several hosts at the same time, with a time limit for each.
func Prune(ctx context.Context, cfg PruneConfig) error {
	return prune(ctx, cfg, open)
}

// opener is the signature of function open; tests replace it.
type opener func(ctx context.Context, r Record, printer *console.Printer, like hosts.Reach) (*Job, error)

// connector is the signature of hosts.Open; tests replace it.
type connector func(ctx context.Context, reach hosts.Reach, printer *console.Printer) (*hosts.Set, error)

func prune(ctx context.Context, cfg PruneConfig, open opener) error {
	if cfg.connect == nil {
		cfg.connect = hosts.Open
	}
	p := &pruner{open: open, answerTime: cmp.Or(cfg.answerTime, askTime), printer: cfg.printer(), cfg: cfg, binaries: map[string][]string{}, known: map[string]*pruneHost{}, of: map[string][]*pruneHost{},
		inUse: map[string]bool{}, unchecked: map[string]bool{}, listed: map[string]bool{}, kept: map[string]*kept{}, table: console.NewTable("HOST", "WHAT", "SIZE")}
	return p.run(ctx)
}

func (p *pruner) run(ctx context.Context) error {
	if !p.cfg.DryRun {
		RemoveDeadLaunches()
	}
	rs, err := Records()
	if err != nil {
		return err
	}
	defer p.close()
	for _, r := range slices.Backward(rs) {
		for _, h := range r.Hosts {
			if !slices.Contains(p.binaries[h.Line], h.Binary) {
				p.binaries[h.Line] = append(p.binaries[h.Line], h.Binary)
			}
		}
	}
	old := p.old(ctx, rs)
	errs := []error{p.find(ctx, old), p.findMore(ctx), p.survey(ctx)}
	for _, set := range p.sets {
		// Report how much of plx was sent to hosts. Pass nil, because the
		// errors of hosts have been reported already.
		set.Placed(nil)
	}
	for _, r := range old {
		if p.failed(r.Job) {
			p.unchecked[r.Job] = true
		}
	}
	if p.cfg.All {
		errs = append(errs, p.removeAll(ctx, old))
	} else {
		errs = append(errs, p.removeOld(ctx), p.forget(old), p.submissions(ctx))
	}
	p.reportKept()
	switch {
	case !p.cfg.DryRun:
	case p.table.Rows() > 0:
		errs = append(errs, p.table.Write(p.cfg.Terminal))
		p.printer.Printf("nothing was removed: %s without --dry-run removes %s", p.command(), console.Size(p.bytes))
	case errors.Join(errs...) == nil:
		p.printer.Printf("nothing to remove")
	}
	return errors.Join(errs...)
}

// command returns the command line of this run, to print in hints.
func (p *pruner) command() string {
	if p.cfg.All {
		return "plx prune --all"
	}
	return "plx prune"
}

// old returns the records of jobs that ended longer ago than the minimum age.
// If a record does not say whether its job has ended, old asks the host of the
// job's chief (worker:0). If p.cfg.All is true, old returns every record,
// because the hosts will report later whether a job runs.
func (p *pruner) old(ctx context.Context, rs []Record) (old []Record) {
	if p.cfg.All {
		return rs
	}
	runs, of := make([]bool, len(rs)), map[string][]int{}
	for i, r := range rs {
		if runs[i] = time.Since(r.Created) < p.cfg.Older; !runs[i] {
			chief := r.Via + " " + r.Hosts[r.Chief].Line
			of[chief] = append(of[chief], i)
		}
	}
	var g errgroup.Group
	g.SetLimit(hosts.FanOut)
	for _, mine := range of {
		g.Go(func() error {
			var down error // error of the host's first failed request; later requests would fail too
			for _, i := range mine {
				ask := rs[i].dialling(p.printer)
				runs[i] = rs[i].runs(ctx, p.printer, func(ctx context.Context) (state protocol.State, err error) {
					if down != nil {
						return state, down
					}
					if state, err = ask(ctx); err != nil && !errors.Is(err, hosts.ErrNoState) {
						down = err
					}
					return state, err
				})
			}
			return nil
		})
	}
	g.Wait() // the error is ignored: the functions return nil
	for i, r := range rs {
		if runs[i] || time.Since(r.last()) < p.cfg.Older {
			p.inUse[r.Job] = true
		} else {
			old = append(old, r)
		}
	}
	return old
}

// forget removes the records of jobs whose files on all hosts have been
// removed.
func (p *pruner) forget(old []Record) error {
	var errs []error
	for _, r := range old {
		switch {
		case p.stays(r.Job) || p.failed(r.Job):
		case p.cfg.DryRun:
			p.forgotten = append(p.forgotten, r.Job)
			p.table.Row(here, "record of job "+r.Job, "")
		default:
			errs = append(errs, r.Forget())
		}
	}
	return errors.Join(errs...)
}

// last returns when the job ended. If that is not known, it returns when the
// job was launched.
func (r *Record) last() time.Time {
	if r.Verdict == nil || r.Verdict.Ended.IsZero() {
		return r.Created
	}
	return r.Verdict.Ended
}

// submissions removes the files of Slurm submissions that have ended without
// launching a job.
func (p *pruner) submissions(ctx context.Context) error {
	all, err := submission.All()
	if err != nil {
		return err
	}
	var errs []error
	for i := range all {
		s := submitted{&all[i]}
		if _, launched := s.run(0); launched || time.Since(s.Created) < p.cfg.Older {
			continue
		}
		state, err := s.Ask(ctx)
		switch {
		case err != nil || !state.Over():
		case p.cfg.DryRun:
			p.forgotten = append(p.forgotten, s.Job)
			p.table.Row(here, "record of job "+s.Job, "")
		default:
			err = s.Remove()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// pruner holds the state of one call of Prune.
type pruner struct {
	open       opener
	printer    *console.Printer
	cfg        PruneConfig
	binaries   map[string][]string // paths of the agent executables on a host, newest first; the key is the host's line. The newest agent knows the most kinds of output files.
	sets       []*hosts.Set
	answerTime time.Duration           // time limit for connecting to a host and asking it
	hosts      []*pruneHost            // all hosts, each once
	known      map[string]*pruneHost   // all hosts; the key is the --via command (empty for SSH) and the host's line, as note joins them
	of         map[string][]*pruneHost // hosts of each job that may be removed, by the job's id
	inUse      map[string]bool         // ids of jobs that must stay, because they are running or below the minimum age
	unchecked  map[string]bool         // ids of jobs with a host that cannot say whether it has unfetched files
	listed     map[string]bool         // rows already in the table, by file system and path, because hosts with a shared home directory report the same files
	kept       map[string]*kept        // jobs with output files that have not been fetched, by the job's id
	table      *console.Table          // output of --dry-run: what would be removed
	bytes      int64                   // total size of the table's rows
	forgotten  []string                // ids of jobs whose records --dry-run would remove
}

// pruneHost is a host on which Prune removes files, with the results of its
// requests to the host.
type pruneHost struct {
	*hosts.AgentHost
	binaries []string
	plan     []protocol.Pruned // what the host could remove, regardless of unfetched files on other hosts
	done     []protocol.Pruned // what the host removed, or would remove with --dry-run
	failed   bool              // a request to the host failed, and the error has been reported
	busy     string            // only with All: the process that uses plx on the host and so prevents the removal; empty if none
	here     bool              // only with All: true if the host is this machine, whose records are removed last
}

func (p *pruner) close() {
	for _, set := range p.sets {
		set.Close() // the error is ignored: every reply has arrived
	}
}

// stays reports whether Prune keeps the job's folders on all hosts.
func (p *pruner) stays(job string) bool {
	return p.inUse[job] || p.kept[job] != nil || p.unchecked[job] && !p.cfg.Discard
}

// failed reports whether Prune failed on at least one host of the job.
func (p *pruner) failed(job string) bool {
	return p.unchecked[job] || slices.ContainsFunc(p.of[job], func(h *pruneHost) bool { return h.failed })
}
