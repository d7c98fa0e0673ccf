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

// kept counts the files of a job that Prune keeps because they have not been
// fetched.
type kept struct {
	on    map[string]bool // folders of the job, one per host, that contain unfetched files
	files int
	bytes int64
}

// keep counts an item that a host keeps: a job's files or checkpoints. home is
// the file system of the host's home directory. Hosts that share a home
// directory report the same item, which keep counts once.
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

// reportKept prints one line for each kept job, each kept checkpoint folder
// and each kept record.
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

// report prints what a host has removed. With --dry-run, it adds what the host
// would remove to the table.
func (p *pruner) report(h *pruneHost, all []protocol.Pruned) {
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
		host = here // an embedded cluster simulates its hosts on this machine
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

// here is the name of this machine in the table's column HOST.
const here = "here"

// add adds a host's items to the table, one row for each kind of item, and
// returns their total size.
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

// kindOf returns what kind of item a path below a host's ~/.plx is, as the
// table shows it.
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
