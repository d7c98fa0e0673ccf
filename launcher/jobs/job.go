package jobs

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/fetch"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/logstream"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/slurm"
	"github.com/plx-run/plx/launcher/submission"
	"github.com/plx-run/plx/logs"
	"github.com/plx-run/plx/logs/style"
	"github.com/plx-run/plx/trainer/cluster"
)

// askTime bounds one request to a host about a job.
const askTime = 40 * time.Second

// within returns a context for a request to a host. If the request takes
// longer than limit, the context ends with the cause "no answer within ...".
func within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
}

// Job is a job that was launched earlier, together with connections to its
// hosts.
type Job struct {
	Record
	printer *console.Printer
	set     *hosts.Set
	agents  []*hosts.AgentHost // agents of the job's hosts, in the order of Record.Hosts
}

// open returns the record's job with an agent for each host. It opens no
// connection: the first request to a host dials the host. like has the user's
// options for reaching hosts.
func open(ctx context.Context, r Record, printer *console.Printer, like hosts.Reach) (*Job, error) {
	reach, err := r.reach(like)
	if err != nil {
		return nil, err
	}
	if reach, err = afterSlurm(ctx, r, reach); err != nil {
		return nil, err
	}
	set, err := hosts.Open(ctx, reach, printer)
	if err != nil {
		return nil, errors.Join(err, set.Close())
	}
	j := &Job{Record: r, printer: printer, set: set}
	for i, h := range r.Hosts {
		j.agents = append(j.agents, &hosts.AgentHost{Host: set.Hosts[i], Job: r.Job, Folder: h.Folder, Binary: h.Binary})
	}
	return j, nil
}

// afterSlurm returns how to reach the record's hosts. If the hosts were nodes
// of a Slurm allocation that has ended, plx cannot reach them. Then plx reads
// the job's files from this machine's home directory, which on most clusters
// is also the nodes' home directory. For all other records, afterSlurm returns
// reach.
func afterSlurm(ctx context.Context, r Record, reach hosts.Reach) (hosts.Reach, error) {
	if r.Slurm == (slurm.Run{}) {
		return reach, nil
	}
	over, err := r.Slurm.HasEnded(ctx)
	if err != nil {
		return reach, err
	}
	reach.SharedHome = r.atHome("")
	switch {
	case !over:
		return reach, nil
	case !reach.SharedHome:
		return reach, exit.WithHint(fmt.Errorf("job %s: job %s of Slurm has ended, and this machine does not share the home directory of its nodes", r.Job, r.Slurm.ID),
			"--log-dir and --fetch of plx launch bring logs and results here while the job runs")
	}
	return reach.AtHome(), nil
}

// atHome reports whether this machine's home directory contains the job's
// folder of every host, with the named file in each folder.
func (r *Record) atHome(file string) bool {
	jobs, err := submission.Root()
	return err == nil && !slices.ContainsFunc(r.Hosts, func(h HostRecord) bool {
		_, err := os.Stat(filepath.Join(jobs, r.Job, h.Folder, file))
		return err != nil
	})
}

// started reports whether the job has ended, or whether all its agents have
// started. Each agent writes a state.json when it starts. started looks for
// these files in this machine's home directory, which the hosts must share.
func (r *Record) started() bool { return r.Verdict != nil || r.atHome("state.json") }

// close closes the connections to the hosts. It ignores errors, because all
// replies have been received.
func (j *Job) close() { j.set.Close() } // the error is ignored: all replies have arrived, so closing can lose nothing

// chief returns the agent of the chief's host (worker:0), which knows the
// job's state.
func (j *Job) chief() *hosts.AgentHost { return j.agents[j.Chief] }

// present returns the agents of the hosts in the job, without hosts that have
// left it.
func (j *Job) present() (present []*hosts.AgentHost) {
	for i, a := range j.agents {
		if !j.Hosts[i].Left {
			present = append(present, a)
		}
	}
	return present
}

// tasks returns the names of the job's tasks on all hosts.
func (j *Job) tasks() (all []string) {
	for _, h := range j.Hosts {
		all = append(all, h.Tasks...)
	}
	return all
}

// ended asks the host of the chief (worker:0) whether the job has ended. The
// verdict, which says how the job ended, is nil if it is not known. ended does
// not update j.Record.
func (j *Job) ended(ctx context.Context) (bool, *protocol.Verdict) {
	r := j.Record
	return !r.runs(ctx, j.printer, j.state), r.Verdict
}

// An asker is a function that requests the job's state from the host of the
// job's chief (worker:0).
type asker func(context.Context) (protocol.State, error)

// update calls ask for the job's state and copies the state into the record.
// If the record already has a verdict, update does not call ask. It returns
// the number of the current generation (run of all tasks).
func (r *Record) update(ctx context.Context, printer *console.Printer, ask asker) (generation int, err error) {
	if r.Verdict != nil {
		return 0, nil
	}
	state, err := ask(ctx)
	if err != nil {
		return 0, err
	}
	if err := r.learn(state); err != nil {
		printer.Error(err)
	}
	return state.Generation, nil
}

// runs updates the record and reports whether the job is running. If the host
// does not reply, the job counts as running.
func (r *Record) runs(ctx context.Context, printer *console.Printer, ask asker) bool {
	_, err := r.update(ctx, printer, ask)
	if err != nil && !errors.Is(err, hosts.ErrNoState) {
		printer.Printf("job %s: %v", r.Job, err)
		return true
	}
	return err == nil && r.Verdict == nil
}

// dialling returns an asker that opens a new connection to the host for each
// request.
func (r *Record) dialling(printer *console.Printer) asker {
	return func(ctx context.Context) (protocol.State, error) {
		ctx, cancel := within(ctx, askTime)
		defer cancel()
		j, err := open(ctx, *r, printer, hosts.Reach{})
		if err != nil {
			return protocol.State{}, err
		}
		defer j.close()
		return j.state(ctx)
	}
}

// state requests the job's state from the chief's host (worker:0) over the
// job's open connection. It can be used as an asker.
func (j *Job) state(ctx context.Context) (protocol.State, error) {
	ctx, cancel := within(ctx, askTime)
	defer cancel()
	state, err := j.chief().State(ctx)
	if err != nil {
		return state, j.chief().Named(err)
	}
	return state, nil
}

// ending returns a text such as ": stopped by plx stop" about how a job ended,
// or "" if v is nil.
func ending(v *protocol.Verdict) string {
	if v == nil {
		return ""
	}
	return ": " + v.Reason
}

// PrintVerdict prints how a job ended, how long it took, and which task failed
// first. It prints the last lines of that task's stderr, unless out has just
// shown them; out may be nil. If the job saved checkpoints, it also prints how
// to resume the job.
func PrintVerdict(printer *console.Printer, r *Record, v protocol.Verdict, out *logstream.Output) {
	job, took, reason := r.Job, "", v.Reason
	if long := v.Ended.Sub(r.Created); !v.Ended.IsZero() && long > 0 {
		took = fmt.Sprintf(" (%s)", duration(long))
	}
	if v.Code == 0 {
		printer.Report(style.Good, "job %s%s: %s", job, took, reason)
		return
	}
	where := ""
	if tail := lastLines(v); len(tail) > 0 {
		where = pointer(tail)
		if out == nil || !out.Shown(v.Host, v.First.Task.String(), tail[len(tail)-1]) {
			where = ""
			printer.Printf("last lines of %s on %s:", v.First.Task, v.Host)
			for _, line := range tail {
				printer.Printf("  %s", line)
			}
		}
	}
	if len(v.Victims) > 0 {
		printer.Printf("failed because of it: %s", console.Names(v.Victims, v.MoreVictims))
	}
	level := style.Bad
	if v.Stopped() {
		level = style.Doubtful
	}
	printer.Report(level, "job %s%s: %s%s", job, took, reason, where)
	if v.Hang != nil {
		printer.Printf("hint: plx stacks %s prints where its tasks were", job)
	}
	if hint := advice(v, lastLines(v)); hint != "" {
		printer.Printf("hint: %s", hint)
	}
	if r.Saves && v.Stepped {
		printer.Printf("hint: %s", resumeHint(job))
	}
}

// duration formats how long a job took: with tenths of a second below 10
// seconds, otherwise in whole seconds.
func duration(long time.Duration) string {
	if long < 10*time.Second {
		return fmt.Sprintf("%.1fs", long.Seconds())
	}
	return long.Round(time.Second).String()
}

// lastLines returns the last stderr lines of the task that failed first, as
// the user saw them. A progress bar appears once, in its last state. lastLines
// omits the plans and tables that plx's trainer prints.
func lastLines(v protocol.Verdict) (tail []string) {
	if v.First == nil {
		return nil
	}
	for _, line := range logs.RenderedLines(v.First.Tail) {
		if !strings.HasPrefix(line, cluster.VerboseMark) {
			tail = append(tail, line)
		}
	}
	for len(tail) > 0 && tail[len(tail)-1] == "" {
		tail = tail[:len(tail)-1]
	}
	return tail
}

// pointer returns a text that refers the user to the task's last lines or its
// Python traceback, which plx has just printed.
func pointer(tail []string) string {
	traceback := func(line string) bool { return strings.HasSuffix(line, "Traceback (most recent call last):") }
	if slices.ContainsFunc(tail, traceback) {
		return "; its traceback is above"
	}
	return "; its last lines are above"
}

// resumeHint returns the hint on how to resume a job that ended before its
// training was complete.
func resumeHint(job string) string {
	return fmt.Sprintf("plx launch --resume %s resumes from its newest checkpoint", job)
}

// resumable adds resumeHint to err if the job saved checkpoints.
func (j *Job) resumable(err error) error {
	if !j.Saves {
		return err
	}
	return exit.WithHint(err, resumeHint(j.Job))
}

// Fetch copies a job's checkpoints, output files and logs into the folder dir
// of this machine. The job may be running or have ended. If patterns is not
// empty, Fetch copies only the files that match at least one pattern.
func Fetch(ctx context.Context, q Query, dir string, patterns []string) error {
	want := protocol.Wanted{Made: len(patterns) == 0}
	for _, p := range patterns {
		pattern, err := protocol.ParsePattern(p)
		if err != nil {
			return exit.Mistake(fmt.Errorf("pattern %q: %w", p, err), "plx fetch JOB DIR '*.pt' 'runs/**'")
		}
		want.Patterns = append(want.Patterns, pattern)
	}
	j, err := q.open(ctx, false)
	if err != nil {
		return err
	}
	defer j.close()
	if err := fetch.EnsureWritable(dir); err != nil {
		return exit.Mistake(err, fetch.DirHint)
	}
	err = fetch.Job(ctx, fetch.Request{Hosts: j.agents, Name: j.CheckpointName(), Outputs: j.Outputs, Wanted: want,
		Dir: dir, Printer: j.printer})
	if fetch.IsNothing(err) && len(patterns) > 0 {
		return exit.WithHint(fmt.Errorf("job %s: no file matches %s", j.Job, strings.Join(patterns, " ")), fmt.Sprintf("a pattern is relative to where the tasks ran, such as '*.pt' or 'runs/**'; plx fetch %s %s brings all that the job made there", j.Job, dir))
	}
	if fetch.IsNothing(err) {
		return exit.WithHint(fmt.Errorf("job %s: nothing to fetch: it made no files in its folders on the hosts, and %w", j.Job, err), fmt.Sprintf("in a folder of --chdir plx fetches what a pattern names: plx fetch %s %s '*.pt'", j.Job, dir))
	}
	if err != nil && ctx.Err() != nil {
		j.printer.Printf("job %s: interrupted: not everything is fetched: plx fetch %s %s fetches the rest", j.Job, j.Job, dir)
		return context.Cause(ctx)
	}
	return err
}

var unsafeInName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^A-Za-z0-9.-]`) })

// NewID returns an id for a job that is launched at time now. The id begins
// with the user's name for the job, or with title if name is empty.
func NewID(name, title string, now time.Time) string {
	title = unsafeInName().ReplaceAllString(title, "-")
	base := cmp.Or(name, strings.Trim(title, "-."), "job")
	return fmt.Sprintf("%.40s-%s-%.4s", base, now.Format("20060102-150405"), strings.ToLower(rand.Text()))
}
