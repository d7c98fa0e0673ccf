package style

import (
	"image/color"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

func TestUseColour(t *testing.T) {
	tests := []struct {
		mode     string
		terminal bool
		env      string
		want     bool
	}{
		{"auto", true, "TERM=xterm", true}, {"", true, "", true}, {"auto", false, "", false},
		{"auto", true, "NO_COLOR=1", false}, {"auto", true, "TERM=dumb", false},
		{"always", false, "NO_COLOR=1", true}, {"never", true, "", false},
	}
	for _, tt := range tests {
		name, value, _ := strings.Cut(tt.env, "=")
		getenv := func(key string) string {
			if key == name {
				return value
			}
			return ""
		}
		if got := UseColour(tt.mode, tt.terminal, getenv); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// The colours of tasks have enough contrast (WCAG 2) on dark and on light
// backgrounds, and neighbouring colours differ enough (CIE 1976).
func TestPalette(t *testing.T) {
	if len(palette) != 12 {
		t.Errorf("%d colours", len(palette))
	}
	backgrounds := map[string]color.Color{"black": rgb(0), "dark grey": rgb(0x1e1e1e), "white": rgb(0xffffff), "cream": rgb(0xfdf6e3)}
	for i := range palette {
		c := extended(t, i)
		for name, b := range backgrounds {
			if got := contrast(c, b); got < 3 {
				t.Errorf("colour %d: contrast %.1f on %s", c, got, name)
			}
		}
		if d := difference(c, extended(t, (i+1)%len(palette))); d < 65 {
			t.Errorf("colour %d and its neighbour differ by %.0f", c, d)
		}
		for j := range i {
			other := extended(t, j)
			if d := difference(c, other); d < 25 {
				t.Errorf("colours %d and %d differ by %.0f", c, other, d)
			}
		}
		if d := difference(c, rgb(0xcd0000)); d < 40 {
			t.Errorf("colour %d and the red of stderr differ by %.0f", c, d)
		}
	}
}

// extended returns colour i of the palette.
func extended(t *testing.T, i int) ansi.IndexedColor {
	n, err := strconv.ParseUint(string(palette[i]), 10, 8)
	if err != nil {
		t.Fatal(err)
	}
	return ansi.IndexedColor(n)
}

func rgb(hex uint32) color.Color {
	return color.RGBA{uint8(hex >> 16), uint8(hex >> 8), uint8(hex), 0xff}
}

func contrast(a, b color.Color) float64 {
	_, y, _ := xyz(a)
	_, z, _ := xyz(b)
	return (max(y, z) + 0.05) / (min(y, z) + 0.05)
}

// difference returns the distance of two colours in the L*a*b* colour space.
func difference(a, b color.Color) float64 {
	f := func(t float64) float64 {
		if t > 216.0/24389 {
			return math.Cbrt(t)
		}
		return (24389.0/27*t + 16) / 116
	}
	lab := func(c color.Color) [3]float64 {
		x, y, z := xyz(c)
		return [3]float64{116*f(y) - 16, 500 * (f(x/0.95047) - f(y)), 200 * (f(y) - f(z/1.08883))}
	}
	p, q := lab(a), lab(b)
	return math.Sqrt((p[0]-q[0])*(p[0]-q[0]) + (p[1]-q[1])*(p[1]-q[1]) + (p[2]-q[2])*(p[2]-q[2]))
}

// xyz converts an sRGB colour to the CIE 1931 colour space.
func xyz(c color.Color) (x, y, z float64) {
	linear := func(v uint32) float64 {
		s := float64(v) / 0xffff
		if s <= 0.04045 {
			return s / 12.92
		}
		return math.Pow((s+0.055)/1.055, 2.4)
	}
	red, green, blue, _ := c.RGBA()
	r, g, b := linear(red), linear(green), linear(blue)
	return 0.4124*r + 0.3576*g + 0.1805*b, 0.2126*r + 0.7152*g + 0.0722*b, 0.0193*r + 0.1192*g + 0.9505*b
}

func TestSixteen(t *testing.T) {
	if !Sixteen([]string{"TERM=linux"}) || !Sixteen(nil) || Sixteen([]string{"TERM=xterm-256color"}) || Sixteen([]string{"TERM=xterm", "COLORTERM=truecolor"}) {
		t.Error("the number of colours is not found")
	}
}
