package jobs

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/protocol"
)

// kept is what a job has made and nobody has fetched.
type kept struct {
	on    map[string]bool // hosts' folders with such files
	files int
	bytes int64
}

// keep notes that a host keeps files of a job, or checkpoints. Hosts that share a home, a file system's
// name, all list them.
func (p *pruner) keep(item protocol.Pruned, home string) {
	what := cmp.Or(item.Job, item.Path)
	k := p.kept[what]
	if k == nil {
		k = &kept{on: map[string]bool{}}
		p.kept[what] = k
	}
	if at := cmp.Or(item.Folder, home); !k.on[at] {
		k.on[at] = true
		k.files += item.Outputs
		k.bytes += item.Bytes
	}
}

// reportKept prints a line for each job that is kept, and for other things.
func (p *pruner) reportKept() {
	fetchable := 0
	for _, what := range slices.Sorted(maps.Keys(p.kept)) {
		k := p.kept[what]
		size := plural.Count(k.files, "file") + ", " + console.Size(k.bytes) + ", on " + plural.Count(len(k.on), "host")
		name, checkpoints := strings.CutPrefix(what, "ckpt/")
		record, recorded := strings.CutPrefix(path.Dir(what), "jobs/")
		switch {
		case checkpoints:
			p.printer.Printf("kept checkpoints of %s: %s", name, size)
		case recorded:
			p.printer.Printf("kept the record of job %s, on %s", record, plural.Count(len(k.on), "host"))
			continue
		default:
			p.printer.Printf("kept job %s: %s, not fetched", what, size)
		}
		fetchable++
	}
	unchecked := slices.DeleteFunc(slices.Sorted(maps.Keys(p.unchecked)), func(job string) bool { return p.kept[job] != nil || p.inUse[job] })
	if p.cfg.Discard {
		unchecked = nil
	}
	if len(unchecked) > 0 {
		p.printer.Printf("kept, because not all of their hosts can tell what was fetched: %s", strings.Join(unchecked, ", "))
	}
	if fetchable+len(unchecked) > 0 {
		p.printer.Printf("hint: plx fetch JOB DIR brings them to this machine; %s --outputs removes them", p.command())
	}
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
		what := plural.Count(len(items), "old item")
		if p.cfg.All && len(items) == len(all) {
			what = "all of plx"
		}
		p.printer.Printf("host %s: removed %s, %s", host, what, console.Size(freed))
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
	case "ckpt":
		return "checkpoints"
	}
	if rest == "" {
		return "notes of plx"
	}
	return path
}
