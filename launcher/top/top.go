// Package top is the full-screen view of a job, or of hosts without one: how much of the hosts and
// their GPUs is used, what the tasks do, the curve of the loss, and the logs.
//
//	v := top.New(top.Config{Title: "job train-1", Line: line, Colour: true})
//	go func() { v.Set(hosts, tasks) }() // whenever the hosts have answered
//	fmt.Fprintln(v, "worker:0 h1 | step 1") // lines of the log pane
//	err := v.Run(ctx, os.Stdin, os.Stderr)
//
// It asks nobody and reads no clock but its own ticks: what it shows is given to it.
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

// Config is what a View shows beside what it is given later.
type Config struct {
	Title  string     // such as "job train-1"
	Line   *live.Line // of the job; nil: there is no job
	Colour bool
}

// Host is a host as it is now.
type Host struct {
	Name    string
	Use     *protocol.HostUse // nil: not known
	Trouble string            // why it is not; "": it has not answered yet, or cannot tell
}

// Task is a task as it is now.
type Task struct {
	Name, Host string
	State      string // such as "moves"
	Level      style.Level
	Age        time.Duration // 0: not known
	Waits      string        // what it waits for; "": not known
	Computes   bool          // it waits for nothing
	Ended      bool
}

// View is the view. Any goroutine may call its methods; Run may be called once.
type View struct {
	cfg Config

	mu    sync.Mutex
	hosts []Host
	tasks []Task
	busy  map[string]float64 // in which share of the newest looks a task computed, by task
	lines []string           // of the log, the newest one last
	rest  string             // a line without its end
	over  string             // how the job ended; "": it runs
}

// maxLines is how many lines of the log are kept, maxRest how long an unfinished one may be.
const (
	maxLines = 5000
	maxRest  = 64 << 10
)

// New returns a View.
func New(cfg Config) *View { return &View{cfg: cfg} }

// Set replaces what is shown of hosts and tasks.
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

// newest is the weight of the newest look in View.busy: about ten looks count.
const newest = 0.2

// End says how the job has ended. The view stays.
func (v *View) End(how string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.over = how
}

// Write adds lines to the log pane. They must be harmless on a terminal.
func (v *View) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	lines := strings.Split(v.rest+string(p), "\n")
	last := len(lines) - 1
	v.rest = lines[last][:min(len(lines[last]), maxRest)]
	v.lines = append(v.lines, lines[:last]...)
	if over := len(v.lines) - maxLines; over > maxLines/10 { // not each time: the rest is moved
		v.lines = append(v.lines[:0], v.lines[over:]...)
	}
	return len(p), nil
}

// snapshot is what a View has at one moment.
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
	// Elements are never written again, so the slices may be shared.
	return snapshot{v.cfg, v.hosts, v.tasks, v.busy, append([]string(nil), v.lines...), v.over}
}

// Run shows the view on a terminal until the user leaves it or ctx ends.
func (v *View) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	p := tea.NewProgram(newModel(v), tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithAltScreen(), tea.WithFPS(10))
	_, err := p.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, tea.ErrInterrupted) {
		return nil // Ctrl-C leaves it
	}
	return err
}
