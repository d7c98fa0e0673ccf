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

// PruneConfig tells what to remove.
type PruneConfig struct {
	Query
	Older time.Duration // only what was last changed longer ago than this is removed
	// Discard also removes files that jobs made and nobody has fetched, and with All checkpoints.
	// Otherwise their jobs are kept.
	Discard bool
	DryRun  bool // only print what would be removed
	// All removes all of plx, unless something uses it. Then Older is 0.
	All bool

	answerTime time.Duration // bounds what a host is asked, with the connection to it; 0: askTime
	connect    connector     // nil: hosts.Open
}

// Prune removes what jobs left that have ended and are older than the given age: their
// records here, and their files and unused blobs on their hosts and those of cfg.Reach. With DryRun it prints a
// table of these on standard output and removes nothing.
//
// A job goes as a whole or not at all, so that what is left of it can be fetched: Prune asks
// all hosts first. It keeps jobs of which one host has files that nobody has fetched, or
// cannot tell.
//
// Hosts are asked at the same time, and so are they pruned, each in bounded time.
func Prune(ctx context.Context, cfg PruneConfig) error {
	return prune(ctx, cfg, open)
}

// opener opens a job with its hosts.
type opener func(ctx context.Context, r Record, printer *console.Printer, like hosts.Reach) (*Job, error)

// connector opens hosts.
type connector func(ctx context.Context, reach hosts.Reach, printer *console.Printer) (*hosts.Set, error)

func prune(ctx context.Context, cfg PruneConfig, open opener) error {
	if cfg.connect == nil {
		cfg.connect = hosts.Open
	}
	p := &pruner{open: open, answerTime: cmp.Or(cfg.answerTime, askTime), printer: cfg.printer(), cfg: cfg, binaries: map[string][]string{}, known: map[string]*pruning{}, of: map[string][]*pruning{},
		inUse: map[string]bool{}, unchecked: map[string]bool{}, listed: map[string]bool{}, kept: map[string]*kept{}, table: console.NewTable("HOST", "WHAT", "SIZE")}
	return p.run(ctx)
}

func (p *pruner) run(ctx context.Context) error {
	if !p.cfg.DryRun {
		Tidy()
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
		set.Placed(nil) // what failed has its error
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

// command is the command line, for hints.
func (p *pruner) command() string {
	if p.cfg.All {
		return "plx prune --all"
	}
	return "plx prune"
}

// old returns the records of jobs that have ended and are old enough. It asks the chiefs' hosts of the
// others at the same time. With All every job is: its hosts tell whether it runs.
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
			var down error // why the host does not answer: it is asked once
			for _, i := range mine {
				ask := rs[i].dialling(p.printer)
				runs[i] = rs[i].runs(ctx, p.printer, func(ctx context.Context) (state protocol.State, err error) {
					if down != nil {
						return state, down
					}
					if state, err = ask(ctx); err != nil && !errors.Is(err, hosts.ErrForgotten) {
						down = err
					}
					return state, err
				})
			}
			return nil
		})
	}
	g.Wait() // the functions return nil
	for i, r := range rs {
		if runs[i] || time.Since(r.last()) < p.cfg.Older {
			p.inUse[r.Job] = true
		} else {
			old = append(old, r)
		}
	}
	return old
}

// forget removes the records of jobs of which nothing is left.
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

// last returns when the job ended, or if nobody knows that, when it was launched.
func (r *Record) last() time.Time {
	if r.Verdict == nil || r.Verdict.Ended.IsZero() {
		return r.Created
	}
	return r.Verdict.Ended
}

// submissions removes those that have ended without a job.
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
			err = s.Unmake()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// pruner is one run of Prune.
type pruner struct {
	open       opener
	printer    *console.Printer
	cfg        PruneConfig
	binaries   map[string][]string // of the agents of each host, by the host's line, the newest first: it knows most of outputs
	sets       []*hosts.Set
	answerTime time.Duration         // bounds what a host is asked, and the connection to it
	hosts      []*pruning            // each once
	known      map[string]*pruning   // the same, by how they are reached
	of         map[string][]*pruning // hosts of the old jobs, by id
	inUse      map[string]bool       // ids of jobs that run or are young
	unchecked  map[string]bool       // ids of jobs of which not all hosts can tell what is left
	listed     map[string]bool       // what --dry-run has listed, by file system and path: hosts that share a home list the same
	kept       map[string]*kept      // jobs with files that nobody has fetched, by id
	table      *console.Table        // what would be removed
	bytes      int64                 // its size on all hosts
	forgotten  []string              // ids of jobs whose records --dry-run has listed
}

// pruning is a host to prune.
type pruning struct {
	*hosts.AgentHost
	binaries []string
	plan     []protocol.Pruned // what would be removed if no other host had a say
	done     []protocol.Pruned // what was removed, or would be
	failed   bool              // it was not asked or not pruned, which was reported
	busy     string            // with All: what uses plx there, so that nothing is removed; "": nothing does
	here     bool              // with All: it is this machine, whose records go last
}

func (p *pruner) close() {
	for _, set := range p.sets {
		set.Close() // every answer has arrived
	}
}

// stays reports whether the folders of a job are kept on all hosts.
func (p *pruner) stays(job string) bool {
	return p.inUse[job] || p.kept[job] != nil || p.unchecked[job] && !p.cfg.Discard
}

// failed reports whether a host of the job was not pruned.
func (p *pruner) failed(job string) bool {
	return p.unchecked[job] || slices.ContainsFunc(p.of[job], func(h *pruning) bool { return h.failed })
}
