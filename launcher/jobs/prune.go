package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/submission"
	"github.com/plx-run/plx/launcher/transport"
)

// PruneConfig tells what to remove.
type PruneConfig struct {
	Query
	Older time.Duration // only what was last changed longer ago than this is removed
	// Discard also removes files that jobs made and nobody has fetched. Otherwise their jobs
	// are kept.
	Discard bool
	DryRun  bool // only print what would be removed
}

// Prune removes what jobs left that have ended and are older than the given age: their
// records here, and their files and unused blobs on their hosts. With DryRun it prints a
// table of these on standard output and removes nothing.
//
// A job goes as a whole or not at all, so that what is left of it can be fetched: Prune asks
// all hosts first. It keeps jobs of which one host has files that nobody has fetched, or
// cannot tell.
func Prune(ctx context.Context, cfg PruneConfig) error {
	return prune(ctx, cfg, open)
}

// opener opens a job with its hosts.
type opener func(ctx context.Context, r Record, printer *console.Printer, like hosts.Reach) (*Job, error)

func prune(ctx context.Context, cfg PruneConfig, open opener) error {
	rs, err := Records()
	if err != nil {
		return err
	}
	p := &pruner{open: open, printer: cfg.printer(), cfg: cfg, binaries: map[string][]string{}, known: map[string]*pruning{}, of: map[string][]*pruning{},
		inUse: map[string]bool{}, unchecked: map[string]bool{}, listed: map[string]bool{}, kept: map[string]*kept{}, table: console.NewTable("HOST", "WHAT", "SIZE")}
	defer p.close()
	for _, r := range slices.Backward(rs) {
		for _, h := range r.Hosts {
			if !slices.Contains(p.binaries[h.Line], h.Binary) {
				p.binaries[h.Line] = append(p.binaries[h.Line], h.Binary)
			}
		}
	}
	var old []Record
	var errs []error
	for _, r := range rs {
		if time.Since(r.Created) < cfg.Older || r.runs(ctx, p.printer, r.dialling(p.printer)) || time.Since(r.last()) < cfg.Older {
			p.inUse[r.Job] = true
			continue
		}
		old = append(old, r)
		errs = append(errs, p.survey(ctx, r))
	}
	for _, h := range p.hosts {
		errs = append(errs, p.host(ctx, h))
	}
	for _, r := range old {
		switch {
		case p.stays(r.Job) || p.failed(r.Job):
		case cfg.DryRun:
			p.table.Row(here, "record of job "+r.Job, "")
		default:
			errs = append(errs, r.Forget())
		}
	}
	errs = append(errs, p.submissions(ctx))
	p.reportKept()
	if cfg.DryRun {
		errs = append(errs, p.table.Write(cfg.Terminal))
		p.printer.Printf("nothing was removed: plx prune without --dry-run removes %s", console.Size(p.bytes))
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
	open      opener
	printer   *console.Printer
	cfg       PruneConfig
	binaries  map[string][]string // of the agents of each host, by the host's line, the newest first: it knows most of outputs
	opened    []*Job
	hosts     []*pruning            // each once
	known     map[string]*pruning   // the same, by how they are reached
	of        map[string][]*pruning // hosts of the old jobs, by id
	inUse     map[string]bool       // ids of jobs that run or are young
	unchecked map[string]bool       // ids of jobs of which not all hosts can tell what is left
	listed    map[string]bool       // what --dry-run has listed, by file system and path: hosts that share a home list the same
	kept      map[string]*kept      // jobs with files that nobody has fetched, by id
	table     *console.Table        // what would be removed
	bytes     int64                 // its size on all hosts
}

// pruning is a host to prune.
type pruning struct {
	*hosts.AgentHost
	binaries []string
	plan     []protocol.Pruned // what would be removed if no other host had a say
	failed   bool              // it was not asked or not pruned, which was reported
}

func (p *pruner) close() {
	for _, j := range p.opened {
		j.close()
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

// kept is what a job has made and nobody has fetched.
type kept struct {
	on    map[string]bool // hosts' folders with such files
	files int
	bytes int64
}

// keep notes that a host keeps files of a job. Hosts that share a home all list them.
func (p *pruner) keep(item protocol.Pruned) {
	k := p.kept[item.Job]
	if k == nil {
		k = &kept{on: map[string]bool{}}
		p.kept[item.Job] = k
	}
	if !k.on[item.Folder] {
		k.on[item.Folder] = true
		k.files += item.Outputs
		k.bytes += item.Bytes
	}
}

// reportKept prints a line for each job that is kept.
func (p *pruner) reportKept() {
	for _, job := range slices.Sorted(maps.Keys(p.kept)) {
		k := p.kept[job]
		p.printer.Printf("kept job %s: %s, %s, on %s, not fetched", job, console.Count(k.files, "file"), console.Size(k.bytes), console.Count(len(k.on), "host"))
	}
	unchecked := slices.DeleteFunc(slices.Sorted(maps.Keys(p.unchecked)), func(job string) bool { return p.kept[job] != nil })
	if p.cfg.Discard {
		unchecked = nil
	}
	if len(unchecked) > 0 {
		p.printer.Printf("kept, because not all of their hosts can tell what was fetched: %s", strings.Join(unchecked, ", "))
	}
	if len(p.kept)+len(unchecked) > 0 {
		p.printer.Printf("hint: plx fetch JOB DIR brings them to this machine; plx prune --outputs removes them")
	}
}

// survey asks the hosts of a job what they would remove, each host once.
func (p *pruner) survey(ctx context.Context, r Record) error {
	j, err := p.open(ctx, r, p.printer, hosts.Reach{})
	if err != nil {
		p.unchecked[r.Job] = true
		return err
	}
	var fresh []*pruning
	for i, a := range j.agents {
		way := r.Via + " " + a.Resource.String()
		h := p.known[way]
		if h == nil {
			h = &pruning{AgentHost: &hosts.AgentHost{Host: a.Host}, binaries: p.binaries[r.Hosts[i].Line]}
			fresh, p.known[way] = append(fresh, h), h
		}
		p.of[r.Job] = append(p.of[r.Job], h)
	}
	if len(fresh) == 0 {
		j.close()
	} else {
		p.opened = append(p.opened, j)
	}
	err = hosts.Each(ctx, fresh, func(_ int, h *pruning) error {
		var err error
		if h.plan, err = p.ask(ctx, h, nil, true); err != nil {
			h.failed, err = true, fmt.Errorf("prune: %w", err)
		}
		return err
	})
	errs := []error{err}
	for _, h := range fresh {
		errs = append(errs, p.keepAll(h, h.plan))
	}
	p.hosts = append(p.hosts, fresh...)
	if p.failed(r.Job) {
		p.unchecked[r.Job] = true
	}
	return errors.Join(errs...)
}

// ask has a host prune, which keeps some jobs whatever it knows of them. The newest agent that
// is there does so.
func (p *pruner) ask(ctx context.Context, h *pruning, keep []string, dry bool) ([]protocol.Pruned, error) {
	ctx, cancel := within(ctx, askTime)
	defer cancel()
	want := protocol.PruneRequest{Older: p.cfg.Older, Discard: p.cfg.Discard, Dry: dry, Keep: keep}
	for _, binary := range h.binaries {
		agent := &hosts.AgentHost{Host: h.Host, Binary: binary}
		answer, err := hosts.Call[protocol.PruneAnswer](ctx, agent, askTime, protocol.DoPrune, want)
		if transport.ExitStatus(err) == hosts.NotFound {
			continue // it was pruned
		}
		if err == nil && answer.Failed != "" {
			err = errors.New(answer.Failed)
		}
		if err == nil && p.cfg.DryRun {
			err = agent.Learn(ctx) // hosts that share a home are shown once
		}
		return answer.Items, err
	}
	return nil, nil
}

// keepAll takes note of the jobs that a host keeps. It returns an error for those of which
// the host cannot tell what they have made.
func (p *pruner) keepAll(h *pruning, items []protocol.Pruned) error {
	var errs []error
	for _, item := range items {
		switch {
		case item.Unchecked != "":
			if !p.unchecked[item.Job] {
				errs = append(errs, h.Named(fmt.Errorf("what job %s made is not known: %s", item.Job, item.Unchecked)))
			}
			p.unchecked[item.Job] = true
		case item.Outputs > 0:
			p.keep(item)
		}
	}
	return errors.Join(errs...)
}

// host prunes a host, but for the jobs that stay.
func (p *pruner) host(ctx context.Context, h *pruning) error {
	var keep []string
	goes := false
	for _, item := range h.plan {
		job, isJob := strings.CutPrefix(kindOf(item.Path), "job ")
		switch {
		case item.Outputs > 0:
		case isJob && p.stays(job):
			keep = append(keep, job)
		default:
			goes = true
		}
	}
	if h.failed || !goes {
		return nil
	}
	all, err := h.plan, error(nil)
	if !p.cfg.DryRun || len(keep) > 0 {
		if all, err = p.ask(ctx, h, keep, p.cfg.DryRun); err != nil {
			h.failed, err = true, h.Named(fmt.Errorf("prune: %w", err))
		}
		err = errors.Join(err, p.keepAll(h, all))
	}
	p.report(h, all)
	return err
}

// report prints what a host has removed, or would remove.
func (p *pruner) report(h *pruning, all []protocol.Pruned) {
	var items []protocol.Pruned
	for _, item := range all {
		at := h.Facts.FileSystem + " " + item.Path
		if item.Outputs > 0 || p.cfg.DryRun && p.listed[at] {
			continue
		}
		p.listed[at] = true
		items = append(items, item)
	}
	if len(items) == 0 {
		return
	}
	host := h.Name()
	if h.Embedded {
		host = here // the hosts of an embedded cluster have one home
	}
	freed := p.add(host, items)
	p.bytes += freed
	if !p.cfg.DryRun {
		p.printer.Printf("host %s: removed %s, %s", host, console.Count(len(items), "old item"), console.Size(freed))
	}
}

// here is this machine, as a host in the table.
const here = "here"

// add adds rows for the items of a host to the table, those of one kind in one row, and
// returns their size.
func (p *pruner) add(host string, items []protocol.Pruned) (all int64) {
	bytes, number := map[string]int64{}, map[string]int{}
	var kinds []string
	for _, item := range items {
		kind := kindOf(item.Path)
		if number[kind]++; number[kind] == 1 {
			kinds = append(kinds, kind)
		}
		bytes[kind] += item.Bytes
		all += item.Bytes
	}
	for _, kind := range kinds {
		what := kind
		if n := number[kind]; n > 1 && !strings.HasPrefix(kind, "job ") {
			what = fmt.Sprintf("%s (%d)", kind, n)
		}
		p.table.Row(host, what, console.Size(bytes[kind]))
	}
	if len(kinds) > 1 {
		p.table.Row(host, "all", console.Size(all))
	}
	return all
}

// kindOf says what lies at a path relative to ~/.plx on a host.
func kindOf(path string) string {
	folder, rest, _ := strings.Cut(path, "/")
	switch job, _, _ := strings.Cut(rest, "/"); folder {
	case "jobs":
		return "job " + job
	case "blobs":
		return "programs"
	case "envs":
		return "virtual environments"
	case "spares":
		return "working directories of an earlier plx"
	case "files":
		return "files of working directories"
	}
	return path
}
