package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/fetch"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/live"
	"github.com/plx-run/plx/launcher/logstream"
	"github.com/plx-run/plx/launcher/notify"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/slurm"
	"github.com/plx-run/plx/logs"
)

// LogsConfig selects a job and the log lines that Logs prints.
type LogsConfig struct {
	Query
	Follow   bool           // keep printing new lines until the job ends
	Tasks    []string       // task names or patterns, such as "worker:3" or "worker:*"; empty selects all tasks
	Hosts    []string       // names of hosts; empty selects all hosts
	Tail     int            // number of last lines to print per stream of each task; -1 means all
	Since    time.Duration  // maximum age of a printed line; 0 means no limit
	Grep     *regexp.Regexp // print only lines that match; nil prints every line
	Exclude  *regexp.Regexp // do not print lines that match; nil excludes none
	JSON     bool           // print each line as JSON
	Stamps   bool           // print the time before each line
	NoPrefix bool           // do not print the task and host before each line
	Plan     bool           // first print the launch plan: which tasks ran where
}

// Logs prints the logs of a job from its hosts; the job may be running or have
// ended. With cfg.Follow it returns after the job has ended.
func Logs(ctx context.Context, cfg LogsConfig) error {
	var err error
	if cfg.Query, err = awaitLaunched(ctx, cfg.Query, cfg.Follow); err != nil {
		return err
	}
	j, err := cfg.open(ctx, false)
	if err != nil {
		return err
	}
	defer j.close()
	tasks, err := ChooseTasks(j.tasks(), cfg.Tasks)
	if err != nil {
		return fmt.Errorf("job %s: %w", j.Job, err)
	}
	agents, err := j.choose(cfg.Hosts, tasks)
	if err != nil {
		return err
	}
	if cfg.Plan {
		j.printer.Lines(j.Record.Plan)
	}
	req := logs.Request{Tasks: tasks, TailLines: cfg.Tail, Follow: cfg.Follow}
	if cfg.Since > 0 {
		req.Since = time.Now().Add(-cfg.Since)
	}
	_, err = j.print(ctx, agents, req, logs.Options{Grep: cfg.Grep, Exclude: cfg.Exclude, JSON: cfg.JSON, Timestamps: cfg.Stamps, NoPrefix: cfg.NoPrefix, Verbose: true}, nil)
	return err
}

// ChooseTasks returns the names in all that match at least one pattern of
// path.Match, each name once. Without patterns it returns nil, which means all
// tasks. A pattern that matches no task is an error.
func ChooseTasks(all, patterns []string) (chosen []string, err error) {
	for _, pattern := range patterns {
		found := false
		for _, task := range all {
			ok, err := path.Match(pattern, task)
			if err != nil {
				return nil, exit.Mistake(fmt.Errorf("task %q: not a name or a pattern such as worker:*", pattern), "--task worker:3, or --task 'worker:*' for all workers")
			}
			if found = found || ok; ok && !slices.Contains(chosen, task) {
				chosen = append(chosen, task)
			}
		}
		if !found {
			return nil, exit.Mistake(fmt.Errorf("there is no task %s", pattern), "the tasks are %s", strings.Join(all, ", "))
		}
	}
	return chosen, nil
}

// hostNames returns the names of all hosts of the job.
func (j *Job) hostNames() (names []string) {
	for _, a := range j.agents {
		names = append(names, a.Name())
	}
	return names
}

// choose returns the agents of the job's hosts that have one of the given
// names and run one of the given tasks. An empty list of names or tasks means
// all.
func (j *Job) choose(names, tasks []string) ([]*hosts.AgentHost, error) {
	is := func(a *hosts.AgentHost, name string) bool {
		label, _, _ := strings.Cut(a.Name(), ".") // a name may be only the first label of a host's name, because log prefixes may show only that
		return name == a.Name() || name == label
	}
	for _, name := range names {
		if !slices.ContainsFunc(j.agents, func(a *hosts.AgentHost) bool { return is(a, name) }) {
			return nil, notItsHost(j.Job, name, j.hostNames())
		}
	}
	named := func(a *hosts.AgentHost) bool {
		return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return is(a, name) })
	}
	var chosen []*hosts.AgentHost
	for i, a := range j.agents {
		has := func(task string) bool { return slices.Contains(j.Hosts[i].Tasks, task) }
		// If the job can restart, tasks may have run on other hosts than those
		// in the record. In that case, choose omits no host because of tasks.
		elsewhere := len(tasks) > 0 && !j.Restarts && !slices.ContainsFunc(tasks, has)
		if !elsewhere && named(a) {
			chosen = append(chosen, a)
		}
	}
	if len(chosen) == 0 {
		return nil, exit.Mistake(fmt.Errorf("job %s has nothing on %s", j.Job, console.Fold(names)), "its hosts are %s", console.Fold(j.hostNames()))
	}
	return chosen, nil
}

// notItsHost returns the error for a host name that is not among the job's
// hosts.
func notItsHost(job, name string, its []string) error {
	return exit.Mistake(fmt.Errorf("job %s: it has no host %s", job, name), "its hosts are %s", console.Fold(its))
}

// print prints the logs of the agents' hosts and returns the closed output.
// line receives the metrics that the tasks report. If line is nil and the logs
// are followed, print creates a status line.
func (j *Job) print(ctx context.Context, agents []*hosts.AgentHost, req logs.Request, opts logs.Options, line *live.Line) (*logstream.Output, error) {
	for _, a := range agents {
		opts.Hosts = append(opts.Hosts, a.Name())
	}
	opts.Tasks = j.tasks()
	cfg := logstream.Config{Printer: j.printer, Logs: opts}
	if req.Follow {
		j.set.Release()
		if line == nil {
			var done func()
			line, done = j.status(ctx, agents)
			defer done()
		}
	}
	cfg.Line = line
	out := logstream.NewOutput(cfg)
	err := logstream.Print(ctx, agents, req, out, cmp.Or(j.Lease, DefaultLease), func(ctx context.Context, a *hosts.AgentHost) (protocol.State, error) { return a.State(ctx) })
	return out, errors.Join(err, out.Close())
}

// attachLines is the number of existing lines that Attach prints of each
// stream before new ones.
const attachLines = 10

// Attach prints the newest log lines of a running job and follows the job
// until its end. It returns the job's exit status. If the user interrupts
// Attach, the job continues. The argument shown selects the lines to print;
// shown.Tasks are patterns.
//
// If the job is pending in Slurm's queue, Attach waits for the job, even after
// Slurm has requeued it.
func Attach(ctx context.Context, q Query, shown logs.Options) (int, error) {
	s, err := submissionOf(ctx, q)
	if err != nil {
		return exit.Code(err), err
	}
	if s == nil {
		return attach(ctx, q, shown, attachLines)
	}
	return s.follow(ctx, q, shown, attachLines)
}

// attach does the work of Attach for a job that has been launched. lines is
// the number of existing lines that it prints of each stream; -1 means all.
func attach(ctx context.Context, q Query, shown logs.Options, lines int) (int, error) {
	j, err := q.open(ctx, true)
	if err != nil {
		return exit.Code(err), err
	}
	defer j.close()
	if _, err := ChooseTasks(j.tasks(), shown.Only); err != nil {
		return exit.Code(err), fmt.Errorf("job %s: %w", j.Job, err)
	}
	generation := ""
	if j.Restarts {
		if state, err := j.chief().State(ctx); err == nil && state.Generation > 0 { // ignore the error: j.print below gets the same error and reports it
			generation = fmt.Sprintf(", generation %d", state.Generation)
		}
	}
	if lines >= 0 {
		j.printer.Printf("attached to job %s%s: Ctrl-C leaves it running, plx stop ends it", j.Job, generation)
	}
	req := logs.Request{TailLines: lines, Follow: true}
	shown.Fold = !shown.Verbose
	tell := func(v protocol.Verdict) {
		notify.New(q.Notify, j.printer).End(ctx, notify.Ended(j.Job, j.Name, j.Created, v))
	}
	out, err := j.print(ctx, j.present(), req, shown, nil)
	state, unknown := j.chief().State(ctx)
	if err != nil {
		if !j.Restarts && state.Verdict == nil || ctx.Err() != nil {
			return exit.Code(err), err
		}
		j.printer.Error(err) // no return after this error: the job may have ended, or continued on other hosts
	}
	if err := unknown; err != nil {
		return exit.CodePlx, j.resumable(j.chief().Named(err))
	}
	if state.Verdict == nil {
		v, err := j.cutOff(ctx)
		tell(v)
		return v.Code, err
	}
	j.printMade(ctx)
	PrintVerdict(j.printer, &j.Record, *state.Verdict, out)
	tell(*state.Verdict)
	err = j.learn(state)
	if c := readRunData(j.Job); ctx.Err() == nil && (c == nil || !c.Whole) {
		if _, err := j.keep(ctx); err != nil {
			j.printer.Printf("note: plx report will lack a part of this job's data: %v", err)
		}
	}
	return state.Verdict.Code, err
}

// printMade prints a line about the job's output files that have not been
// fetched yet.
func (j *Job) printMade(ctx context.Context) {
	line, _, err := fetch.Made(ctx, j.Job, j.present())
	if line != "" {
		j.printer.Printf("%s", line)
	}
	if err != nil && ctx.Err() == nil {
		j.printer.Error(err)
	}
}

// cutOff returns how the job ended if its agents have disconnected without a
// verdict. It looks into this machine's record. For a Slurm job, it also asks
// Slurm.
func (j *Job) cutOff(ctx context.Context) (protocol.Verdict, error) {
	err := fmt.Errorf("job %s: ended without a verdict", j.Job)
	if j.Slurm.ID == "" {
		return protocol.Verdict{Code: exit.CodePlx, Reason: err.Error()}, err
	}
	if r, found := byID(j.Job); found && r.Verdict != nil { // the record of the plx process that launched the job says how it ended
		PrintVerdict(j.printer, &r, *r.Verdict, nil)
		return *r.Verdict, nil
	}
	if state, asked := slurm.GetState(ctx, j.Slurm.ID); asked == nil && state.Over() {
		err = fmt.Errorf("job %s: job %s of Slurm ended: %s", j.Job, j.Slurm.ID, state.Ending())
	}
	return protocol.Verdict{Code: exit.CodePlx, Reason: err.Error()}, j.resumable(err)
}
