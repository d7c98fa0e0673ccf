package logs

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Folding prints a message that several tasks write within a second only once,
// with the number of tasks. The Printer folds only lines of stderr, and only
// in a live view. It holds each line of stderr back for foldTime. Then it
// combines the line with equal lines of other tasks, which may differ in
// ranks, paths, addresses and times (see normalized).
//
// Some lines begin a message, for example a traceback. From such a line on,
// all lines of a task form one unit, which is printed in one piece. So no
// lines of a message are lost because they differ between tasks. Messages that
// only report the loss of a peer (another task) are treated as equal, and the
// Printer prints one line for all of them.
const (
	foldTime   = time.Second            // how long a line of stderr is held; the driver (which controls the job) collects failures of tasks for the same time
	victimTime = 3 * time.Second        // how long a message about a lost peer is held; longer, because tasks notice the loss one after another
	foldTick   = 100 * time.Millisecond // interval at which the held lines are checked
	maxHeld    = 500                    // greatest number of held lines of one task; if it is reached, all held lines are printed
	heldBytes  = 64 << 10               // greatest number of held bytes of one task; if it is exceeded, all held lines are printed
)

// unit is a line, or a message of several lines, that the Printer holds back
// and prints as a whole.
type unit struct {
	from    *stream
	lines   [][]byte
	times   []time.Time // when each line was written; as long as lines
	message bool        // true if the first line begins a message, so that all lines after it belong to the unit
	begun   time.Time
	key     string // text of the unit without the parts that differ between tasks; empty until complete computes it
	loss    string // the line that reports the loss of a peer (another task); empty if the unit reports no loss or complete has not run
}

var traceback = []byte("Traceback (most recent call last):")

// rankTag matches the tag that PyTorch prints before each line of a traceback,
// such as "[rank0]: ".
var rankTag = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\[rank[0-9]+\]: ?`) })

// fatal matches the first line of an error message of a C++ program: an error
// in PyTorch's log, or an uncaught exception.
var fatal = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(\[rank[0-9]+\]: ?)?\[[EF][0-9 ]|^terminate called `)
})

// beginsMessage reports whether a line of stderr begins an error message or a
// warning, which may have several lines.
func (s *stream) beginsMessage(text []byte) bool {
	if rest, ok := bytes.CutPrefix(text, []byte("plx: ")); ok {
		return bytes.HasPrefix(rest, []byte(s.from.Task+": ")) || bytes.HasPrefix(rest, []byte("warn: "))
	}
	return bytes.HasSuffix(text, traceback) && (len(text) == len(traceback) || rankTag().Match(text)) || fatal().Match(text)
}

// hold stores a line of stderr to print it later, and reports whether it did.
// The first line of a message is always held. Some lines are held only if
// earlier lines of the task are held, so that the order stays the same. These
// are lines that begin with Options.Mark or "plx: ", such as tables and
// progress, and all lines of a job with only one task. plain is the text that
// replaces Options.Mark before the line.
func (s *stream) hold(plain string, text []byte) bool {
	if !s.p.opts.Fold || s.from.Stream != Stderr {
		return false
	}
	begins := plain == "" && s.beginsMessage(text)
	if !begins && s.heldLines == 0 && (plain != "" || len(s.p.opts.Tasks) < 2 || time.Since(s.flooded) < foldTime || bytes.HasPrefix(text, []byte("plx: "))) {
		return false
	}
	if s.message == nil || !s.message.message {
		s.message = &unit{from: s, message: begins, begun: time.Now()}
		s.p.holding = append(s.p.holding, s.message)
		if len(s.p.holding) == 1 {
			s.p.releaseAfter(foldTime)
		}
	}
	u := s.message
	u.lines, u.times, u.key = append(u.lines, append([]byte(plain), text...)), append(u.times, s.time), ""
	s.heldLines, s.heldBytes = s.heldLines+1, s.heldBytes+len(text)
	if s.heldLines >= maxHeld || s.heldBytes > heldBytes {
		s.flooded = time.Now()
		s.p.release(true)
	}
	return true
}

func (p *Printer) releaseAfter(d time.Duration) {
	p.releasing = time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.release(false)
	})
}

// release prints the units (lines or messages) that have been held for long
// enough, or all units if all is set. It prints equal units once, at the
// position of the first of them. Messages about a lost peer come last, so that
// their cause is printed above them. The caller must hold p.mu.
func (p *Printer) release(all bool) {
	if len(p.holding) == 0 {
		return
	}
	p.releasing.Stop()
	var kept []*unit
	groups := p.groups()
	slices.SortStableFunc(groups, func(a, b []*unit) int {
		return cmp.Compare(min(len(a[0].loss), 1), min(len(b[0].loss), 1))
	})
	for _, group := range groups {
		if all || time.Since(group[0].begun) >= group[0].holdTime() {
			p.printGroup(group)
		} else {
			kept = append(kept, group...)
		}
	}
	slices.SortStableFunc(kept, func(a, b *unit) int { return a.begun.Compare(b.begun) })
	if p.holding = kept; len(kept) > 0 {
		p.releaseAfter(foldTick)
	}
}

// groups returns the held units (lines or messages). Each group has equal
// units from different tasks.
func (p *Printer) groups() (groups [][]*unit) {
	index := map[string]int{}
	times := map[string]int{} // by text and task: how many lines or messages (units) of this task have this text
	for _, u := range p.holding {
		u.complete()
		mine := u.key + "\x00" + u.from.from.file() + "\x00" + u.from.from.host
		times[mine]++
		key := fmt.Sprint(times[mine], u.key)
		i, known := index[key]
		if !known {
			i, index[key], groups = len(groups), len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], u)
	}
	return groups
}

// complete computes two fields of the unit: key, by which units of different
// tasks are compared, and loss.
func (u *unit) complete() {
	if u.key != "" {
		return
	}
	if u.loss = u.lossOfPeer(); u.loss != "" {
		u.key = "loss"
		return
	}
	var all strings.Builder
	for _, text := range u.lines {
		all.Write(normalized(u.from.withoutName(text), u.from.host))
		all.WriteByte('\n')
	}
	u.key = all.String()
}

// lossOfPeer returns the line of unit u that reports the loss of a peer. It
// returns "" if u is another message.
func (u *unit) lossOfPeer() string {
	if !u.message || u.from.p.opts.Loss == nil {
		return ""
	}
	var lines []string
	for _, text := range u.lines {
		lines = append(lines, string(text))
	}
	return u.from.p.opts.Loss(lines)
}

// holdTime returns how long the unit (a line or message) is held back before
// it is printed.
func (u *unit) holdTime() time.Duration {
	if u.loss != "" {
		return victimTime
	}
	return foldTime
}

// printGroup prints equal units (lines or messages) of several tasks once,
// under one prefix. It records the lines of every unit as printed, except
// lines that report a lost peer.
func (p *Printer) printGroup(group []*unit) {
	var streams []*stream
	for _, u := range group {
		streams = append(streams, u.from)
	}
	before := p.prefixOf(streams)
	for i, u := range group {
		s := u.from
		s.released(u)
		s.p.send(s.to, s.out) // Write earlier lines first. send stores an error in Printer.err.
		s.out = s.out[:0]
		if u.loss != "" {
			if i == 0 {
				p.printed()
				s.begin(u.times[0], before, false)
				s.out = append(s.safe(append(s.out, "lost a peer: "...), s.withoutName([]byte(u.loss))), '\n')
			}
		} else {
			s.addHeld(u, before, len(group) > 1, i == 0)
		}
		s.p.send(s.to, s.out) // send stores an error in Printer.err
		s.out = s.out[:0]
	}
}

// addHeld adds the lines of unit u (a line or message) to the stream's output
// if first is true: u is then the first of a group of equal units. Otherwise
// it only records the lines as printed.
func (s *stream) addHeld(u *unit, before prefix, folded, first bool) {
	for i, text := range u.lines {
		if first {
			s.p.printed()
		}
		s.note(text)
		if folded {
			text = s.withoutName(text)
		}
		if first {
			s.begin(u.times[i], before, false)
			s.out = append(s.safe(s.out, text), '\n')
		}
	}
}

// released updates the stream's counts after unit u (a line or message) has
// been taken from the held units.
func (s *stream) released(u *unit) {
	if s.message == u {
		s.message = nil
	}
	s.heldLines -= len(u.lines)
	for _, text := range u.lines {
		s.heldBytes -= len(text)
	}
}

// withoutName returns a line without the task's own name or rank at its
// beginning.
func (s *stream) withoutName(text []byte) []byte {
	if rest, named := bytes.CutPrefix(text, []byte("plx: "+s.from.Task+": ")); named {
		return append([]byte("plx: "), rest...)
	}
	return text[len(rankTag().Find(text)):]
}

// prefixOf returns the prefix for a line that stands for several tasks, such
// as "6 workers".
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

// countTasks describes a group of two or more tasks, for example "6 workers"
// or "3 of 8 workers".
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
