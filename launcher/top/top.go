// Package top shows a full-screen view of a job in the terminal: the load of
// its hosts and GPUs, what its tasks do, a curve of the loss, and the logs. It
// also shows hosts without a job.
//
//	v := top.New(top.Config{Title: "job train-1", Line: line, Colour: true})
//	go func() { v.Set(hosts, tasks) }() // after each poll of the hosts
//	fmt.Fprintln(v, "worker:0 h1 | step 1") // lines of the log pane
//	err := v.Run(ctx, os.Stdin, os.Stderr)
//
// The package asks no hosts: the caller supplies all that it shows. It uses no
// clock except the ticks that redraw the view.
package top

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/plx-run/plx/launcher/live"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs/style"
)

// Config has the settings of a View that do not change.
type Config struct {
	Title  string     // name of what the view shows, such as "job train-1"
	Line   *live.Line // status line of the job; nil if the view shows hosts without a job
	Colour bool
}

// Host is the current state of a host.
type Host struct {
	Name    string
	Use     *protocol.HostUse // load of the host; nil if not known
	Trouble string            // why Use is nil; empty if the host has not replied yet
}

// Task is the current state of a task.
type Task struct {
	Name, Host string
	State      string // what the task does, as plx status prints it, such as "moves"
	Level      style.Level
	Age        time.Duration // time since the task's start; 0 if not known
	Waits      string        // what the task waits for; empty if not known
	Computes   bool          // true if the task is computing, false if it is waiting
	Ended      bool
}

// View is the full-screen view. Its methods may be called by any goroutine,
// Run only once.
type View struct {
	cfg Config

	mu    sync.Mutex
	hosts []Host
	tasks []Task
	busy  map[string]float64 // by task name: the share of recent polls in which the task was computing
	lines []string           // lines of the log, the newest last
	rest  string             // incomplete last line of the log
	over  string             // how the job ended; empty while it runs
}

// maxLines is the number of log lines that a View keeps. maxRest is the
// maximum length of an incomplete line in bytes.
const (
	maxLines = 5000
	maxRest  = 64 << 10
)

// New returns a View.
func New(cfg Config) *View { return &View{cfg: cfg} }

// Set replaces the hosts and tasks that the view shows.
func (v *View) Set(hosts []Host, tasks []Task) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hosts, v.tasks = hosts, tasks
	busy := make(map[string]float64, len(tasks))
	for _, t := range tasks {
		now := 0.0
		if t.Computes {
			now = 1
		}
		before, known := v.busy[t.Name]
		if !known {
			before = now
		}
		busy[t.Name] = before + (now-before)*newest
	}
	v.busy = busy
}

// newest is the weight of the newest poll in the moving average View.busy.
// With this weight, the average covers about ten polls.
const newest = 0.2

// End sets the text that says how the job has ended. The view stays open until
// the user leaves it.
func (v *View) End(how string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.over = how
}

// Write adds lines to the log pane. The caller must have removed control
// sequences that are dangerous on a terminal.
func (v *View) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	lines := strings.Split(v.rest+string(p), "\n")
	last := len(lines) - 1
	v.rest = lines[last][:min(len(lines[last]), maxRest)]
	v.lines = append(v.lines, lines[:last]...)
	if over := len(v.lines) - maxLines; over > maxLines/10 { // drop many lines at once, because each drop moves all remaining lines
		v.lines = append(v.lines[:0], v.lines[over:]...)
	}
	return len(p), nil
}

// snapshot is a copy of a View's data at one moment.
type snapshot struct {
	Config
	hosts []Host
	tasks []Task
	busy  map[string]float64
	lines []string
	over  string
}

func (v *View) snapshot() snapshot {
	v.mu.Lock()
	defer v.mu.Unlock()
	// The view never changes an element of hosts, tasks or busy, so a snapshot
	// may share them.
	return snapshot{v.cfg, v.hosts, v.tasks, v.busy, append([]string(nil), v.lines...), v.over}
}

// Run shows the view on the terminal until the user leaves it or ctx ends.
func (v *View) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	p := tea.NewProgram(newModel(v), tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithAltScreen(), tea.WithFPS(10))
	_, err := p.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, tea.ErrInterrupted) {
		return nil // the user has left the view with Ctrl-C
	}
	return err
}
