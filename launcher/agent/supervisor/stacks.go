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
	// inquiryTime bounds the answer of a task of plx's trainer with its stacks.
	inquiryTime = 3 * time.Second
	// maxStacks bounds the stacks of one task, in bytes; toldStacks what is sent of them.
	maxStacks  = 1 << 20
	toldStacks = 256 << 10
)

// inquiry is a question for the stacks of a task that uses plx's trainer. The loop writes
// text until done is closed.
type inquiry struct {
	request int
	text    strings.Builder
	done    chan struct{} // closed when the answer is complete
	over    bool          // done is closed
}

// hear takes a piece of the answer.
func (q *inquiry) hear(m cluster.ControlMessage) {
	if q == nil || q.over || m.Request != q.request {
		return
	}
	q.text.WriteString(m.Text[:min(len(m.Text), maxStacks-q.text.Len())])
	if !m.More || q.text.Len() == maxStacks {
		q.over = true
		close(q.done)
	}
}

// ask asks a task that uses plx's trainer. It returns nil for another task.
func (t *task) ask(request int) *inquiry {
	if !t.report.native {
		return nil
	}
	t.inquiry = &inquiry{request: request, done: make(chan struct{})}
	if !t.send(cluster.ControlMessage{Kind: cluster.Stacks, Request: request}) {
		return nil // it does not listen
	}
	return t.inquiry
}

// subject is a task whose stacks are collected.
type subject struct {
	task       cluster.Task
	generation int
	pid        int
	inquiry    *inquiry // nil: the task does not use plx's trainer, or does not listen
}

// subjects returns the tasks that run, and asks those that can answer. The loop calls it.
func (w *watch) subjects() (all []subject) {
	w.requests++
	for _, t := range w.tasks.launched() {
		if t.alive() {
			all = append(all, subject{task: t.Task, generation: t.generation, pid: t.child.PID, inquiry: t.ask(w.requests)})
		}
	}
	return all
}

// collect writes the stacks of tasks into the job's folder, and returns them. processes
// has what their processes wait for, by the pid of the first.
func (w *watch) collect(all []subject, processes map[int][]protocol.Process) map[cluster.Task]located {
	texts := map[cluster.Task]located{}
	folder := jobfolder.StacksOf(w.host.folder)
	timeout := time.Now().Add(inquiryTime)
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

// stacks returns all that can be learned of where a task is: the kernel's view, the stacks
// of its goroutines if it uses plx's trainer, and those of its Python processes.
func (s subject) stacks(processes []protocol.Process, pythonFile string, timeout time.Time) string {
	var text strings.Builder
	for _, p := range processes {
		text.WriteString(waits.Describe(p))
	}
	if s.inquiry != nil {
		if within(time.Until(timeout), s.inquiry.done) {
			fmt.Fprintf(&text, "\nGoroutines:\n%s", s.inquiry.text.String())
		} else {
			fmt.Fprintf(&text, "\nThe task did not send the stacks of its goroutines within %s.\n", inquiryTime)
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

// sent is a program that plx sent. On the host it has the name of its content, which the
// user has never seen.
type sent protocol.Command

// base is the user's name for the program; "": plx sent none.
func (p sent) base() string {
	if p.Blob == "" {
		return ""
	}
	return filepath.Base(string(p.Base))
}

// maxName is how much the kernel keeps of a program's name, in bytes.
const maxName = 15

// named gives processes that run the program the user's name for it.
func (p sent) named(all map[int][]protocol.Process) map[int][]protocol.Process {
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

// in gives the program the user's name in stacks.
func (p sent) in(text string) string {
	if p.base() == "" {
		return text
	}
	path := regexp.MustCompile(`/[^"\n]*/blobs/` + regexp.QuoteMeta(p.Blob))
	return path.ReplaceAllLiteralString(text, p.base())
}

// at gives the program the user's name in places.
func (p sent) at(places []string) []string {
	for i := range places {
		if p.base() != "" {
			places[i] = strings.ReplaceAll(places[i], p.Blob, p.base())
		}
	}
	return places
}
