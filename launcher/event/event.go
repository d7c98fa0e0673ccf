// Package event writes the events of a job as JSON lines. They go to the
// standard output of plx launch --json, and to a file that is stored with the
// job.
//
//	log := event.New(event.File(path))
//	log.Begin("mnist-1", "mnist", "./train", plan.Hosts)
//
// The events and their fields are documented in docs/output.md. Package driver
// reports task events and its own decisions. The launcher reports the begin
// and the end of the job. For a detached job, the agent that controls the job
// does so.
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

// Log writes the events of a job to its sinks. A nil Log writes nothing. The
// methods may be called from any goroutine.
type Log struct {
	mu    sync.Mutex
	sinks []Sink
	job   string           // id of the job; "" before Begin
	ended map[taskRun]bool // tasks whose exit event was written; it prevents a second event, because an agent may report an exit twice
}

// Sink receives one event as a JSON line that ends with a newline. It returns
// no error, because a job continues even if its events cannot be written.
type Sink func(kind Kind, line []byte)

// New returns a log that writes to the sinks.
func New(sinks ...Sink) *Log {
	return &Log{sinks: sinks, ended: map[taskRun]bool{}}
}

// Add adds a sink, which receives all later events.
func (l *Log) Add(s Sink) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sinks = append(l.sinks, s)
}

// Kind is the type of an event.
type Kind string

// The kinds of events.
const (
	Begin   Kind = "begin"   // the hosts are ready
	Start   Kind = "start"   // a task has started
	Exit    Kind = "exit"    // a task has ended
	Restart Kind = "restart" // a new generation of tasks begins after a failure or a change of hosts
	Hang    Kind = "hang"    // the job has made no progress for the hang timeout
	Note    Kind = "note"    // a message of the driver for the user
	End     Kind = "end"     // the job has ended
)

// Size limits of a job's event file, in bytes. When the file is larger than
// fileRoom, only the rarer and more important events (begin, restart, hang,
// end) are written.
const (
	MaxFile  = 2 << 20
	fileRoom = MaxFile - 256<<10 // size in bytes up to which start, exit and note events are written; the rest of the file is kept free for other kinds
)

// File returns a sink that appends events to a file of mode 0600, up to a size
// limit. The first event creates the file.
func File(path string) Sink {
	return func(kind Kind, line []byte) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return
		}
		defer f.Close() // ignore the error: a job continues even if its events cannot be written
		limit := int64(MaxFile)
		if kind == Start || kind == Exit || kind == Note {
			limit = fileRoom
		}
		if info, err := f.Stat(); err == nil && info.Size()+int64(len(line)) <= limit {
			_, _ = f.Write(line)
		}
	}
}

// ReadFile returns the events in a file, or nil if the file does not exist.
func ReadFile(path string) ([]Event, error) {
	text, err := bounded.ReadFile(path, MaxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return Parse(text), err
}

// Parse returns the events in the content of an event file. It skips lines
// that are not valid events, such as a truncated last line, and events of
// unknown versions.
func Parse(text []byte) (all []Event) {
	for line := range bytes.Lines(text) {
		var e Event
		if json.Unmarshal(line, &e) == nil && e.Version == version && e.Event != "" {
			all = append(all, e)
		}
	}
	return all
}

// taskRun identifies one run of a task: the task, and the generation (the
// number of restarts of the job before that run).
type taskRun struct {
	task       cluster.Task
	generation int
}

// version is the version of the event format. It changes only if the meaning
// of a field changes, not for new fields or events.
const version = 1

// Event is one event of a job. The file docs/output.md lists the fields of
// each kind.
type Event struct {
	Version int    `json:"v"`
	Event   Kind   `json:"event"`
	Time    string `json:"time"` // UTC, in the format TimeFormat, as in the tasks' output lines
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

// Host is a host of a job with its tasks, in an event.
type Host struct {
	Host  string `json:"host"`
	Tasks []Task `json:"tasks"`
}

// Task is a task of a job with its devices, in an event.
type Task struct {
	Task    string `json:"task"`
	Devices string `json:"devices,omitempty"`
}

// write writes an event of the given kind to all sinks. It fills in version,
// kind, job and time.
func (l *Log) write(kind Kind, of Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of.Version, of.Event, of.Job = version, kind, l.job
	of.Time = time.Now().UTC().Format(TimeFormat)
	text, _ := json.Marshal(of) // there is no error: strings and finite numbers can always be encoded
	for _, sink := range l.sinks {
		sink(kind, append(logs.EscapeJSON(text), '\n'))
	}
}

// TimeFormat is the time format of events, for time.Format.
const TimeFormat = "2006-01-02T15:04:05.000000000Z"

// seconds returns d in seconds, rounded to milliseconds.
func seconds(d time.Duration) *float64 {
	s := math.Round(d.Seconds()*1000) / 1000
	return &s
}

// hostsOf returns the hosts of a plan that have tasks.
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

// Begin writes the first event of a job: its name, program, hosts and tasks.
func (l *Log) Begin(job, name, program string, plan []protocol.HostPlan) {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.job = job
	l.mu.Unlock()
	l.write(Begin, Event{Name: name, Program: program, Hosts: hostsOf(plan)})
}

// Started writes a start event for each task that a host has started.
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

// Exited writes the exit event of a task, at most once per generation.
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

// Restarted writes the event that a new generation of tasks begins, with its
// hosts.
func (l *Log) Restarted(generation int, plan []protocol.HostPlan) {
	if l != nil {
		l.write(Restart, Event{Generation: &generation, Hosts: hostsOf(plan)})
	}
}

// Hung writes the event that the job makes no progress.
func (l *Log) Hung(h protocol.Hang) {
	if l != nil {
		l.write(Hang, Event{Seconds: seconds(h.After), Culprit: h.Culprit, Host: h.Host, Why: h.Why})
	}
}

// Noted writes a message of the driver for the user, such as why the job
// restarts.
func (l *Log) Noted(text string) {
	if l != nil {
		l.write(Note, Event{Text: text})
	}
}

// Ended writes the last event: plx's exit status, the verdict if the job had
// begun, and the error, if any.
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
