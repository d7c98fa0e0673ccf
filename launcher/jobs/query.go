package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// Query names a job, and where to look for it.
type Query struct {
	// Job is an id, a name, or the unique beginning of an id. Empty: the newest job, or the
	// newest running one; for a command that ends or changes a job the only one, see meant.
	Job string
	// Reach has the hosts to look on if this machine has no record of the job.
	Reach hosts.Reach
	// OnHosts ignores the records of this machine.
	OnHosts bool
	// Named are those of the hosts that the user named one by one. A named job must have them:
	// a resource file may list more.
	Named    []string
	Terminal console.Terminal
	Printer  *console.Printer // of Terminal, which others use at the same time; nil: a new one
	Notify   string           // shell line that Attach runs when the job has ended; empty: none
	exact    bool             // Job is the id of a job that is launched, and stands for no other run of its submission
	looked   []Record         // what the hosts know, if they were asked already; nil: they were not
}

func (q Query) printer() *console.Printer {
	if q.Printer != nil {
		return q.Printer
	}
	return console.NewPrinter(q.Terminal)
}

// exactly returns the query for the job with an id, which is launched.
func (q Query) exactly(job string) Query {
	q.Job, q.exact = job, true
	return q
}

// open finds the job and opens it with the hosts that it has now. It connects at most to
// the host that drives the job. If no job was named, running excludes jobs that ended.
func (q Query) open(ctx context.Context, running bool) (*Job, error) {
	printer := q.printer()
	q, err := alreadyLaunched(ctx, q)
	if err != nil {
		return nil, err
	}
	r, err := q.Find(ctx, running, printer)
	if err != nil {
		return nil, err
	}
	j, err := open(ctx, r, printer, q.Reach)
	if err != nil {
		return nil, err
	}
	return j.refreshed(ctx, q.Reach)
}

// Find looks the job up in this machine's records, or on the given hosts. running
// prefers jobs that did not end.
func (q Query) Find(ctx context.Context, running bool, printer *console.Printer) (Record, error) {
	if !q.OnHosts {
		rs, err := Records()
		if err != nil {
			return Record{}, err
		}
		r, err := q.pick(ctx, rs, running, printer)
		if err == nil || len(q.Reach.Hosts) == 0 {
			return r, err
		}
	}
	rs := q.looked
	if rs == nil {
		var err error
		if rs, err = q.searchSome(ctx, printer); err != nil {
			return Record{}, err
		}
	}
	return q.pick(ctx, rs, running, printer)
}

// pick chooses a job from rs, which has the oldest first. If running and several jobs have
// the name, it prefers one that runs to newer ones that ended.
func (q Query) pick(ctx context.Context, rs []Record, running bool, printer *console.Printer) (Record, error) {
	newest := Record{}
	if q.Job != "" {
		var err error
		if newest, err = match(rs, q.Job); err != nil || !running || newest.Name != q.Job {
			return newest, err
		}
	}
	for _, r := range slices.Backward(rs) {
		if (q.Job == "" || r.Name == q.Job) && (!running || r.runs(ctx, printer, r.dialling(printer))) {
			return r, nil
		}
	}
	if q.Job != "" {
		return newest, nil
	}
	if running {
		return Record{}, noJob("running job")
	}
	return Record{}, noJob("job")
}

func noJob(what string) error {
	return exit.Mistake(fmt.Errorf("there is no %s that this machine knows of", what),
		"name the hosts with --hosts to look there; plx jobs lists what is known")
}

// match finds the job with the id text, else the newest of that name, else the only one
// whose id begins with text. rs has the oldest first.
func match(rs []Record, text string) (Record, error) {
	all, named := matching(rs, text, Record.identity)
	switch {
	case len(all) == 1 || len(all) > 1 && named:
		return all[len(all)-1], nil
	case len(all) > 1:
		return Record{}, exit.Mistake(fmt.Errorf("job %s: the ids of %d jobs begin so", text, len(all)), "the newest is %s; plx jobs lists them", all[len(all)-1].Job)
	}
	return Record{}, exit.Mistake(fmt.Errorf("job %s: this machine knows of none", text),
		"plx jobs lists what is known; name the hosts with --hosts to look there")
}

// matching returns the job with the id text, else all jobs of that name, else all whose ids
// begin with text. named: it has found an id or a name. identity returns the id and the name of one.
func matching[J any](of []J, text string, identity func(J) (id, name string)) (all []J, named bool) {
	var begun []J
	for _, j := range of {
		id, name := identity(j)
		switch {
		case id == text:
			return []J{j}, true
		case name == text:
			all = append(all, j)
		case strings.HasPrefix(id, text):
			begun = append(begun, j)
		}
	}
	if len(all) > 0 {
		return all, true
	}
	return begun, false
}

func (r Record) identity() (id, name string) { return r.Job, r.Name }

// searchSome is search, but prints the error of hosts that are out of reach if the other hosts
// know a job. It refuses hosts that the query's job does not have.
func (q Query) searchSome(ctx context.Context, printer *console.Printer) ([]Record, error) {
	rs, err := search(ctx, q.Reach, printer)
	if stranger := q.refuseHosts(rs, err == nil); stranger != nil && ctx.Err() == nil {
		return nil, stranger
	}
	if err != nil && len(rs) > 0 && ctx.Err() == nil {
		printer.Error(err)
		err = nil
	}
	return rs, err
}

// refuseHosts refuses hosts that were named one by one and that the job does not have, or a
// list of which it has none. found is what the hosts know. If not all of them have answered, it
// needs a record of this machine.
func (q Query) refuseHosts(found []Record, all bool) error {
	if q.Job == "" || len(q.Reach.Hosts) == 0 {
		return nil
	}
	here, err := Records()
	if err != nil {
		return err
	}
	known, _ := matching(slices.Concat(here, found), q.Job, Record.identity)
	if recorded, _ := matching(here, q.Job, Record.identity); len(known) == 0 || !all && len(recorded) == 0 {
		return nil
	}
	var its []string
	for _, r := range known {
		for _, h := range r.Hosts {
			parsed, err := hostfile.ParseLines([]string{h.Line})
			if err != nil {
				return fmt.Errorf("record of job %s: %w", r.Job, err)
			}
			its = append(its, parsed[0].Name)
		}
	}
	slices.Sort(its)
	its = slices.Compact(its)
	foreign := func(name string) bool { return !slices.Contains(its, name) }
	var looked []string
	for _, h := range q.Reach.Hosts {
		looked = append(looked, h.Name)
	}
	if i := slices.IndexFunc(q.Named, foreign); i >= 0 {
		return notItsHost(known[len(known)-1].Job, q.Named[i], its)
	} else if len(slices.DeleteFunc(slices.Clone(looked), foreign)) == 0 {
		return notItsHost(known[len(known)-1].Job, console.Fold(looked), its)
	}
	return nil
}

// search puts records together from what the hosts know, for a machine that did not launch the
// jobs. If hosts are out of reach it returns what the others know, and an error.
func search(ctx context.Context, reach hosts.Reach, printer *console.Printer) ([]Record, error) {
	set, err := hosts.Open(ctx, reach, printer)
	if err != nil {
		return nil, errors.Join(err, set.Close())
	}
	defer set.Close() // nothing was written
	found := make([][]protocol.State, len(set.Hosts))
	err = hosts.Each(ctx, set.Hosts, func(i int, h *hosts.Host) (err error) {
		found[i], err = states(ctx, h, printer)
		return err
	})
	return assemble(set, found), err
}

// states returns the states of all jobs that the host has a folder of. It reports and
// leaves out a state that cannot be read.
func states(ctx context.Context, h *hosts.Host, printer *console.Printer) ([]protocol.State, error) {
	const script = `for f in "$HOME"/.plx/jobs/*/*/state.json; do if [ -r "$f" ]; then printf '%s\t' "$f"; tr -d '\n' <"$f"; echo; fi; done`
	ctx, cancel := within(ctx, askTime)
	defer cancel()
	var stdout hosts.Answer
	if err := h.Run(ctx, script, nil, &stdout, nil); err != nil {
		return nil, fmt.Errorf("look for jobs: %w", err)
	}
	var states []protocol.State
	for line := range strings.Lines(stdout.String()) {
		path, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		var s protocol.State
		if json.Unmarshal([]byte(text), &s) != nil || !hosts.IsSafe(s.Job) || !hosts.IsSafe(s.Folder) || !hosts.IsBlob(s.Binary) {
			printer.Printf("host %s: %s is not a job's state, it is left out", h.Name(), path)
			continue
		}
		states = append(states, s)
	}
	return states, nil
}

// assemble makes one record of each job from the states of its hosts. Hosts that share
// a home see the folders of each other: each counts for its own folder only.
func assemble(set *hosts.Set, found [][]protocol.State) []Record {
	jobs := map[string]*Record{}
	chief := map[string]int{} // by job: generation in which the chief was found
	for i, states := range found {
		for _, s := range states {
			if s.Folder != set.Hosts[i].JobFolder() {
				continue
			}
			r := jobs[s.Job]
			if r == nil {
				r = &Record{Job: s.Job, Name: s.Name, Created: s.Started, Detached: s.Detached, Grace: DefaultGrace, Lease: s.Lease, Checkpoints: s.Checkpoints, Outputs: s.Outputs, found: true}
				jobs[s.Job] = r
			}
			h := HostRecord{Line: set.Hosts[i].Resource.Bare().String(), Folder: s.Folder, Binary: s.Binary}
			for task := range s.Tasks {
				h.Tasks = append(h.Tasks, task)
				if task == "worker:0" && s.Generation >= chief[s.Job] { // a host that was left out has an older state
					r.Chief, r.Verdict, chief[s.Job] = len(r.Hosts), s.Verdict, s.Generation
				}
			}
			r.Restarts = r.Restarts || s.Generation > 0
			slices.Sort(h.Tasks)
			r.Hosts = append(r.Hosts, h)
		}
	}
	var rs []Record
	for _, r := range jobs {
		rs = append(rs, *r)
	}
	slices.SortFunc(rs, older)
	return rs
}
