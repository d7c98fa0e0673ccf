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

// Display writes to the standard output and standard error of a plx command,
// one write at a time. On a terminal it keeps progress rows below all other
// output and redraws them in place. Its methods may be called from any
// goroutine.
//
// If both outputs are terminals, Display assumes that they are the same
// terminal.
type Display struct {
	outputs [2]Screen
	base    Stream // the output that shows the progress rows, if it is a terminal

	mu    sync.Mutex // guards all fields below
	rows  []*Row     // progress rows from top to bottom
	drawn int        // number of progress rows that are now on the screen
	last  time.Time  // time of the last drawing of the rows
	timer *time.Timer
}

// Screen describes one of the two outputs of a Display.
type Screen struct {
	io.Writer
	Terminal bool // true if the output is a terminal, so that control characters in lines must be escaped
	Dumb     bool // true if the terminal cannot move its cursor, so that progress rows are not shown
	Colour   bool // true if text may be coloured, see [UseColour]
	Sixteen  bool // true if the terminal has only 16 colours, see [Sixteen]
}

// Row is a progress row at the bottom of a Display, whose text can change.
type Row struct {
	display *Display
	order   int    // sort key: rows are drawn from top to bottom in ascending order
	text    string // text of the row; an empty text hides the row
}

const (
	// redrawEvery is the shortest time between two drawings of the rows.
	redrawEvery = 100 * time.Millisecond
	// maxRows is the greatest number of progress rows on the screen.
	maxRows = 10
)

// NewDisplay returns a Display for the two outputs. After the call, no other
// code should write to them.
func NewDisplay(stdout, stderr Screen) *Display {
	d := &Display{outputs: [2]Screen{Stdout: stdout, Stderr: stderr}, base: Stderr}
	if !stderr.Terminal {
		d.base = Stdout
	}
	return d
}

// Divert sends all lines to w until the caller calls restore. The lines are
// escaped for a terminal and coloured if the original terminal shows colours.
// Progress rows are not shown. The Display must have no rows when Divert is
// called.
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

// Terminal reports whether the output is a terminal that can show progress
// rows.
func (d *Display) Terminal(to Stream) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.canMove(to)
}

// canMove reports whether the output is a terminal that can move its cursor.
// The caller must hold d.mu.
func (d *Display) canMove(to Stream) bool { return d.outputs[to].Terminal && !d.outputs[to].Dumb }

// Write writes lines, which must be complete, to an output.
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

// Alone clears the progress rows and calls f. Other goroutines cannot write to
// the Display while f runs.
func (d *Display) Alone(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if cleared := d.clear(); len(cleared) > 0 {
		_, _ = d.outputs[d.base].Write(cleared) // ignore a failed write: f must run anyway
	}
	f()
}

// Values of a row's order. Rows with these orders are drawn below the rows of
// tasks. A row with order Status is always shown, even if there are more than
// maxRows rows.
const (
	Bottom = math.MaxInt - 1
	Status = math.MaxInt
)

// Row adds a progress row below all rows with the same or a lower order. The
// caller must call Remove on the row.
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

// Set changes the text of the row. The text must be one line without control
// characters; colours are allowed.
func (r *Row) Set(text string) {
	d := r.display
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.text != text {
		r.text = text
		d.refresh(false)
	}
}

// Remove removes the row from the Display. Further calls do nothing.
func (r *Row) Remove() {
	d := r.display
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.rows, r); i >= 0 {
		d.rows = slices.Delete(d.rows, i, i+1)
		d.refresh(true)
	}
}

// refresh redraws the progress rows. If now is false and the last drawing is
// less than redrawEvery ago, a timer draws them later. The caller must hold
// d.mu.
func (d *Display) refresh(now bool) {
	if !d.canMove(d.base) || !now && time.Since(d.last) < redrawEvery {
		d.later()
		return
	}
	d.outputs[d.base].Write(d.draw(d.clear(), true)) // ignore a failed write: only progress rows are lost
}

// later starts a timer that redraws the rows after redrawEvery. The caller
// must hold d.mu.
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

// clear returns the control sequences that erase the progress rows from the
// screen. The caller must hold d.mu.
func (d *Display) clear() []byte {
	if d.drawn == 0 {
		return nil
	}
	erase := "\r" + ansi.EraseLineRight + strings.Repeat(ansi.CUU1+ansi.EraseLineRight, d.drawn-1)
	d.drawn = 0
	return []byte(erase)
}

// draw appends the control sequences and text of the progress rows to b. If
// now is false and the rows were drawn less than redrawEvery ago, a timer
// draws them later. So redrawing does not slow down a flood of lines. The
// caller must hold d.mu.
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

// texts returns the texts of the rows to show: at most limit rows, plus the
// rows with order Status. The caller must hold d.mu.
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

// Width returns the width, in cells, of the terminal that shows the progress
// rows.
func (d *Display) Width() int {
	width, _ := d.size()
	return width
}

// size returns the width and height of the terminal in cells, or 80 by 24 if
// they are unknown.
func (d *Display) size() (width, height int) {
	if f, ok := d.outputs[d.base].Writer.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			return w, h
		}
	}
	return 80, 24
}
