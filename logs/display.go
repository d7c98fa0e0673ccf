package logs

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

// Display writes to the two outputs of a command, one write at a time. On a terminal it
// keeps rows below everything else: progress, which it redraws in place. Its methods
// may be called from any goroutine.
//
// If both outputs are terminals, a Display takes them for the same one.
type Display struct {
	outputs [2]Screen
	base    Stream // the output with the rows, if that is a terminal

	mu    sync.Mutex // guards all below
	rows  []*Row     // from top to bottom
	drawn int        // number of rows on the screen now
	last  time.Time  // when the rows were drawn
	timer *time.Timer
}

// Screen is an output of a Display.
type Screen struct {
	io.Writer
	Terminal bool // the output is a terminal: its lines must be harmless there
	Dumb     bool // the terminal cannot move its cursor: it shows no rows
	Colour   bool // the output shows colours, see [UseColour]
	Sixteen  bool // it has 16 colours only, see [Sixteen]
}

// Row is a line of a Display that can change.
type Row struct {
	display *Display
	order   int    // rows are sorted by it
	text    string // empty: the row is not shown
}

const (
	// redrawEvery is the shortest time between two drawings of the rows.
	redrawEvery = 100 * time.Millisecond
	// maxRows is how many rows are shown at once.
	maxRows = 10
)

// NewDisplay returns a Display. From then on nothing else should write to the outputs.
func NewDisplay(stdout, stderr Screen) *Display {
	d := &Display{outputs: [2]Screen{Stdout: stdout, Stderr: stderr}, base: Stderr}
	if !stderr.Terminal {
		d.base = Stdout
	}
	return d
}

// Divert has w take all lines from now on, made harmless for a terminal, with colours if the
// terminal of the rows has them; no rows are shown. Its end is when restore is called. No row may
// exist.
func (d *Display) Divert(w io.Writer) (restore func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.outputs
	for i := range d.outputs {
		d.outputs[i] = Screen{Writer: w, Terminal: true, Dumb: true, Colour: before[d.base].Colour, Sixteen: before[d.base].Sixteen}
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.outputs = before
	}
}

// Terminal reports whether an output is a terminal that can show rows.
func (d *Display) Terminal(to Stream) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.canMove(to)
}

// canMove is Terminal. It needs d.mu.
func (d *Display) canMove(to Stream) bool { return d.outputs[to].Terminal && !d.outputs[to].Dumb }

// Write writes whole lines.
func (d *Display) Write(to Stream, lines []byte) error {
	if len(lines) == 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.outputs[to]
	if !d.canMove(to) || d.drawn == 0 && len(d.rows) == 0 {
		_, err := out.Write(lines)
		return err
	}
	_, err := out.Write(d.draw(append(d.clear(), lines...), false))
	return err
}

// Alone clears the rows and calls f, during which nothing else is written.
func (d *Display) Alone(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if cleared := d.clear(); len(cleared) > 0 {
		_, _ = d.outputs[d.base].Write(cleared) // what f does is more important
	}
	f()
}

// Orders of rows that stand below those of tasks. The one of Status is always shown.
const (
	Bottom = math.MaxInt - 1
	Status = math.MaxInt
)

// Row adds a row, below those of the same order or a lower one. Remove must be called.
func (d *Display) Row(order int) *Row {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &Row{display: d, order: order}
	i, _ := slices.BinarySearchFunc(d.rows, order, func(other *Row, order int) int {
		if other.order <= order {
			return -1
		}
		return 1
	})
	d.rows = slices.Insert(d.rows, i, r)
	return r
}

// Set changes the text of the row: one line without control characters but colours.
func (r *Row) Set(text string) {
	d := r.display
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.text != text {
		r.text = text
		d.refresh(false)
	}
}

// Remove removes the row. It may be called again.
func (r *Row) Remove() {
	d := r.display
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.rows, r); i >= 0 {
		d.rows = slices.Delete(d.rows, i, i+1)
		d.refresh(true)
	}
}

// refresh draws the rows again, if now is false not more often than redrawEvery. It
// needs d.mu.
func (d *Display) refresh(now bool) {
	if !d.canMove(d.base) || !now && time.Since(d.last) < redrawEvery {
		d.later()
		return
	}
	d.outputs[d.base].Write(d.draw(d.clear(), true)) // rows that are lost tell nothing more
}

// later has the rows drawn in a moment. It needs d.mu.
func (d *Display) later() {
	if d.timer != nil || !d.canMove(d.base) {
		return
	}
	d.timer = time.AfterFunc(redrawEvery, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.timer = nil
		d.refresh(true)
	})
}

// clear returns what erases the rows. It needs d.mu.
func (d *Display) clear() []byte {
	if d.drawn == 0 {
		return nil
	}
	erase := "\r" + ansi.EraseLineRight + strings.Repeat(ansi.CUU1+ansi.EraseLineRight, d.drawn-1)
	d.drawn = 0
	return []byte(erase)
}

// draw adds the rows to b. If now is false and they were drawn a moment ago it leaves
// that to the timer: a flood of lines must not wait for them. It needs d.mu.
func (d *Display) draw(b []byte, now bool) []byte {
	if !now && time.Since(d.last) < redrawEvery {
		d.later()
		return b
	}
	width, height := d.size()
	texts := d.texts(min(maxRows, max(1, height/2)))
	for i, text := range texts {
		if i > 0 {
			b = append(b, '\n')
		}
		b = append(b, ansi.Truncate(text, max(1, width-1), "…")...)
		if d.outputs[d.base].Colour {
			b = append(b, ansi.ResetStyle...)
		}
		b = append(b, ansi.EraseLineRight...)
	}
	d.drawn, d.last = len(texts), time.Now()
	return b
}

// texts returns the rows to show, at most limit beside that of Status. It needs d.mu.
func (d *Display) texts(limit int) (texts []string) {
	var status []string
	for _, r := range d.rows {
		switch {
		case r.text == "":
		case r.order == Status:
			status = append(status, r.text)
		default:
			texts = append(texts, r.text)
		}
	}
	if more := len(texts) - limit; more > 0 {
		texts = append(texts[:limit-1], fmt.Sprintf("... and %d more", more+1))
	}
	return append(texts, status...)
}

// Width returns the width of the terminal with the rows, in cells.
func (d *Display) Width() int {
	width, _ := d.size()
	return width
}

// size returns the width and height of the terminal in cells.
func (d *Display) size() (width, height int) {
	if f, ok := d.outputs[d.base].Writer.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			return w, h
		}
	}
	return 80, 24
}
