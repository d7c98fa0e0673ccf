package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/charmbracelet/lipgloss/table"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// PruneConfig tells what to remove.
type PruneConfig struct {
	Query
	Older time.Duration // only what was last changed longer ago than this is removed
	// Discard also removes outputs that nobody has fetched. Otherwise their jobs are kept.
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
	p := &pruner{printer: console.NewPrinter(cfg.Terminal), cfg: cfg, newest: map[string]string{}, done: map[string]bool{}, kept: map[string]bool{},
		table: console.NewTable("HOST", "WHAT", "SIZE")}
	for _, r := range rs { // the oldest first
		for _, h := range r.Hosts {
			p.newest[h.Line] = h.Binary
		}
	}
	var errs []error
	for _, r := range rs {
		if time.Since(r.Created) < cfg.Older || r.runs(ctx, p.printer) {
			continue
		}
		err := p.job(ctx, r)
		switch {
		case err != nil || p.kept[r.Job]:
		case cfg.DryRun:
			p.table.Row("here", "record of job "+r.Job, "")
		default:
			err = r.Forget()
		}
		errs = append(errs, err)
	}
	if len(p.kept) > 0 {
		p.printer.Printf("hint: plx fetch JOB DIR fetches outputs; plx prune --discard-outputs removes them")
	}
	if cfg.DryRun {
		errs = append(errs, console.WriteTable(cfg.Terminal.Stdout, p.table))
		p.printer.Printf("nothing was removed: plx prune without --dry-run removes %s", console.Size(p.bytes))
	}
	return errors.Join(errs...)
}

// pruner is one run of Prune.
type pruner struct {
	printer *console.Printer
	cfg     PruneConfig
	newest  map[string]string // binary of the newest agent of each host, by the host's line: it knows of outputs
	done    map[string]bool   // hosts that were pruned, by their lines of a resource file
	kept    map[string]bool   // jobs with outputs that nobody has fetched
	table   *table.Table      // what would be removed
	bytes   int64             // its size on all hosts
}

// job prunes the hosts of a job, each host once.
func (p *pruner) job(ctx context.Context, r Record) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	j, err := open(ctx, r, p.printer, false)
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
		command += " --discard-outputs"
	}
	if p.cfg.DryRun {
		command += " --dry-run"
	}
	var stdout bytes.Buffer
	if err := a.Call(ctx, command, nil, &stdout); err != nil && hosts.ExitStatus(err) != hosts.NotFound {
		return a.Named(fmt.Errorf("prune: %w", err))
	}
	n, freed := 0, int64(0)
	for d := json.NewDecoder(&stdout); ; {
		var item protocol.Pruned
		if d.Decode(&item) != nil {
			break // the end
		}
		if item.Outputs > 0 {
			p.kept[item.Job] = true
			p.printer.Printf("host %s: kept job %s: %s, %s, not fetched", a.Name(), console.Printable(item.Job), console.Count(item.Outputs, "output"), console.Size(item.Bytes))
			continue
		}
		n++
		freed += item.Bytes
		p.table.Row(a.Name(), console.Printable(item.Path), console.Size(item.Bytes))
	}
	p.bytes += freed
	if n > 0 && !p.cfg.DryRun {
		p.printer.Printf("host %s: removed %s, %s", a.Name(), console.Count(n, "old item"), console.Size(freed))
	}
	return nil
}
