package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs/style"
	"github.com/plx-run/plx/trainer/cluster"
)

// pollTime bounds the request to a host for the state of its tasks.
const pollTime = 20 * time.Second

// status is the output of plx status: a job and its tasks.
type status struct {
	row
	Verdict     *protocol.Verdict `json:"verdict,omitempty"` // how the job ended; nil if it runs or its end is not known
	TaskRows    []taskStatus      `json:"taskStatus,omitempty"`
	Unreachable []string          `json:"unheard,omitempty"` // errors of the hosts that did not reply, one per host
}

// taskStatus is one task of a running job. The task may have ended already.
type taskStatus struct {
	Task   string  `json:"task"`
	Host   string  `json:"host"`
	PID    int     `json:"pid,omitempty"`
	Step   int64   `json:"step,omitempty"` // highest step number that the task has reported; 0 if none
	Age    float64 `json:"age,omitempty"`  // seconds since the task's process started; 0 if not known
	Idle   float64 `json:"still"`          // seconds for which the task has used no processor time and made no input or output
	IOIdle float64 `json:"quiet"`          // seconds for which the task has made no input or output
	// Metrics has the newest value of each metric that the task reported, by
	// name. It is nil if the task reported none, or if the agent's plx is too
	// old to collect metrics.
	Metrics map[string]metrics.Number `json:"metrics,omitempty"`
	Code    *int                      `json:"code,omitempty"` // exit status; nil while the task runs
	idle    bool                      // the task is a parameter server that ended because no worker needs it, see idleServer
}

// Status prints what each task of a running job does, or how a job has ended.
func Status(ctx context.Context, q Query, asJSON bool) error {
	queued, err := submissionOf(ctx, q)
	if err != nil {
		return err
	}
	if queued != nil {
		if r, shown := queued.row(ctx); shown && asJSON {
			return json.NewEncoder(q.Terminal.JSON()).Encode(status{row: r})
		} else if shown {
			return printRows(q.Terminal, q.printer(), []row{r})
		}
	}
	j, err := q.open(ctx, false)
	if err != nil {
		return err
	}
	defer j.close()
	r := j.Record // a copy, because j.state may change j.Record
	s := status{row: newRow(ctx, &r, j.printer, j.state)}
	if s.runs() {
		s.TaskRows, s.Unreachable = j.pollTasks(ctx)
	} else {
		s.Verdict = r.Verdict
	}
	if asJSON {
		return json.NewEncoder(q.Terminal.JSON()).Encode(s)
	}
	return s.print(q.Terminal, j)
}

// pollTasks asks the agents what their tasks do. unreachable has an error for each host
// that did not reply.
func (j *Job) pollTasks(ctx context.Context) (all []taskStatus, unreachable []string) {
	ctx, cancel := within(ctx, pollTime)
	defer cancel()
	present := j.present()
	found, failed := make([][]taskStatus, len(present)), make([]error, len(present))
	_ = hosts.Each(ctx, present, func(i int, a *hosts.AgentHost) error { // the error of hosts.Each is ignored: failed has the same errors
		state, seen, err := ask(ctx, a, protocol.ActivityRequest{Metrics: true})
		if err != nil {
			failed[i] = fmt.Errorf("ask what its tasks do: %w", err)
			return nil
		}
		found[i] = statuses(a, state, seen)
		return nil
	})
	for i, err := range failed {
		if err != nil {
			unreachable = append(unreachable, present[i].Named(err).Error())
		}
		all = append(all, found[i]...)
	}
	return all, unreachable
}

// statuses returns the tasks of host a. It combines the state of the host's
// agent with seen, the agent's report about what the tasks do.
func statuses(a *hosts.AgentHost, state protocol.State, seen protocol.ActivityReport) (all []taskStatus) {
	for name, now := range state.Tasks {
		t := taskStatus{Task: name, Host: a.Name(), PID: now.PID, Step: now.Step}
		if now.Exit != nil {
			t.Code = &now.Exit.Code
			t.idle = idleServer(name, *now.Exit)
		}
		if task, err := cluster.ParseTask(name); err == nil && seen.Tasks[task] != nil {
			a := seen.Tasks[task]
			t.Age, t.Idle, t.IOIdle = a.Age.Seconds(), a.Idle.Seconds(), a.IOIdle.Seconds()
			t.Metrics = a.Metrics
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b taskStatus) int { return compareTasks(a.Task, b.Task) })
	return all
}

// idleServer reports whether a task is a parameter server of plx's trainer
// that ended by itself with status 0. Such a server ends if it stores no
// variables, or if all workers have finished.
func idleServer(name string, e protocol.Exit) bool {
	task, err := cluster.ParseTask(name)
	return err == nil && task.Role == cluster.PS && e.Native && e.Finished && e.Code == 0 && !e.StopRequested
}

// ask connects to an agent and sends it the request m. It returns the agent's
// state and the agent's reply to m.
func ask(ctx context.Context, a *hosts.AgentHost, m protocol.ActivityRequest) (protocol.State, protocol.ActivityReport, error) {
	v, err := a.Visitor(ctx)
	if err != nil {
		return protocol.State{}, protocol.ActivityReport{}, err
	}
	defer v.Close() // the error is ignored: every reply has arrived
	return v.Poll(ctx, m)
}

// compareTasks orders task names by role, workers before parameter servers,
// and then by index.
func compareTasks(a, b string) int {
	x, err1 := cluster.ParseTask(a)
	y, err2 := cluster.ParseTask(b)
	if err1 != nil || err2 != nil || x.Role != y.Role {
		return strings.Compare(b, a) // the arguments are swapped, because "worker" comes before "ps"
	}
	return x.Index - y.Index
}

func (s status) print(t console.Terminal, j *Job) error {
	if err := printRows(t, j.printer, []row{s.row}); err != nil {
		return err
	}
	if s.Verdict != nil {
		err := printEnds(t, *s.Verdict)
		printRecord(j.printer, *s.Verdict)
		PrintVerdict(j.printer, &j.Record, *s.Verdict, nil)
		return err
	}
	for _, why := range s.Unreachable {
		j.printer.Printf("%s", why)
	}
	if len(s.TaskRows) == 0 {
		return nil
	}
	table := console.NewTable("TASK", "HOST", "PID", "AGE", "STEP", "IDLE", "STATE")
	table.Level = taskLevel
	for _, r := range s.TaskRows {
		table.Row(r.Task, r.Host, strconv.Itoa(r.PID), seconds(r.Age), stepOf(r), seconds(r.Idle), stateOf(r))
	}
	return table.Write(t)
}

// taskLevel returns the colour for a cell of the columns STATE and PART. PART
// says the task's part in the job's failure, such as culprit or victim.
func taskLevel(column, cell string) style.Level {
	switch {
	case column == "STATE" && (cell == moves || cell == notNeeded || cell == exited(0)):
		return style.Good
	case column == "STATE" && strings.HasPrefix(cell, exited("")):
		return style.Bad
	case column == "STATE", column == "PART" && (cell == string(protocol.Victim) || cell == string(protocol.Unknown)):
		return style.Doubtful
	case column == "PART" && (cell == string(protocol.Culprit) || cell == string(protocol.Failed)):
		return style.Bad
	}
	return style.Plain
}

// printEnds prints a table of how each task of a failed job has ended.
func printEnds(t console.Terminal, v protocol.Verdict) error {
	if len(v.Ends) == 0 {
		return nil
	}
	table := console.NewTable("TASK", "HOST", "PART", "CODE", "SIGNAL", "CAUSE")
	table.Level = taskLevel
	for _, e := range v.Ends {
		code, signal := strconv.Itoa(e.Code), ""
		if e.Part == protocol.Unknown {
			code = ""
		}
		if e.Signal != 0 {
			signal = unix.SignalName(syscall.Signal(e.Signal))
		}
		table.Row(e.Task, e.Host, string(e.Part), code, signal, e.Cause)
	}
	if v.MoreEnds > 0 {
		table.Row(fmt.Sprintf("and %d more", v.MoreEnds), "", "", "", "", "")
	}
	return table.Write(t)
}

// printRecord prints again the messages that plx printed while the job ran.
// For a job that hung, it also prints where the stacks are stored.
func printRecord(printer *console.Printer, v protocol.Verdict) {
	if v.Hang != nil {
		for _, line := range v.Hang.Waits {
			printer.Printf("%s", line)
		}
	}
	for _, line := range v.Notices {
		printer.Printf("%s", line)
	}
	if v.Hang != nil && v.Hang.File != "" {
		printer.Printf("stacks of %s: %s on %s", v.Hang.Culprit, v.Hang.File, v.Hang.Host)
	}
}

func stepOf(r taskStatus) string {
	if r.Step == 0 {
		return ""
	}
	return strconv.FormatInt(r.Step, 10)
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

// fresh is the time without activity, in seconds, below which a task still
// counts as active.
const fresh = 10

const (
	moves     = "moves"
	notNeeded = "done: no worker needs it"
)

func exited(status any) string { return fmt.Sprint("exited with status ", status) }

// stateOf returns the text of the column STATE for a task.
func stateOf(r taskStatus) string {
	switch {
	case r.idle:
		return notNeeded
	case r.Code != nil:
		return exited(*r.Code)
	case r.PID == 0:
		return "not started"
	case r.IOIdle < fresh:
		return moves
	case r.Idle < fresh:
		return "computes, and nothing else for " + seconds(r.IOIdle)
	}
	return "idle"
}
