// Package plot draws lines as SVG, for documents and reports.
//
//	p := plot.New("Loss of the MLP", "step", "loss")
//	p.LogY()
//	p.Add("sync", steps, losses)
//	err := p.WriteSVG(file)
//
// The picture has no background and is readable on light and on dark pages.
// Series differ in dashes as well as in colour. The same numbers give the same
// bytes. The package draws lines and nothing else: no bars, no dates.
package plot

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Plot is one picture. It is for one goroutine.
type Plot struct {
	title, xLabel, yLabel string
	logX, logY            bool
	series                []series
	err                   error
}

type series struct {
	name   string
	xs, ys []float64
}

// New returns an empty plot.
func New(title, xLabel, yLabel string) *Plot {
	return &Plot{title: title, xLabel: xLabel, yLabel: yLabel}
}

// LogX gives the x axis a logarithmic scale. Values of 0 or less are then not
// drawn.
func (p *Plot) LogX() { p.logX = true }

// LogY gives the y axis a logarithmic scale. Values of 0 or less are then not
// drawn.
func (p *Plot) LogY() { p.logY = true }

// Add adds a line through the points (xs[i], ys[i]), in this order. The line
// has a gap at points with NaN or a number beyond 1e300. The plot keeps both
// slices until it is written. If they differ in length, WriteSVG returns an
// error.
func (p *Plot) Add(name string, xs, ys []float64) {
	if len(xs) != len(ys) && p.err == nil {
		p.err = fmt.Errorf("plot: series %q: %d x for %d y", name, len(xs), len(ys))
	}
	p.series = append(p.series, series{name, xs, ys})
}

// The picture, in pixels: the frame with the lines, and beside it the legend. A
// long legend makes the picture higher.
const (
	width, height            = 760, 420
	left, right, top, bottom = 90, 580, 40, 360
	legend, legendLine       = right + 20, 20
)

// Grey is readable on white and on black (contrast 4.5). The colours are
// visible on both (contrast 3).
const grey = "#767676"

var (
	colours = []string{"#0a7fd1", "#d9480f", "#0f9960", "#c2379a", "#8a63d2", "#8f7a00"}
	dashes  = []string{"", "8 4", "2 4", "8 4 2 4", "16 4"}
)

// WriteSVG writes the picture.
func (p *Plot) WriteSVG(w io.Writer) error {
	if p.err != nil {
		return p.err
	}
	x, y := p.axes()
	high := max(height, top+legendLine*(len(p.series)+1))
	out := bufio.NewWriter(w) // its error comes back from Flush
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" `, width, high, width, high)
	fmt.Fprintf(out, `font-family="sans-serif" font-size="13" fill="%s">`+"\n<title>%s</title>\n", grey, escape(p.title))
	p.drawFrame(out, x, y)
	for i, s := range p.series {
		look := fmt.Sprintf(`fill="none" stroke-width="2" stroke-linecap="round" stroke="%s" stroke-dasharray="%s"`,
			colours[i%len(colours)], dashes[i%len(dashes)])
		at := top + legendLine*i + legendLine/2
		fmt.Fprintf(out, `<path d="M%d %dh34" %s/>`+"\n", legend, at, look)
		text(out, legend+42, float64(at)+4, "", short(s.name))
		fmt.Fprintf(out, `<path class="line" d="%s" %s/>`+"\n", p.path(s, x, y), look)
	}
	fmt.Fprint(out, "</svg>\n")
	return out.Flush()
}

// drawFrame draws the frame, the axes and the texts.
func (p *Plot) drawFrame(out io.Writer, x, y axis) {
	text(out, (left+right)/2, top-15, `text-anchor="middle" font-size="16"`, p.title)
	text(out, (left+right)/2, bottom+45, `text-anchor="middle"`, p.xLabel)
	text(out, 0, 0, fmt.Sprintf(`text-anchor="middle" transform="translate(18 %d) rotate(-90)"`, (top+bottom)/2), p.yLabel)
	fmt.Fprintf(out, `<path d="M%d %dV%dH%d" fill="none" stroke="%s"/>`+"\n", left, top, bottom, right, grey)
	for _, t := range x.ticks() {
		fmt.Fprintf(out, `<path d="M%s %dv5" stroke="%s"/>`+"\n", pixels(x.at(t)), bottom, grey)
		text(out, x.at(t), bottom+20, `text-anchor="middle"`, x.label(t))
	}
	for _, t := range y.ticks() {
		fmt.Fprintf(out, `<path d="M%d %sH%d" stroke="%s" stroke-opacity="0.3"/>`+"\n", left, pixels(y.at(t)), right, grey)
		text(out, left-8, y.at(t)+4, `text-anchor="end"`, y.label(t))
	}
}

// path draws the points of a series. A point without neighbours becomes a dot:
// a line of length 0 with round ends.
func (p *Plot) path(s series, x, y axis) string {
	var b strings.Builder
	pen := 'M'
	for i := range s.xs {
		if !x.shows(s.xs[i]) || !y.shows(s.ys[i]) {
			pen = 'M'
			continue
		}
		fmt.Fprintf(&b, "%c%s %s", pen, pixels(x.at(s.xs[i])), pixels(y.at(s.ys[i])))
		if pen == 'M' {
			b.WriteString("h0")
		}
		pen = 'L'
	}
	return b.String()
}

// axes fits both axes to the points that are drawn.
func (p *Plot) axes() (x, y axis) {
	x = axis{low: math.Inf(1), high: math.Inf(-1), from: left, to: right, log: p.logX}
	y = axis{low: math.Inf(1), high: math.Inf(-1), from: bottom, to: top, log: p.logY}
	for _, s := range p.series {
		for i := range s.xs {
			if x.shows(s.xs[i]) && y.shows(s.ys[i]) {
				x.hold(s.xs[i])
				y.hold(s.ys[i])
			}
		}
	}
	x.finish(0)
	y.finish(0.05)
	return x, y
}

func text(w io.Writer, x, y float64, attributes, s string) {
	fmt.Fprintf(w, `<text x="%s" y="%s" %s>%s</text>`+"\n", pixels(x), pixels(y), attributes, escape(s))
}

func pixels(x float64) string { return fmt.Sprintf("%.1f", x) }

// short cuts a name to the width beside the frame.
func short(name string) string {
	if r := []rune(name); len(r) > 15 {
		return string(r[:14]) + "…"
	}
	return name
}

func escape(s string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(s)) // writing to memory cannot fail
	return b.String()
}

// axis maps the values low to high to the pixels from to to. If log is set, the
// values are common logarithms.
type axis struct {
	low, high, from, to float64
	log                 bool
}

// shows reports whether a value can be drawn.
func (a axis) shows(v float64) bool { return math.Abs(v) <= 1e300 && (!a.log || v > 0) }

func (a axis) scaled(v float64) float64 {
	if a.log {
		return math.Log10(v)
	}
	return v
}

// at returns the pixel of v.
func (a axis) at(v float64) float64 {
	part := (a.scaled(v) - a.low) / (a.high - a.low)
	return a.from + float64(part*(a.to-a.from))
}

// hold widens the axis so that it contains v.
func (a *axis) hold(v float64) {
	a.low, a.high = min(a.low, a.scaled(v)), max(a.high, a.scaled(v))
}

// finish leaves part of the axis free at both ends. It gives some length to an
// axis without values or with equal values.
func (a *axis) finish(free float64) {
	if a.low > a.high {
		a.low, a.high = 0, 1
	}
	size := max(math.Abs(a.low), math.Abs(a.high))
	if a.high-a.low <= max(float64(size*1e-9), 1e-290) {
		half := float64(size * 0.1)
		if half < 1e-290 || a.log {
			half = 0.5
		}
		a.low, a.high = a.low-half, a.high+half
	}
	pad := float64(free * (a.high - a.low))
	a.low, a.high = a.low-pad, a.high+pad
}

// rounding is the relative distance by which a tick at the very end may seem to
// lie outside.
const rounding = 1e-9

// ticks returns about six values to mark. They are multiples of 1, 2 or 5 times
// a power of ten. On a logarithmic axis they are powers of ten; if there are
// few, also 2 and 5 times those.
func (a axis) ticks() []float64 {
	if a.log && a.high-a.low > 1 {
		return a.decades()
	}
	low, high := a.values()
	step := niceStep((high - low) / 6)
	var ticks []float64
	for i := math.Ceil(low/step - rounding); i <= math.Floor(high/step+rounding); i++ {
		if i == 0 {
			i = 0 // not -0
		}
		ticks = append(ticks, i*step)
	}
	return ticks
}

// values returns the values at the ends of the axis.
func (a axis) values() (low, high float64) {
	if a.log {
		return math.Pow(10, a.low), math.Pow(10, a.high)
	}
	return a.low, a.high
}

func (a axis) decades() []float64 {
	every := max(1, math.Ceil((a.high-a.low)/8))
	factors := []float64{1, 2, 5}
	if a.high-a.low > 3 {
		factors = factors[:1]
	}
	var ticks []float64
	for d := math.Floor(a.low); d <= a.high+rounding; d += every {
		for _, f := range factors {
			if t := f * math.Pow(10, d); a.scaled(t) >= a.low-rounding && a.scaled(t) <= a.high+rounding {
				ticks = append(ticks, t)
			}
		}
	}
	return ticks
}

// niceStep returns the least 1, 2 or 5 times a power of ten that is at least x.
func niceStep(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, f := range []float64{1, 2, 5} {
		if f*power >= x {
			return f * power
		}
	}
	return 10 * power
}

// label writes a tick with enough digits to tell it from the next one.
func (a axis) label(tick float64) string {
	low, high := a.values()
	size := max(math.Abs(low), math.Abs(high))
	digits := max(6, math.Ceil(math.Log10(size/(high-low)))+2)
	return strconv.FormatFloat(tick, 'g', int(digits), 64)
}
