package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// picture is what a reader of the SVG sees.
type picture struct {
	lines  [][][2]float64 // by series: the points
	starts []int          // by series: pieces
	texts  []string
}

func draw(t *testing.T, p *Plot) picture {
	t.Helper()
	var out bytes.Buffer
	if err := p.WriteSVG(&out); err != nil {
		t.Fatal(err)
	}
	return read(t, out.Bytes())
}

func read(t *testing.T, svg []byte) (p picture) {
	t.Helper()
	in := xml.NewDecoder(bytes.NewReader(svg))
	for depth := 0; ; {
		element, err := in.Token()
		if err == io.EOF {
			if depth != 0 {
				t.Fatalf("%d elements are open", depth)
			}
			return p
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		switch e := element.(type) {
		case xml.StartElement:
			depth++
			p.see(t, e)
		case xml.EndElement:
			depth--
		case xml.CharData:
			if s := strings.TrimSpace(string(e)); s != "" {
				p.texts = append(p.texts, s)
			}
		}
	}
}

var point = regexp.MustCompile(`([ML])(-?[0-9.]+) (-?[0-9.]+)`)

// see wants every number of an element to be one, and notes lines.
func (p *picture) see(t *testing.T, e xml.StartElement) {
	t.Helper()
	attributes := map[string]string{}
	for _, a := range e.Attr {
		attributes[a.Name.Local] = a.Value
		if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
			t.Fatalf("%s=%q", a.Name.Local, a.Value)
		}
	}
	if attributes["class"] != "line" {
		return
	}
	points, starts := [][2]float64{}, 0
	for _, m := range point.FindAllStringSubmatch(attributes["d"], -1) {
		x, _ := strconv.ParseFloat(m[2], 64)
		y, _ := strconv.ParseFloat(m[3], 64)
		if x < left || x > right || y < top || y > bottom {
			t.Fatalf("the point %v, %v is outside of the frame", x, y)
		}
		points = append(points, [2]float64{x, y})
		if m[1] == "M" {
			starts++
		}
	}
	p.lines, p.starts = append(p.lines, points), append(p.starts, starts)
}

func (p picture) has(text string) bool {
	for _, s := range p.texts {
		if s == text {
			return true
		}
	}
	return false
}

var nan, inf = math.NaN(), math.Inf(1)

func TestPointsAreWhereTheyBelong(t *testing.T) {
	p := New("title", "step", "loss")
	p.Add("falls", []float64{0, 1, 2, 4}, []float64{4, 3, 2, 0})
	p.Add("gaps", []float64{0, 1, nan, 3, 4, 4}, []float64{1, nan, 1, 1, inf, -1e301})
	got := draw(t, p)
	if len(got.lines) != 2 || len(got.lines[0]) != 4 || got.starts[0] != 1 {
		t.Fatalf("lines %v in %v pieces", got.lines, got.starts)
	}
	falls := got.lines[0]
	if falls[0][0] != left || falls[3][0] != right || falls[2][0] != (left+right)/2 {
		t.Errorf("x of %v", falls)
	}
	if math.Abs(falls[2][1]-(top+bottom)/2) > 0.1 || falls[0][1] >= falls[1][1] || falls[1][1] >= falls[3][1] {
		t.Errorf("y of %v", falls)
	}
	if len(got.lines[1]) != 2 || got.starts[1] != 2 {
		t.Errorf("the line with gaps has the points %v in %d pieces", got.lines[1], got.starts[1])
	}
	for _, want := range []string{"title", "step", "loss", "falls", "gaps", "0", "1", "4"} {
		if !got.has(want) {
			t.Errorf("no text %q in %q", want, got.texts)
		}
	}
}

func TestFewPoints(t *testing.T) {
	for name, c := range map[string]struct {
		ys   []float64
		want int
	}{
		"none": {nil, 0}, "one": {[]float64{3}, 1}, "only NaN": {[]float64{nan, nan}, 0}, "equal": {[]float64{0.25, 0.25, 0.25}, 3},
		"zeros": {[]float64{0, 0}, 2}, "nearly equal": {[]float64{1e15, 1e15 + 0.125}, 2}, "smallest": {[]float64{0, 5e-324}, 2},
		"largest": {[]float64{-1e300, 1e300}, 2}, "tiny": {[]float64{1e-280, 2e-280}, 2}, "negative": {[]float64{-5, -5}, 2},
	} {
		for _, logarithmic := range []bool{false, true} {
			p := New(name, "x", "y")
			if logarithmic {
				p.LogY()
			}
			xs := make([]float64, len(c.ys))
			copy(xs, c.ys)
			p.Add("s", xs, c.ys)
			want := 0
			for _, y := range c.ys {
				if y > 0 || !logarithmic && y <= 0 {
					want++
				}
			}
			if !logarithmic && want != c.want {
				t.Fatalf("%s: the test wants %d or %d points", name, want, c.want)
			}
			got := draw(t, p)
			if len(got.lines) != 1 || len(got.lines[0]) != want {
				t.Errorf("%s, log %v: points %v, want %d", name, logarithmic, got.lines, want)
			}
		}
	}
}

func TestLogarithmicAxis(t *testing.T) {
	p := New("", "", "")
	p.LogY()
	p.Add("s", []float64{0, 1, 2, 3, 4}, []float64{1, 0.01, 0.0001, 0, -1})
	got := draw(t, p)
	s := got.lines[0]
	if len(s) != 3 || math.Abs(s[1][1]-(top+bottom)/2) > 0.1 {
		t.Errorf("points %v", s)
	}
	for _, want := range []string{"1", "0.1", "0.01", "0.001", "0.0001"} {
		if !got.has(want) {
			t.Errorf("no tick %q in %q", want, got.texts)
		}
	}
}

func TestLogarithmicX(t *testing.T) {
	p := New("", "", "")
	p.LogX()
	p.Add("s", []float64{-1, 0, 1, 4, 16}, []float64{0, 1, 2, 3, 4})
	got := draw(t, p)
	s := got.lines[0]
	if len(s) != 3 || s[0][0] != left || math.Abs(s[1][0]-(left+right)/2) > 0.1 || s[2][0] != right {
		t.Errorf("points %v", s)
	}
	for _, want := range []string{"1", "2", "5", "10"} {
		if !got.has(want) {
			t.Errorf("no tick %q in %q", want, got.texts)
		}
	}
}

// Ticks lie on the axis, ascend, are few and have different labels.
func TestTicks(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		log       bool
		want      string
	}{
		{0, 10, false, "0 2 4 6 8 10"},
		{-1, 1, false, "-1 -0.5 0 0.5 1"},
		{0, 0.3, false, "0 0.05 0.1 0.15 0.2 0.25 0.3"},
		{1e6, 1e6 + 3, false, "1000000 1000000.5 1000001 1000001.5 1000002 1000002.5 1000003"},
		{0, 60000, false, "0 10000 20000 30000 40000 50000 60000"},
		{-4, 2, true, "0.0001 0.001 0.01 0.1 1 10 100"},
		{-1, 1, true, "0.1 0.2 0.5 1 2 5 10"},
		{0, 0.5, true, "1 1.5 2 2.5 3"},
		{-20, 20, true, "1e-20 1e-15 1e-10 1e-05 1 100000 1e+10 1e+15 1e+20"},
		{math.Log10(5), math.Log10(5.0001), true, "5 5.00002 5.00004 5.00006 5.00008 5.0001"},
	} {
		a := axis{low: c.low, high: c.high, log: c.log, from: left, to: right}
		var labels []string
		for _, tick := range a.ticks() {
			labels = append(labels, a.label(tick))
		}
		if got := strings.Join(labels, " "); got != c.want {
			t.Errorf("%v to %v, log %v: %s, want %s", c.low, c.high, c.log, got, c.want)
		}
	}
}

func TestSameBytes(t *testing.T) {
	first := ""
	for range 5 {
		p := New("a", "b", "c")
		for i := range 40 { // more than there are looks, and than fit beside the frame
			p.Add(fmt.Sprint("series ", i), []float64{0, float64(i)}, []float64{1, 2})
		}
		var out bytes.Buffer
		if err := p.WriteSVG(&out); err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = out.String()
		}
		if out.String() != first || !strings.Contains(first, `viewBox="0 0 760 860"`) {
			t.Fatalf("another picture:\n%s", out.String())
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestErrors(t *testing.T) {
	p := New("", "", "")
	if err := p.WriteSVG(broken{}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a broken writer: %v", err)
	}
	p.Add("good", nil, nil)
	p.Add("bad", []float64{1, 2, 3}, []float64{1})
	p.Add("worse", []float64{1}, nil)
	var out bytes.Buffer
	if err := p.WriteSVG(&out); err == nil || !strings.Contains(err.Error(), `"bad": 3 x for 1 y`) || out.Len() != 0 {
		t.Errorf("lengths that differ: %v", err)
	}
}

// Text and lines can be told from a white and from a black page. The formula
// is that of WCAG 2.1.
func TestReadableOnLightAndDark(t *testing.T) {
	for i, colour := range append([]string{grey}, colours...) {
		least := 3.0
		if i == 0 {
			least = 4.5
		}
		luminance := 0.0
		for channel, weight := range []float64{0.2126, 0.7152, 0.0722} {
			n, err := strconv.ParseUint(colour[1+2*channel:3+2*channel], 16, 8)
			if err != nil {
				t.Fatal(err)
			}
			v := float64(n) / 255
			if v <= 0.03928 {
				v /= 12.92
			} else {
				v = math.Pow((v+0.055)/1.055, 2.4)
			}
			luminance += weight * v
		}
		if onWhite, onBlack := 1.05/(luminance+0.05), (luminance+0.05)/0.05; onWhite < least || onBlack < least {
			t.Errorf("%s: contrast %.2f on white, %.2f on black", colour, onWhite, onBlack)
		}
	}
}

func FuzzWriteSVG(f *testing.F) {
	f.Add("name", 0.0, 1.0, 2.0, 3.0, false)
	f.Add("<&>\"'\x00\xff", nan, inf, -inf, 1e300, true)
	f.Add(strings.Repeat("é", 30), 5e-324, 1e-323, math.Copysign(0, -1), 1e-310, true)
	f.Add("", 1e15, 1e15+1, 1e308, -1e308, false)
	f.Fuzz(func(t *testing.T, name string, a, b, c, d float64, logarithmic bool) {
		p := New(name, name, name)
		if logarithmic {
			p.LogY()
		}
		p.Add(name, []float64{a, b, c, d}, []float64{b, c, d, a})
		got := draw(t, p)
		if len(got.lines) != 1 || len(got.texts) > 40 {
			t.Fatalf("%d lines, texts %q", len(got.lines), got.texts)
		}
	})
}
