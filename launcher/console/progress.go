package console

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/logs"
)

// What Watch and Phase do without a terminal: they print a line about work that takes longer
// than patience or tooLong, and another one every again.
const (
	patience = 2 * time.Second
	tooLong  = 10 * time.Second
	again    = time.Minute
	redraw   = 200 * time.Millisecond // between two looks at the text, on a terminal
	quiet    = 500 * time.Millisecond // for which nothing else is shown until a Phase is, on a terminal
)

// work is what Watch shows.
type work struct{ text func() string }

// Watch shows text while some work lasts: if stderr is a terminal as a row that is
// redrawn, else as a line if the work takes longer than 2 s. An empty text is not shown. Watch calls
// text from goroutines of its own, until the caller calls done.
func (p *Printer) Watch(text func() string) (done func()) {
	w := &work{text}
	p.mu.Lock()
	p.works[w] = true
	p.mu.Unlock()
	ended := p.watch(text, patience)
	return func() {
		p.mu.Lock()
		delete(p.works, w)
		p.mu.Unlock()
		ended()
	}
}

// Here is Watch for work of this machine, such as a build, which hosts wait for: until its end no
// Tally says that it waits for them.
func (p *Printer) Here(text func() string) (done func()) {
	p.mu.Lock()
	p.here++
	p.mu.Unlock()
	ended := p.Watch(text)
	return sync.OnceFunc(func() {
		ended()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.here--
		p.free = time.Now()
	})
}

// busy reports whether work of Here lasts, and else when the last of it ended.
func (p *Printer) busy() (busy bool, free time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.here > 0, p.free
}

// Phase is what a phase of a command shows.
type Phase struct {
	Text  func(long time.Duration) string // receives how long the phase has lasted
	Hosts bool                            // Text names the hosts that it waits for
}

// Phase shows a phase of a command while it lasts and nothing that Watch was given is shown, so
// that no part of a command is silent. In a pipe it is a line if the phase takes longer than 2 s
// and has hosts to name, or longer than 10 s.
func (p *Printer) Phase(phase Phase) (done func()) {
	first := tooLong
	if phase.Hosts {
		first = patience
	}
	begun := time.Now()
	other := begun
	return p.watch(func() string {
		if p.shows() {
			other = time.Now()
		}
		if time.Since(other) < quiet {
			return ""
		}
		return phase.Text(time.Since(begun))
	}, first)
}

// Waiting is a Phase that says what is done, after a while for how long, and for which hosts if
// the function, which may be nil, returns some.
func Waiting(doing string, hosts func() []string) Phase {
	text := func(long time.Duration) string {
		var on []string
		if hosts != nil {
			on = hosts()
		}
		switch seconds := int(long.Seconds()); {
		case doing == "" || long < patience:
			return doing
		case len(on) > 0:
			return fmt.Sprintf("%s: waiting for %s for %ds", doing, Fold(on), seconds)
		default:
			return fmt.Sprintf("%s (%ds)", doing, seconds)
		}
	}
	return Phase{Text: text, Hosts: hosts != nil}
}

// shows reports whether something that Watch was given has a text.
func (p *Printer) shows() bool {
	p.mu.Lock()
	works := slices.Collect(maps.Keys(p.works))
	p.mu.Unlock()
	return slices.ContainsFunc(works, func(w *work) bool { return w.text() != "" })
}

// watch shows text, in a pipe for the first time after a while.
func (p *Printer) watch(text func() string, first time.Duration) (done func()) {
	ended := make(chan struct{})
	var showing sync.WaitGroup
	showing.Go(func() {
		if p.display.Terminal(logs.Stderr) {
			p.redraw(logs.Bottom, func() string { return p.row(text()) }, ended)
		} else {
			p.repeat(text, first, ended)
		}
	})
	return sync.OnceFunc(func() { close(ended); showing.Wait() })
}

// Status keeps a row at the bottom of a terminal until done is called. The texts are the parts
// of the row, the most important one first; they are one line each, harmless on a terminal, and
// may have colours if colour is set. Parts without room are left out, and without parts there is no
// row. In a pipe nothing is shown.
func (p *Printer) Status(parts func(colour bool) []string) (done func()) {
	if !p.ShowsStatus() {
		return func() {}
	}
	ended := make(chan struct{})
	var showing sync.WaitGroup
	showing.Go(func() {
		p.redraw(logs.Status, func() string { return p.fit(parts(p.colour), p.display.Width()-1) }, ended)
	})
	return sync.OnceFunc(func() { close(ended); showing.Wait() })
}

// ShowsStatus reports whether Status shows anything.
func (p *Printer) ShowsStatus() bool { return p.status }

// fit joins as many of the parts as have room in so many cells.
func (p *Printer) fit(parts []string, width int) string {
	if len(parts) == 0 {
		return ""
	}
	line := p.prefix()
	for i, part := range parts {
		if i > 0 {
			part = " | " + part
		}
		if i > 0 && ansi.StringWidth(line)+ansi.StringWidth(part) > width {
			break
		}
		line += part
	}
	return line
}

// redraw shows text in a row.
func (p *Printer) redraw(order int, text func() string, ended <-chan struct{}) {
	row := p.display.Row(order)
	defer row.Remove()
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	for {
		row.Set(text())
		select {
		case <-ended:
			return
		case <-tick.C:
		}
	}
}

// row returns a text for a row, "" for none.
func (p *Printer) row(text string) string {
	if text == "" {
		return ""
	}
	return p.prefix() + oneLine(text)
}

// repeat prints text from time to time.
func (p *Printer) repeat(text func() string, first time.Duration, ended <-chan struct{}) {
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-ended:
			return
		case <-timer.C:
			if line := text(); line != "" {
				p.Printf("%s", line)
				timer.Reset(again)
			} else {
				timer.Reset(first)
			}
		}
	}
}

// Tally shows, through Watch, which hosts some work waits for. Its methods may be called
// from any goroutine. A nil Tally shows nothing.
type Tally struct {
	printer *Printer
	doing   string
	total   int // number of hosts of the work; 0: only those waited for are shown

	mu      sync.Mutex
	ended   map[string]bool   // hosts that are waited for no more
	waiting []string          // hosts that are waited for, in the order of Begin
	notes   map[string]string // newest Note of a host, by host
	since   time.Time         // when the first of them was begun
	done    func()            // ends the Watch; nil: nothing is waited for
}

// NewTally returns a Tally of work on so many hosts, of which doing says what it is,
// such as "connecting". With a total of 0 the hosts are not counted.
func (p *Printer) NewTally(doing string, total int) *Tally {
	if p == nil {
		return nil
	}
	return &Tally{printer: p, doing: doing, total: total, ended: map[string]bool{}, notes: map[string]string{}}
}

// Begin notes that a host is waited for. End must be called; a second Begin before it
// changes nothing.
func (t *Tally) Begin(host string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.Contains(t.waiting, host) {
		return
	}
	t.waiting = append(t.waiting, host)
	delete(t.ended, host)
	if t.done == nil {
		t.since, t.done = time.Now(), t.printer.Watch(t.String)
	}
}

// Note records what a host does. It is shown while the host is the first that is waited for.
func (t *Tally) Note(host, text string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notes[host] = text
}

// End notes that a host is waited for no more.
func (t *Tally) End(host string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.ended[host] = true
	t.waiting = slices.DeleteFunc(t.waiting, func(h string) bool { return h == host })
	var done func()
	if len(t.waiting) == 0 {
		done, t.done = t.done, nil
	}
	t.mu.Unlock()
	if done != nil {
		done() // without the lock: it waits for String
	}
}

// Stop ends the waiting for all hosts.
func (t *Tally) Stop() {
	t.mu.Lock()
	waiting := slices.Clone(t.waiting)
	t.mu.Unlock()
	for _, host := range waiting {
		t.End(host)
	}
}

// String describes the work. It names the hosts after a while. It is empty if no host is
// waited for, and while all wait for this machine or did just now.
func (t *Tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	busy, since := t.printer.busy()
	if busy || since.After(t.since) && time.Since(since) < patience {
		return ""
	}
	if since.Before(t.since) {
		since = t.since
	}
	long := time.Since(since)
	waiting := fmt.Sprintf("%s for %ds", Fold(t.waiting), int(long.Seconds()))
	switch {
	case len(t.waiting) == 0:
		return ""
	case t.total == 0:
		return t.doing + " " + waiting
	case long < patience:
		return fmt.Sprintf("%s: %d of %s", t.doing, len(t.ended), plural.Count(t.total, "host"))
	}
	text := fmt.Sprintf("%s: %d of %s; waiting for %s", t.doing, len(t.ended), plural.Count(t.total, "host"), waiting)
	if note := t.notes[t.waiting[0]]; note != "" {
		text += fmt.Sprintf("; %s: %s", t.waiting[0], note)
	}
	return text
}

// Names joins names, at most five of them. more is how many there are beside these.
func Names(names []string, more int) string {
	const most = 5
	if over := len(names) - most; over > 0 {
		names, more = names[:most], more+over
	}
	text := strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Transfer counts bytes that are moved to or from hosts, and shows them, in one spell or several.
// Its methods may be called from any goroutine.
type Transfer struct {
	printer *Printer
	doing   string // such as "sending"

	mu    sync.Mutex
	done  func()          // ends the display; nil: nothing is shown
	start time.Time       // when the present spell began
	spent time.Duration   // by earlier spells
	moves bool            // the present spell has files
	begun time.Time       // when the first bytes of the present spell had moved; zero: none have
	base  int64           // bytes that had moved by then
	last  time.Time       // when bytes moved last
	left  int64           // bytes that have left this machine
	files map[file]moved  // what is moved
	hosts map[string]bool // hosts of which bytes were moved
}

// file is a file of a Transfer, on its way to or from one host.
type file struct{ host, part, name string }

// moved is how far a file is.
type moved struct{ bytes, total int64 }

// NewTransfer returns a Transfer, of which doing says what it is, such as "sending".
// Close or Sent must be called.
func (p *Printer) NewTransfer(doing string) *Transfer {
	t := &Transfer{printer: p, doing: doing, files: map[file]moved{}, hosts: map[string]bool{}}
	t.Resume()
	return t
}

// Resume begins the next spell, unless one lasts.
func (t *Transfer) Resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done == nil {
		t.start, t.begun, t.moves = time.Now(), time.Time{}, false
		t.done = t.printer.Watch(t.shown)
	}
}

// barWidth is the width of a bar, in cells.
const barWidth = 20

// bar draws how much has moved, such as "[====>---------------]".
func (m moved) bar() string {
	filled := min(barWidth, int(barWidth*m.bytes/m.total))
	tip := ""
	if 0 < filled && filled < barWidth {
		tip = ">"
	}
	return "[" + strings.Repeat("=", filled-len(tip)) + tip + strings.Repeat("-", barWidth-filled) + "]"
}

// shown is String, on a terminal behind a bar.
func (t *Transfer) shown() string {
	text := t.String()
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.sum()
	if all.total == 0 || !t.printer.display.Terminal(logs.Stderr) {
		return text
	}
	return all.bar() + " " + text
}

// Moved records how many of the total bytes of a file were moved so far. Call it with 0
// bytes for every file as soon as its size is known. It is an envsync.Progress.
func (t *Transfer) Moved(host, name string, bytes, total int64) {
	t.MovedOf(name, host, name, bytes, total)
}

// MovedOf is Moved for a file of a part that has a name for the user.
func (t *Transfer) MovedOf(part, host, name string, bytes, total int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.sum().bytes
	t.files[file{host, part, name}], t.moves = moved{bytes, total}, true
	if bytes > 0 {
		t.hosts[host], t.last = true, time.Now()
		if t.begun.IsZero() {
			t.begun, t.base = time.Now(), before
		}
	}
}

// Left counts bytes that have left this machine.
func (t *Transfer) Left(bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left += bytes
}

// sum returns the bytes of all files.
func (t *Transfer) sum() (all moved) {
	for _, f := range t.files {
		all.bytes, all.total = all.bytes+f.bytes, all.total+f.total
	}
	return all
}

// unfinished returns the hosts with files that are not complete.
func (t *Transfer) unfinished() []string {
	hosts := map[string]bool{}
	for name, f := range t.files {
		if f.bytes < f.total {
			hosts[name.host] = true
		}
	}
	return slices.Sorted(maps.Keys(hosts))
}

// names names the parts with some files.
func (t *Transfer) names(which func(moved) bool) string {
	all := map[string]bool{}
	for name, f := range t.files {
		if which(f) {
			all[name.part] = true
		}
	}
	const most = 3
	names := slices.Sorted(maps.Keys(all))
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", more))
	}
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// sending is what a Transfer to hosts does; a name may follow.
const sending = "sending"

// leastRate is how long bytes must have moved before their rate means anything: the
// first ones only fill buffers.
const leastRate = time.Second

// String describes all files, for Watch.
func (t *Transfer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.sum()
	if !t.moves {
		text := t.doing + ": nothing yet" // the hosts are asked what they lack
		if long := time.Since(t.start); long >= patience {
			text += fmt.Sprintf(" (%ds)", int(long.Seconds()))
		}
		return text
	}
	doing := t.doing
	if doing == sending {
		doing += " " + t.names(func(f moved) bool { return f.total > 0 })
	}
	text := fmt.Sprintf("%s: %d%% of %s", doing, 100*all.bytes/all.total, Size(all.total))
	if len(t.hosts) > 0 && strings.HasPrefix(t.doing, sending) {
		text += " to " + plural.Count(len(t.hosts), "host")
	}
	if still := time.Since(t.last); !t.begun.IsZero() && still >= patience && all.bytes < all.total {
		text += fmt.Sprintf("; no byte for %ds", int(still.Seconds()))
		if hosts := Fold(t.unfinished()); hosts != "" { // whoever fetches names none
			text += "; waiting for " + hosts
		}
		return text
	}
	if still := time.Since(t.last); all.bytes == all.total && still >= patience {
		return text + fmt.Sprintf("; the hosts check and store it (%ds)", int(still.Seconds()))
	}
	if long := time.Since(t.begun); !t.begun.IsZero() && long >= leastRate {
		rate := float64(all.bytes-t.base) / long.Seconds()
		text += fmt.Sprintf(", %s/s", Size(int64(rate)))
		if long >= patience { // before, the rate changes too much
			left := time.Duration(float64(all.total-all.bytes) / rate * float64(time.Second))
			text += fmt.Sprintf(", %s left", left.Round(time.Second))
		}
	}
	return text
}

// Close ends the spell.
func (t *Transfer) Close() {
	t.mu.Lock()
	done := t.done
	if t.done = nil; done != nil {
		t.spent += time.Since(t.start)
	}
	t.mu.Unlock()
	if done != nil {
		done() // without the lock: it waits for shown
	}
}

// Sent ends the Transfer. If err is nil and bytes were sent, it prints what was sent, and how
// many bytes have left this machine: hosts may have passed them on.
func (t *Transfer) Sent(err error) {
	t.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && t.left > 0 && len(t.hosts) > 0 {
		name := t.names(func(f moved) bool { return f.bytes > 0 })
		t.printer.Printf("sent %s (%s) to %s in %.1fs", name, Size(t.left), plural.Count(len(t.hosts), "host"), t.spent.Seconds())
	}
}
