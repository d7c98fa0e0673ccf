package jobs

import (
	"context"
	"encoding/json"
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
func Prune(ctx context.Context, cfg PruneConfig) error {
	rs, err := Records()
	if err != nil {
		return err
	}
	p := &pruner{printer: cfg.printer(), cfg: cfg, newest: map[string]string{}, done: map[string]bool{}, listed: map[string]bool{}, kept: map[string]*kept{},
		table: console.NewTable("HOST", "WHAT", "SIZE")}
	for _, r := range rs { // the oldest first
		for _, h := range r.Hosts {
			p.newest[h.Line] = h.Binary
		}
	}
	var errs []error
	for _, r := range rs {
		if time.Since(r.Created) < cfg.Older || r.runs(ctx, p.printer) || time.Since(r.last()) < cfg.Older {
			continue
		}
		err := p.job(ctx, r)
		switch {
		case err != nil || p.kept[r.Job] != nil:
		case cfg.DryRun:
			p.table.Row(here, "record of job "+r.Job, "")
		default:
			err = r.Forget()
		}
		errs = append(errs, err)
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
	printer *console.Printer
	cfg     PruneConfig
	newest  map[string]string // binary of the newest agent of each host, by the host's line: it knows of outputs
	done    map[string]bool   // hosts that were pruned, by their lines of a resource file
	listed  map[string]bool   // what --dry-run has listed, by file system and path: hosts that share a home list the same
	kept    map[string]*kept  // jobs with files that nobody has fetched, by id
	table   *console.Table    // what would be removed
	bytes   int64             // its size on all hosts
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
	if len(p.kept) > 0 {
		p.printer.Printf("hint: plx fetch JOB DIR brings them to this machine; plx prune --outputs removes them")
	}
}

// job prunes the hosts of a job, each host once.
func (p *pruner) job(ctx context.Context, r Record) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	j, err := open(ctx, r, p.printer, hosts.Reach{})
	if err != nil {
		return err
	}
	defer j.close()
	var errs []error
	for i, a := range j.agents {
		if line := a.Resource.String(); !p.done[line] {
			p.done[line] = true
			errs = append(errs, p.host(ctx, &hosts.AgentHost{Host: a.Host, Binary: p.newest[r.Hosts[i].Line]}))
		}
	}
	return errors.Join(errs...)
}

func (p *pruner) host(ctx context.Context, a *hosts.AgentHost) error {
	command := "prune --older " + p.cfg.Older.String()
	if p.cfg.Discard {
		command += " --outputs"
	}
	if p.cfg.DryRun {
		command += " --dry-run"
	}
	if p.cfg.DryRun {
		if err := a.Inspect(ctx); err != nil {
			return a.Named(fmt.Errorf("prune: %w", err))
		}
	}
	var stdout hosts.Answer
	if err := a.Call(ctx, command, nil, &stdout); err != nil && transport.ExitStatus(err) != hosts.NotFound {
		return a.Named(fmt.Errorf("prune: %w", err))
	}
	var items []protocol.Pruned
	for d := json.NewDecoder(&stdout); ; {
		var item protocol.Pruned
		if d.Decode(&item) != nil {
			break // the end
		}
		if item.Outputs > 0 {
			p.keep(item)
			continue
		}
		if item := a.Facts.FileSystem + " " + item.Path; p.cfg.DryRun {
			if p.listed[item] {
				continue
			}
			p.listed[item] = true
		}
		items = append(items, item)
	}
	if len(items) == 0 {
		return nil
	}
	host := a.Name()
	if a.Embedded {
		host = here // the hosts of an embedded cluster have one home
	}
	freed := p.add(host, items)
	p.bytes += freed
	if !p.cfg.DryRun {
		p.printer.Printf("host %s: removed %s, %s", host, console.Count(len(items), "old item"), console.Size(freed))
	}
	return nil
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
		return "working directories made ahead"
	case "files":
		return "files of working directories"
	}
	return path
}
