// Package event writes what happens to a job as lines of JSON: to the standard output of plx launch
// --json, and into a file that stays with the job.
//
//	log := event.New(event.File(path))
//	log.Begin("mnist-1", "mnist", "./train", plan.Hosts)
//
// docs/output.md lists the events and their fields. Package driver reports what it hears of tasks and
// decides; the launcher, or the agent of a detached job, reports the beginning and the end.
package event

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/plx-run/plx/internal/bounded"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
	"github.com/plx-run/plx/trainer/cluster"
)

// Log writes the events of a job. A nil Log writes nothing. Its methods may be called from any goroutine.
type Log struct {
	mu    sync.Mutex
	sinks []Sink
	job   string           // id of the job; empty: it has none yet
	ended map[taskRun]bool // whose end was written: an agent may report it twice
}

// Sink takes one line at a time, with its line feed. It reports no error: a job goes on without its events.
type Sink func(kind Kind, line []byte)

// New returns a log that writes to the sinks.
func New(sinks ...Sink) *Log {
	return &Log{sinks: sinks, ended: map[taskRun]bool{}}
}

// Add adds a sink, which gets the later events.
func (l *Log) Add(s Sink) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sinks = append(l.sinks, s)
}

// Kind is what an event tells.
type Kind string

// The kinds.
const (
	Begin   Kind = "begin"   // the hosts are ready
	Start   Kind = "start"   // a task has started
	Exit    Kind = "exit"    // a task has ended
	Restart Kind = "restart" // a further generation of tasks begins
	Hang    Kind = "hang"    // nothing moves in the job
	Note    Kind = "note"    // the driver has decided or found something
	End     Kind = "end"     // the job has ended
)

// Bounds of the file of a job, in bytes. Up to MaxFile there is room for the events that matter most.
const (
	MaxFile  = 2 << 20
	fileRoom = MaxFile - 256<<10 // for starts, exits and notes
)

// File returns a sink that appends to a file of mode 0600, as far as it may grow. The file is made
// with the first event.
func File(path string) Sink {
	return func(kind Kind, line []byte) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return
		}
		defer f.Close() // the line was written, or the disk is full
		limit := int64(MaxFile)
		if kind == Start || kind == Exit || kind == Note {
			limit = fileRoom
		}
		if info, err := f.Stat(); err == nil && info.Size()+int64(len(line)) <= limit {
			_, _ = f.Write(line)
		}
	}
}

// ReadFile reads the events of a file; none if there is no file.
func ReadFile(path string) ([]Event, error) {
	text, err := bounded.ReadFile(path, MaxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return Parse(text), err
}

// Parse reads the lines of a file. It leaves out lines that are no events, such as a last one that a
// crash has cut, and those of a version that it does not know.
func Parse(text []byte) (all []Event) {
	for line := range bytes.Lines(text) {
		var e Event
		if json.Unmarshal(line, &e) == nil && e.Version == version && e.Event != "" {
			all = append(all, e)
		}
	}
	return all
}

// taskRun is a task in one generation.
type taskRun struct {
	task       cluster.Task
	generation int
}

// version changes when a field loses its meaning. New fields and events may come without.
const version = 1

// Event is one event. docs/output.md says which have which fields.
type Event struct {
	Version int    `json:"v"`
	Event   Kind   `json:"event"`
	Time    string `json:"time"` // as in the lines of tasks
	Job     string `json:"job,omitempty"`

	Name       string   `json:"name,omitempty"`
	Program    string   `json:"program,omitempty"`
	Generation *int     `json:"generation,omitempty"`
	Hosts      []Host   `json:"hosts,omitempty"`
	Host       string   `json:"host,omitempty"`
	Task       string   `json:"task,omitempty"`
	Status     *int     `json:"status,omitempty"`
	Signal     int      `json:"signal,omitempty"`
	Seconds    *float64 `json:"seconds,omitempty"`
	Culprit    string   `json:"culprit,omitempty"`
	Why        string   `json:"why,omitempty"`
	Text       string   `json:"text,omitempty"`
	Verdict    string   `json:"verdict,omitempty"`
	Error      string   `json:"error,omitempty"`
}

// Host is a host with its tasks.
type Host struct {
	Host  string `json:"host"`
	Tasks []Task `json:"tasks"`
}

// Task is a task of a plan.
type Task struct {
	Task    string `json:"task"`
	Devices string `json:"devices,omitempty"`
}

// write writes an event.
func (l *Log) write(kind Kind, of Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of.Version, of.Event, of.Job = version, kind, l.job
	of.Time = time.Now().UTC().Format(Stamp)
	text, _ := json.Marshal(of) // texts and numbers can always be encoded
	for _, sink := range l.sinks {
		sink(kind, append(logs.EscapeJSON(text), '\n'))
	}
}

// Stamp is the form of an event's time.
const Stamp = "2006-01-02T15:04:05.000000000Z"

// seconds is a time in seconds, to the millisecond.
func seconds(d time.Duration) *float64 {
	s := math.Round(d.Seconds()*1000) / 1000
	return &s
}

// hostsOf lists the hosts that have tasks.
func hostsOf(plan []protocol.HostPlan) (all []Host) {
	for _, h := range plan {
		if len(h.Tasks) == 0 {
			continue
		}
		one := Host{Host: h.Host}
		for _, t := range h.Tasks {
			one.Tasks = append(one.Tasks, Task{t.Task.String(), t.Devices})
		}
		all = append(all, one)
	}
	return all
}

// Begin is the first event of a job: its plan.
func (l *Log) Begin(job, name, program string, plan []protocol.HostPlan) {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.job = job
	l.mu.Unlock()
	l.write(Begin, Event{Name: name, Program: program, Hosts: hostsOf(plan)})
}

// Started says that the tasks of a host have started, an event for each.
func (l *Log) Started(host string, s protocol.Started) {
	if l == nil {
		return
	}
	for _, task := range slices.SortedFunc(maps.Keys(s.PIDs), func(a, b cluster.Task) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Index, b.Index))
	}) {
		l.write(Start, Event{Host: host, Task: task.String(), Generation: &s.Generation})
	}
}

// Exited says that a task has ended.
func (l *Log) Exited(host string, x protocol.Exit) {
	if l == nil {
		return
	}
	run := taskRun{x.Task, x.Generation}
	l.mu.Lock()
	twice := l.ended[run]
	l.ended[run] = true
	l.mu.Unlock()
	if !twice {
		l.write(Exit, Event{Host: host, Task: x.Task.String(), Generation: &x.Generation, Status: &x.Code, Signal: x.Signal})
	}
}

// Restarted says that a further generation begins, and where.
func (l *Log) Restarted(generation int, plan []protocol.HostPlan) {
	if l != nil {
		l.write(Restart, Event{Generation: &generation, Hosts: hostsOf(plan)})
	}
}

// Hung says that nothing moves.
func (l *Log) Hung(h protocol.Hang) {
	if l != nil {
		l.write(Hang, Event{Seconds: seconds(h.After), Culprit: h.Culprit, Host: h.Host, Why: h.Why})
	}
}

// Noted has a line of the driver for the user, such as why the job restarts.
func (l *Log) Noted(text string) {
	if l != nil {
		l.write(Note, Event{Text: text})
	}
}

// Ended is the last event: plx's exit status, the verdict on a job that began, and an error.
func (l *Log) Ended(status int, verdict string, took time.Duration, err error) {
	if l == nil {
		return
	}
	of := Event{Status: &status, Verdict: verdict, Seconds: seconds(took)}
	if err != nil {
		of.Error = err.Error()
	}
	l.write(End, of)
}
