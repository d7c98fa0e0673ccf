//go:build linux

package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/waits"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

const (
	// stacksTimeout is how long to wait for a task that uses plx's trainer to
	// send its stacks.
	stacksTimeout = 3 * time.Second
	// maxStacks is the maximum size of one task's stacks in its file,
	// sentStacks the maximum that is sent to plx, in bytes.
	maxStacks  = 1 << 20
	sentStacks = 256 << 10
)

// inquiry is a pending request for the goroutine stacks of a task that uses
// plx's trainer. Until done is closed, only the supervisor's loop may access
// text.
type inquiry struct {
	request int
	text    strings.Builder
	done    chan struct{} // closed when the whole reply has arrived
	over    bool          // true once done is closed
}

// receive appends one part of the task's reply, which holds stack traces. It
// ignores parts of replies to earlier requests.
func (q *inquiry) receive(m cluster.ControlMessage) {
	if q == nil || q.over || m.Request != q.request {
		return
	}
	q.text.WriteString(m.Text[:min(len(m.Text), maxStacks-q.text.Len())])
	if !m.More || q.text.Len() == maxStacks {
		q.over = true
		close(q.done)
	}
}

// ask requests the stack traces of a task. It returns nil if the task does not
// use plx's trainer or does not read the agent's messages.
func (t *task) ask(request int) *inquiry {
	if !t.report.native {
		return nil
	}
	t.inquiry = &inquiry{request: request, done: make(chan struct{})}
	if !t.send(cluster.ControlMessage{Kind: cluster.Stacks, Request: request}) {
		return nil // the task's message queue is full
	}
	return t.inquiry
}

// subject is a running task whose stacks are being collected.
type subject struct {
	task       cluster.Task
	generation int
	pid        int
	inquiry    *inquiry // pending request for the task's stacks; nil if the task does not use plx's trainer, or does not read the agent's messages
}

// subjects returns the running tasks, and requests stack traces from those
// that use plx's trainer. It must run on the supervisor's loop.
func (w *watch) subjects() (all []subject) {
	w.requests++
	for _, t := range w.tasks.launched() {
		if t.alive() {
			all = append(all, subject{task: t.Task, generation: t.generation, pid: t.child.PID, inquiry: t.ask(w.requests)})
		}
	}
	return all
}

// collect gathers the stacks of the tasks, writes them into the job's folder
// and returns them. processes describes what each process of a task waits for;
// its keys are the pids of the tasks' first processes.
func (w *watch) collect(all []subject, processes map[int][]protocol.Process) map[cluster.Task]located {
	texts := map[cluster.Task]located{}
	folder := jobfolder.StacksOf(w.host.folder)
	timeout := time.Now().Add(stacksTimeout)
	for _, s := range all {
		text := s.stacks(processes[s.pid], folder.PythonFile(s.task, s.generation), timeout)
		text = text[:min(len(text), maxStacks)]
		places := w.program.at(waits.Places(text))
		head := protocol.StacksHead{Task: s.task, Time: time.Now(), Places: places}
		if len(places) == 0 {
			head.Places = waits.KernelPlaces(processes[s.pid])
		}
		text = head.String() + "\n" + w.program.in(text)
		file := folder.File(s.task, s.generation)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			w.host.log.Printf("stacks of %s: %v", s.task, err)
			file = ""
		}
		texts[s.task] = located{text, file, places}
	}
	return texts
}

// stacks returns a text that describes what the task is doing. It contains
// what the kernel says about the task's processes, and the stacks of its
// Python processes. If the task uses plx's trainer, it also contains the
// goroutine stacks.
func (s subject) stacks(processes []protocol.Process, pythonFile string, timeout time.Time) string {
	var text strings.Builder
	for _, p := range processes {
		text.WriteString(waits.Describe(p))
	}
	if s.inquiry != nil {
		if within(time.Until(timeout), s.inquiry.done) {
			fmt.Fprintf(&text, "\nGoroutines:\n%s", s.inquiry.text.String())
		} else {
			fmt.Fprintf(&text, "\nThe task did not send the stacks of its goroutines within %s.\n", stacksTimeout)
		}
	}
	for _, p := range processes {
		if dump := waits.Python(p.PID, pythonFile); dump != "" {
			fmt.Fprintf(&text, "\nPython, process %d (%s):\n%s", p.PID, p.Name, dump)
		} else if waits.IsPython(p.PID) {
			fmt.Fprintf(&text, "\nPython, process %d (%s): no stacks. It ignores its environment (-I, -E or -S), has closed the file for them, or ends.\n", p.PID, p.Name)
		}
	}
	return text.String()
}

// sentProgram is the command of a job whose program plx may have sent. On the
// host, the program's file name is a checksum. The methods replace this
// checksum by the user's name for the program.
type sentProgram protocol.Command

// base returns the user's name for the program, or "" if plx has sent no
// program.
func (p sentProgram) base() string {
	if p.Blob == "" {
		return ""
	}
	return filepath.Base(string(p.Base))
}

// maxName is the maximum length of a process name in the kernel, in bytes.
const maxName = 15

// named returns the processes, where a process of the program is named after
// the program's file instead of its checksum.
func (p sentProgram) named(all map[int][]protocol.Process) map[int][]protocol.Process {
	if p.base() == "" {
		return all
	}
	named := map[int][]protocol.Process{}
	for root, processes := range all {
		for _, one := range processes {
			if one.Name == p.Blob[:min(len(p.Blob), maxName)] {
				one.Name = p.base()
			}
			named[root] = append(named[root], one)
		}
	}
	return named
}

// in returns the text of stacks with the program's path replaced by its name.
func (p sentProgram) in(text string) string {
	if p.base() == "" {
		return text
	}
	path := regexp.MustCompile(`/[^"\n]*/blobs/` + regexp.QuoteMeta(p.Blob))
	return path.ReplaceAllLiteralString(text, p.base())
}

// at returns places (source locations) with the checksum replaced by the
// program's name.
func (p sentProgram) at(places []string) []string {
	for i := range places {
		if p.base() != "" {
			places[i] = strings.ReplaceAll(places[i], p.Blob, p.base())
		}
	}
	return places
}
