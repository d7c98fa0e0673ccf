package logs

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Folding prints a message that several tasks write at the same time once, with their
// number. Only messages are folded: errors and warnings of plx's trainer, and tracebacks
// of Python. A task's stderr is held from such a line on, for a moment, and
// what the tasks wrote until then is compared whole. So a traceback is in one piece,
// too, and nothing that differs is left out.
const (
	foldTime  = time.Second // how long stderr is held: as long as the driver collects failures
	maxHeld   = 500         // lines of one task that are held at most
	heldBytes = 64 << 10    // bytes of one task that are held at most
)

// held is what a stream holds back.
type held struct {
	lines [][]byte
	bytes int // length of all lines
}

func (h *held) add(text []byte) {
	h.lines, h.bytes = append(h.lines, text), h.bytes+len(text)
}

var traceback = []byte("Traceback (most recent call last):")

// rankTag is what PyTorch writes before the lines of a traceback.
var rankTag = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\[rank[0-9]+\]: ?`) })

// beginsMessage reports whether a line of stderr begins a message that other tasks may
// write too.
func (s *stream) beginsMessage(text []byte) bool {
	if rest, ok := bytes.CutPrefix(text, []byte("plx: ")); ok {
		return bytes.HasPrefix(rest, []byte(s.from.Task+": ")) || bytes.HasPrefix(rest, []byte("warn: "))
	}
	return bytes.HasSuffix(text, traceback) && (len(text) == len(traceback) || rankTag().Match(text))
}

// hold holds a line of stderr back if it belongs to a message, and reports whether it
// does. A plan or table, of which plain is the beginning, is no message.
func (s *stream) hold(plain string, text []byte) bool {
	if !s.p.opts.Fold || s.from.Stream != Stderr || len(s.held.lines) == 0 && (plain != "" || !s.beginsMessage(text)) {
		return false
	}
	s.held.add(append([]byte(plain), text...))
	if len(s.held.lines) == 1 {
		s.p.holds(s)
	}
	if len(s.held.lines) == maxHeld || s.held.bytes > heldBytes {
		s.p.release()
	}
	return true
}

// holds notes that a stream holds lines back, and has them printed in a moment.
func (p *Printer) holds(s *stream) {
	p.holding = append(p.holding, s)
	if len(p.holding) > 1 {
		return
	}
	p.releasing = time.AfterFunc(foldTime, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.release()
	})
}

// release prints what is held back: equal texts once, in the order of their first lines.
// It needs p.mu.
func (p *Printer) release() {
	if len(p.holding) == 0 {
		return
	}
	p.releasing.Stop()
	var groups [][]*stream
	index := map[string]int{}
	for _, s := range p.holding {
		key := s.message()
		i, known := index[key]
		if !known {
			i, index[key], groups = len(groups), len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], s)
	}
	p.holding = nil
	for _, group := range groups {
		before := p.prefixOf(group)
		for i, s := range group {
			s.printHeld(before, len(group) > 1, i == 0)
		}
	}
}

// message is what the stream holds back, without what tells the tasks apart.
func (s *stream) message() string {
	var all strings.Builder
	for _, text := range s.held.lines {
		all.Write(jobFolder().ReplaceAll(s.anonymous(text), []byte("/.plx/jobs/")))
		all.WriteByte('\n')
	}
	return all.String()
}

// jobFolder matches folders of a host and of a task.
var jobFolder = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`/\.plx/jobs/[^/\s"]+/[^/\s"]+/((worker|ps)[-:.][0-9]+/|[a-z]+/(worker|ps)[-:.][0-9]+/)?`)
})

// anonymous returns a line without the task's own name or rank before it.
func (s *stream) anonymous(text []byte) []byte {
	if rest, named := bytes.CutPrefix(text, []byte("plx: "+s.from.Task+": ")); named {
		return append([]byte("plx: "), rest...)
	}
	return text[len(rankTag().Find(text)):]
}

// printHeld prints what the stream holds back with the prefix before. In a group of
// several streams only the first one prints; of all of them the lines count as printed.
func (s *stream) printHeld(before prefix, folded, first bool) {
	s.p.send(s.to, s.out) // what came earlier; a failed write is kept by send
	s.out = s.out[:0]
	for _, text := range s.held.lines {
		if first {
			s.p.printed()
		}
		s.note(text)
		if folded {
			text = s.anonymous(text)
		}
		if first {
			s.out = append(s.safe(append(s.out, before.first...), text), '\n')
		}
	}
	s.p.send(s.to, s.out) // as above
	s.out, s.held = s.out[:0], held{}
}

// prefixOf returns the prefix for the lines of several tasks.
func (p *Printer) prefixOf(group []*stream) prefix {
	if len(group) == 1 {
		return group[0].prefix
	}
	var tasks, hosts []string
	for _, s := range group {
		tasks = append(tasks, s.from.Task)
		if !slices.Contains(hosts, s.from.host) {
			hosts = append(hosts, s.from.host)
		}
	}
	o := origin{hosts[0], Source{p.countTasks(tasks), Stderr}}
	if len(hosts) > 1 {
		o.host = fmt.Sprintf("%d hosts", len(hosts))
	}
	return p.columns.prefix(o, group[0].screen)
}

// countTasks describes two or more tasks, such as "6 workers".
func (p *Printer) countTasks(tasks []string) string {
	role, _, _ := strings.Cut(tasks[0], ":")
	other := func(task string) bool { return !strings.HasPrefix(task, role+":") }
	name, ok := map[string]string{"worker": "workers", "ps": "servers"}[role]
	if slices.ContainsFunc(tasks, other) || !ok {
		return fmt.Sprintf("%d tasks", len(tasks))
	}
	if all := len(slices.DeleteFunc(slices.Clone(p.opts.Tasks), other)); all > len(tasks) {
		return fmt.Sprintf("%d of %d %s", len(tasks), all, name)
	}
	return fmt.Sprintf("%d %s", len(tasks), name)
}
