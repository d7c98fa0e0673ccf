package launcher

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
	"github.com/plx-run/plx/trainer/cluster"
)

// events writes what happens to a job to stdout (--json), each event as one JSON object in a line,
// between the lines of tasks. A nil events writes nothing. Its methods may be called from any
// goroutine.
type events struct {
	printer *console.Printer

	mu    sync.Mutex
	job   string           // its id, once it has one
	ended map[taskRun]bool // whose end was written: an agent may report it twice
}

// taskRun is a task in one generation.
type taskRun struct {
	task       cluster.Task
	generation int
}

// eventsVersion changes when a field loses its meaning. New fields and events may come without.
const eventsVersion = 1

// event is one event. docs/output.md says which have which fields.
type event struct {
	Version int    `json:"v"`
	Event   string `json:"event"`
	Time    string `json:"time"` // as in the lines of tasks
	Job     string `json:"job,omitempty"`

	Name       string      `json:"name,omitempty"`
	Program    string      `json:"program,omitempty"`
	Generation *int        `json:"generation,omitempty"`
	Hosts      []eventHost `json:"hosts,omitempty"`
	Host       string      `json:"host,omitempty"`
	Task       string      `json:"task,omitempty"`
	Status     *int        `json:"status,omitempty"`
	Signal     int         `json:"signal,omitempty"`
	Seconds    *float64    `json:"seconds,omitempty"`
	Culprit    string      `json:"culprit,omitempty"`
	Why        string      `json:"why,omitempty"`
	Verdict    string      `json:"verdict,omitempty"`
	Error      string      `json:"error,omitempty"`
}

// eventHost is a host with its tasks.
type eventHost struct {
	Host  string      `json:"host"`
	Tasks []eventTask `json:"tasks"`
}

// eventTask is a task of a plan.
type eventTask struct {
	Task    string `json:"task"`
	Devices string `json:"devices,omitempty"`
}

// newEvents returns what writes the events to the stdout of a Printer, nil if they are not asked for.
func newEvents(asked bool, printer *console.Printer) *events {
	if !asked {
		return nil
	}
	return &events{printer: printer, ended: map[taskRun]bool{}}
}

// write writes an event. It ignores errors: the next line of a task meets them too, and a job whose
// output nobody reads is stopped.
func (e *events) write(kind string, of event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	of.Version, of.Event, of.Job = eventsVersion, kind, e.job
	of.Time = time.Now().UTC().Format("2006-01-02T15:04:05.000000000Z")
	text, _ := json.Marshal(of) // texts and numbers can always be encoded
	_ = e.printer.Display().Write(logs.Stdout, append(logs.EscapeJSON(text), '\n'))
}

// seconds is a time in seconds, to the millisecond.
func seconds(d time.Duration) *float64 {
	s := math.Round(d.Seconds()*1000) / 1000
	return &s
}

// hostsOf lists the hosts that have tasks.
func hostsOf(plan []protocol.HostPlan) (all []eventHost) {
	for _, h := range plan {
		if len(h.Tasks) == 0 {
			continue
		}
		one := eventHost{Host: h.Host}
		for _, t := range h.Tasks {
			one.Tasks = append(one.Tasks, eventTask{t.Task.String(), t.Devices})
		}
		all = append(all, one)
	}
	return all
}

// begin is the first event of a job: its plan.
func (e *events) begin(job, name, program string, plan []protocol.HostPlan) {
	if e == nil {
		return
	}
	e.mu.Lock()
	e.job = job
	e.mu.Unlock()
	e.write("begin", event{Name: name, Program: program, Hosts: hostsOf(plan)})
}

// start says that the tasks of a host have started, an event for each.
func (e *events) start(host string, s protocol.Started) {
	if e == nil {
		return
	}
	for _, task := range slices.SortedFunc(maps.Keys(s.PIDs), func(a, b cluster.Task) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Index, b.Index))
	}) {
		e.write("start", event{Host: host, Task: task.String(), Generation: &s.Generation})
	}
}

// exit says that a task has ended.
func (e *events) exit(host string, x protocol.Exit) {
	if e == nil {
		return
	}
	run := taskRun{x.Task, x.Generation}
	e.mu.Lock()
	twice := e.ended[run]
	e.ended[run] = true
	e.mu.Unlock()
	if !twice {
		e.write("exit", event{Host: host, Task: x.Task.String(), Generation: &x.Generation, Status: &x.Code, Signal: x.Signal})
	}
}

// restart says that a further generation begins, and where.
func (e *events) restart(generation int, plan []protocol.HostPlan) {
	if e != nil {
		e.write("restart", event{Generation: &generation, Hosts: hostsOf(plan)})
	}
}

// hang says that nothing moves.
func (e *events) hang(h protocol.Hang) {
	if e != nil {
		e.write("hang", event{Seconds: seconds(h.After), Culprit: h.Culprit, Host: h.Host, Why: h.Why})
	}
}

// end is the last event: plx's exit status, the verdict on a job that began, and an error.
func (e *events) end(status int, verdict string, took time.Duration, err error) {
	if e == nil {
		return
	}
	of := event{Status: &status, Verdict: verdict, Seconds: seconds(took)}
	if err != nil {
		of.Error = err.Error()
	}
	e.write("end", of)
}

// EndEvent writes the only event of a launch that is wrong before Launch is called.
func EndEvent(t console.Terminal, err error) {
	newEvents(true, console.NewPrinter(t)).end(exit.Code(err), "", 0, err)
}
