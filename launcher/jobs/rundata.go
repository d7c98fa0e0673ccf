package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/internal/atomicfile"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
	"github.com/plx-run/plx/trainer/cluster"
)

// runData is what a job's hosts have stored about the job's run, for plx
// report: metrics, CPU and GPU use, the events of a detached job, and the last
// log lines.
type runData struct {
	At    time.Time  `json:"at"`    // time at which plx asked the hosts
	Whole bool       `json:"whole"` // true if the job had ended and every host replied
	Hosts []hostData `json:"hosts"`
	Tails []taskTail `json:"tails,omitempty"`
}

// hostData is what one host has stored about the job's run.
type hostData struct {
	Host   string `json:"host"`
	Failed string `json:"failed,omitempty"` // why the host did not reply; empty if it did
	protocol.Kept
}

// taskTail has the last log lines of a task.
type taskTail struct {
	Task  string   `json:"task"`
	Host  string   `json:"host"`
	Lines []string `json:"lines"`
}

const (
	// runDataTime bounds all requests to the hosts for one report.
	runDataTime = 20 * time.Second
	// tailLines is the number of last lines that a report shows of each stream
	// (stdout, stderr) of a task.
	tailLines = 20
)

// Keep saves on this machine what the hosts have stored about the run of an
// ended job, for plx report. agents are agents of the record's hosts, in any
// order. A host of the record without an agent counts as lost.
func Keep(ctx context.Context, r *Record, agents []*hosts.AgentHost) error {
	j := &Job{Record: *r}
	j.Hosts = nil
	var lost []string
	for i, h := range r.Hosts {
		at := slices.IndexFunc(agents, func(a *hosts.AgentHost) bool { return a.Folder == h.Folder })
		if at < 0 {
			lost = append(lost, h.Folder)
			continue
		}
		if i == r.Chief {
			j.Chief = len(j.Hosts)
		}
		j.Hosts, j.agents = append(j.Hosts, h), append(j.agents, agents[at])
	}
	c, err := j.ask(ctx)
	for _, folder := range lost {
		c.Hosts = append(c.Hosts, hostData{Host: folder, Failed: "the host was lost"})
	}
	c.Whole = c.Whole && len(lost) == 0
	return errors.Join(err, c.save(r.Job))
}

// keep asks the hosts for what they have stored about the job's run. It saves
// the replies, provided that this machine has the job's record. The error
// names the hosts that did not reply.
func (j *Job) keep(ctx context.Context) (runData, error) {
	c, err := j.ask(ctx)
	if j.found {
		return c, err
	}
	return c, errors.Join(err, c.save(j.Job))
}

// ask requests from all hosts what they have stored about the job's run, and
// reads the last log lines. If some hosts do not reply, it returns the replies
// of the others together with the error.
func (j *Job) ask(ctx context.Context) (runData, error) {
	ctx, cancel := within(ctx, runDataTime)
	defer cancel()
	c := runData{At: time.Now().UTC(), Hosts: make([]hostData, len(j.agents))}
	limit := maxRunData * 3 / 4 / max(1, len(j.agents)) // base64 makes the data 4/3 as large in the JSON file, so limit is 3/4 of each host's share
	err := hosts.Each(ctx, j.agents, func(i int, a *hosts.AgentHost) (err error) {
		c.Hosts[i].Host = a.Name()
		if c.Hosts[i].Kept, err = keptOn(ctx, a, limit, i == j.Chief && j.Detached); err != nil {
			c.Hosts[i].Failed = err.Error()
		}
		return err
	})
	tails, failed := j.tails(ctx)
	c.Tails, err = tails, errors.Join(err, failed)
	c.Whole = j.Verdict != nil && err == nil
	return c, err
}

// save writes the run data as JSON into the folder of the job with the given id.
func (c runData) save(job string) error {
	text, err := json.Marshal(c)
	if err == nil && len(text) > 2*maxRunData {
		err = errors.New("the data is too large")
	}
	var path string
	if err == nil {
		path, err = inFolder(job, runDataFile)
	}
	if err == nil {
		err = atomicfile.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep the metrics of job %s: %w", job, err)
	}
	return nil
}

// readRunData reads the file that runData.save has written. It returns nil if
// the file does not exist or is damaged.
func readRunData(job string) *runData {
	var c runData
	text, err := readFile(job, runDataFile, 2*maxRunData)
	if err != nil || json.Unmarshal(text, &c) != nil {
		return nil
	}
	return &c
}

// keptOn requests what a host has stored about the run of its job, at most
// limit bytes. If events is true, the reply includes the job's events. The
// error is hosts.ErrNoState if the host has no files of the job any more.
func keptOn(ctx context.Context, a *hosts.AgentHost, limit int, events bool) (protocol.Kept, error) {
	want := protocol.WantKept{HostJob: protocol.HostJob{Job: a.Job, Folder: a.Folder}, Bytes: limit, Events: events}
	kept, err := hosts.Call[protocol.Kept](ctx, a, hosts.AnswerTime, protocol.DoKept, want)
	switch {
	case protocol.CodeForgotten.Is(err):
		return kept, hosts.ErrNoState
	case err != nil:
		return kept, fmt.Errorf("read the metrics: %w", err)
	}
	return kept, nil
}

// histories decodes the metrics of a host. The map's key is a task's name, or
// protocol.OfHost for the host's own metrics. damaged describes the metrics
// that cannot be decoded.
func histories(kept protocol.Kept) (all map[string]*metrics.History, damaged []string) {
	all, damaged = map[string]*metrics.History{}, slices.Clone(kept.Damaged)
	for _, name := range slices.Sorted(maps.Keys(kept.Histories)) {
		h := &metrics.History{}
		if err := h.UnmarshalBinary(kept.Histories[name]); err != nil {
			damaged = append(damaged, fmt.Sprintf("the metrics of %s: %v", name, err))
			continue
		}
		all[name] = h
	}
	return all, damaged
}

// tails reads the last log lines of the chief (worker:0) and of the task that
// caused the job's failure.
func (j *Job) tails(ctx context.Context) (all []taskTail, err error) {
	tasks := []string{"worker:0"}
	if v := j.Verdict; v != nil && v.Culprit != "" && v.Culprit != tasks[0] {
		tasks = append(tasks, v.Culprit)
	}
	its := j.tasks()
	tasks = slices.DeleteFunc(tasks, func(t string) bool { return !slices.Contains(its, t) })
	if len(tasks) == 0 {
		return nil, nil
	}
	agents, err := j.choose(nil, tasks)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	quiet := &Job{Record: j.Record, agents: j.agents, printer: console.NewPrinter(console.Terminal{Stdout: &text, Stderr: io.Discard})}
	_, err = quiet.print(ctx, agents, logs.Request{Tasks: tasks, TailLines: tailLines}, logs.Options{JSON: true, Verbose: true}, nil)
	for line := range bytes.Lines(text.Bytes()) {
		var of struct{ Host, Task, Line string }
		if json.Unmarshal(line, &of) != nil || of.Task == "" || strings.HasPrefix(of.Line, cluster.VerboseMark) {
			continue
		}
		i := slices.IndexFunc(all, func(t taskTail) bool { return t.Task == of.Task && t.Host == of.Host })
		if i < 0 {
			i, all = len(all), append(all, taskTail{Task: of.Task, Host: of.Host})
		}
		of.Line = of.Line[:min(len(of.Line), longestLine)]
		all[i].Lines = append(all[i].Lines, of.Line)
	}
	return all, err
}

// longestLine bounds the length of a log line in a report, in bytes.
const longestLine = 4 << 10
