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

// Query names a job and where to look for it.
type Query struct {
	// Job is a job's id, its name, or the unique beginning of an id. If it is
	// empty, the query means the newest job or, depending on the command, the
	// newest running job. Commands that end or change a job require that only
	// one job runs (see the method resolve).
	Job string
	// Reach names the hosts that plx searches if this machine has no record of
	// the job.
	Reach hosts.Reach
	// OnHosts makes plx ignore this machine's records and search the hosts of
	// Reach.
	OnHosts bool
	// Named are the hosts of Reach that the user named individually on the
	// command line. The job must run on all of them. A file of hosts, in
	// contrast, may also list hosts without the job.
	Named    []string
	Terminal console.Terminal
	Printer  *console.Printer // printer of Terminal, if the caller already has one; nil creates one
	Notify   string           // shell command that Attach runs after the job has ended; empty means none
	exact    bool             // true if Job is the id of a launched job; then other runs of the same Slurm script do not match
	searched []Record         // result of an earlier search of the hosts for jobs; nil before the first search
}

func (q Query) printer() *console.Printer {
	if q.Printer != nil {
		return q.Printer
	}
	return console.NewPrinter(q.Terminal)
}

// exactly returns a query that matches only the launched job whose id is job.
func (q Query) exactly(job string) Query {
	q.Job, q.exact = job, true
	return q
}

// open finds the job that the query means and opens it with its current hosts.
// It connects to at most one host, that of the job's chief (worker:0). If
// q.Job is empty and running is true, it ignores jobs that have ended.
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

// Find searches this machine's records for the job, and then the query's
// hosts. If running is true, it prefers jobs that have not ended.
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
	rs := q.searched
	if rs == nil {
		var err error
		if rs, err = q.searchSome(ctx, printer); err != nil {
			return Record{}, err
		}
	}
	return q.pick(ctx, rs, running, printer)
}

// pick selects the query's job from rs, which is ordered from the oldest job
// to the newest. If running is true and several jobs have the name, pick
// prefers a running job to a newer one that has ended.
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

// match returns the job whose id is text. If no id matches, it returns the
// newest job named text. If no name matches either, it returns the only job
// whose id begins with text. rs is ordered from the oldest job to the newest.
func match(rs []Record, text string) (Record, error) {
	all, named := matching(rs, text, Record.identity)
	switch {
	case len(all) == 1 || len(all) > 1 && named:
		return all[len(all)-1], nil
	case len(all) > 1:
		return Record{}, exit.Mistake(fmt.Errorf("job %s: ambiguous: the ids of %d jobs begin with this text", text, len(all)), "the newest is %s; plx jobs lists them", all[len(all)-1].Job)
	}
	return Record{}, exit.Mistake(fmt.Errorf("job %s: this machine knows no such job", text),
		"plx jobs lists what is known; name the hosts with --hosts to look there")
}

// matching returns the element whose id is text. If no id matches, it returns
// all elements named text. If no name matches either, it returns all whose ids
// begin with text. named is true if an id or a name matched as a whole.
// identity returns the id and the name of an element.
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

// searchSome calls search. If some hosts cannot be reached but other hosts
// know a job, it only prints the error. It returns an error if the user named
// hosts that do not belong to the query's job.
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

// refuseHosts returns an error if the user named a host that does not belong
// to the query's job, or if no host of the user's hosts file does. found are
// the jobs that the hosts know. all is false if some hosts did not reply. In
// that case, refuseHosts checks only a job that this machine has a record of.
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
	var searched []string
	for _, h := range q.Reach.Hosts {
		searched = append(searched, h.Name)
	}
	if i := slices.IndexFunc(q.Named, foreign); i >= 0 {
		return notItsHost(known[len(known)-1].Job, q.Named[i], its)
	} else if len(slices.DeleteFunc(slices.Clone(searched), foreign)) == 0 {
		return notItsHost(known[len(known)-1].Job, console.Fold(searched), its)
	}
	return nil
}

// search reads the states of jobs from hosts and builds records from them, for
// a machine that did not launch the jobs. If some hosts cannot be reached, it
// returns the jobs of the others and an error.
func search(ctx context.Context, reach hosts.Reach, printer *console.Printer) ([]Record, error) {
	set, err := hosts.Open(ctx, reach, printer)
	if err != nil {
		return nil, errors.Join(err, set.Close())
	}
	defer set.Close() // the error is ignored because nothing was written to the hosts
	found := make([][]protocol.State, len(set.Hosts))
	err = hosts.Each(ctx, set.Hosts, func(i int, h *hosts.Host) (err error) {
		found[i], err = states(ctx, h, printer)
		return err
	})
	return assemble(set, found), err
}

// states reads the state files of all jobs that have a folder on host h. It
// skips a file that it cannot parse, with a message.
func states(ctx context.Context, h *hosts.Host, printer *console.Printer) ([]protocol.State, error) {
	const script = `for f in "$HOME"/.plx/jobs/*/*/state.json; do if [ -r "$f" ]; then printf '%s\t' "$f"; tr -d '\n' <"$f"; echo; fi; done`
	ctx, cancel := within(ctx, askTime)
	defer cancel()
	var stdout hosts.BoundedBuffer
	if err := h.Run(ctx, script, nil, &stdout, nil); err != nil {
		return nil, fmt.Errorf("look for jobs: %w", err)
	}
	var states []protocol.State
	for line := range strings.Lines(stdout.String()) {
		path, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		var s protocol.State
		if json.Unmarshal([]byte(text), &s) != nil || !hosts.IsSafe(s.Job) || !hosts.IsSafe(s.Folder) || !hosts.IsBlob(s.Binary) {
			printer.Printf("host %s: skipped %s, which is not the state of a job", h.Name(), path)
			continue
		}
		states = append(states, s)
	}
	return states, nil
}

// assemble builds one record for each job from the states that its hosts have.
// On hosts that share a home directory, each host sees the state files of all
// hosts. assemble uses only the state in a host's own folder.
func assemble(set *hosts.Set, found [][]protocol.State) []Record {
	jobs := map[string]*Record{}
	chief := map[string]int{} // generation (number of restarts) of the newest state of a host with worker:0, by job id
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
			h := HostRecord{Line: set.Hosts[i].Resource.WithoutSettings().String(), Folder: s.Folder, Binary: s.Binary}
			for task := range s.Tasks {
				h.Tasks = append(h.Tasks, task)
				if task == "worker:0" && s.Generation >= chief[s.Job] { // a host that has left the job has a state of an older generation
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
