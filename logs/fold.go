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

// Folding prints what several tasks write within a second once, with their number. It is
// for stderr only: the live view holds each line of it back for a second, and prints it
// with the lines of other tasks that differ only in what tells tasks apart (see alike).
// From the beginning of a message on, such as a traceback, all that a task writes is one
// unit: so it is in one piece, and nothing that differs is left out. Two messages differ
// less than they seem if both report only that a peer was lost: of these one line is
// printed.
const (
	foldTime   = time.Second            // how long stderr is held: as long as the driver collects failures
	victimTime = 3 * time.Second        // how long the message of a task that lost a peer is held: tasks notice that one after the other
	foldTick   = 100 * time.Millisecond // how often held lines are looked at
	maxHeld    = 500                    // lines of one task that are held at most
	heldBytes  = 64 << 10               // bytes of one task that are held at most
)

// unit is what is held back and printed as one: a line, or a message.
type unit struct {
	from    *stream
	lines   [][]byte
	times   []time.Time // of the lines
	message bool        // it began as a message does, so the lines that follow belong to it
	begun   time.Time
	key     string // without what tells tasks apart; "": not known yet
	loss    string // the line that reports the loss of a peer; "": it reports something else, or this is not known
}

var traceback = []byte("Traceback (most recent call last):")

// rankTag is what PyTorch writes before the lines of a traceback.
var rankTag = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\[rank[0-9]+\]: ?`) })

// fatal matches the first line of a message of a C++ program: errors of PyTorch's log, and
// an exception that nobody caught.
var fatal = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(\[rank[0-9]+\]: ?)?\[[EF][0-9 ]|^terminate called `)
})

// beginsMessage reports whether a line of stderr begins a message, of several lines
// perhaps.
func (s *stream) beginsMessage(text []byte) bool {
	if rest, ok := bytes.CutPrefix(text, []byte("plx: ")); ok {
		return bytes.HasPrefix(rest, []byte(s.from.Task+": ")) || bytes.HasPrefix(rest, []byte("warn: "))
	}
	return bytes.HasSuffix(text, traceback) && (len(text) == len(traceback) || rankTag().Match(text)) || fatal().Match(text)
}

// hold holds a line of stderr back, and reports whether it does. A plan or table, of which
// plain is the beginning, and what the trainer tells of its progress are not held unless
// the task's earlier lines are. Nor is a line of a job's only task.
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

// release prints the units that have been held long enough, or all: equal ones once, at
// the place of the first. Losses of a peer come last: the cause is above them. It needs p.mu.
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
		if all || time.Since(group[0].begun) >= group[0].patience() {
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

// groups returns the units that are held back, equal ones of different tasks together.
func (p *Printer) groups() (groups [][]*unit) {
	index := map[string]int{}
	times := map[string]int{} // how often a task has written a text
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

// complete finds out what of the unit is compared.
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
		all.Write(alike(u.from.anonymous(text), u.from.host))
		all.WriteByte('\n')
	}
	u.key = all.String()
}

// lossOfPeer returns the line of a message that reports the loss of a peer; "": it reports
// something else.
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

// patience is how long the unit is held back.
func (u *unit) patience() time.Duration {
	if u.loss != "" {
		return victimTime
	}
	return foldTime
}

// printGroup prints units that are equal with one prefix. Of all of them the lines count as
// printed, but those of lost peers.
func (p *Printer) printGroup(group []*unit) {
	var streams []*stream
	for _, u := range group {
		streams = append(streams, u.from)
	}
	before := p.prefixOf(streams)
	for i, u := range group {
		s := u.from
		s.released(u)
		s.p.send(s.to, s.out) // what came earlier; a failed write is kept by send
		s.out = s.out[:0]
		if u.loss != "" {
			if i == 0 {
				p.printed()
				s.begin(u.times[0], before, false)
				s.out = append(s.safe(append(s.out, "lost a peer: "...), s.anonymous([]byte(u.loss))), '\n')
			}
		} else {
			s.addHeld(u, before, len(group) > 1, i == 0)
		}
		s.p.send(s.to, s.out) // as above
		s.out = s.out[:0]
	}
}

// addHeld adds the lines of a unit to out if it is the first of its group.
func (s *stream) addHeld(u *unit, before prefix, folded, first bool) {
	for i, text := range u.lines {
		if first {
			s.p.printed()
		}
		s.note(text)
		if folded {
			text = s.anonymous(text)
		}
		if first {
			s.begin(u.times[i], before, false)
			s.out = append(s.safe(s.out, text), '\n')
		}
	}
}

// released notes that a unit is no longer held back.
func (s *stream) released(u *unit) {
	if s.message == u {
		s.message = nil
	}
	s.heldLines -= len(u.lines)
	for _, text := range u.lines {
		s.heldBytes -= len(text)
	}
}

// anonymous returns a line without the task's own name or rank before it.
func (s *stream) anonymous(text []byte) []byte {
	if rest, named := bytes.CutPrefix(text, []byte("plx: "+s.from.Task+": ")); named {
		return append([]byte("plx: "), rest...)
	}
	return text[len(rankTag().Find(text)):]
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
