package lines

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPicture(t *testing.T) {
	p := New("a title", "steps", "loss")
	p.LogY()
	p.Add("first", []float64{1, 2, 3}, []float64{1, 10, 1000})
	p.Add("second", []float64{2}, []float64{5})
	p.Add("without points", nil, nil)
	path := filepath.Join(t.TempDir(), "a.svg")
	if err := p.SaveSVG(path); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{">a title<": true, ">steps<": true, ">loss<": true, ">first<": true, ">second<": true, ">without points<": false, "</svg>": true} {
		if strings.Contains(string(svg), text) != want {
			t.Errorf("%q in the picture: %t, want %t", text, !want, want)
		}
	}
}
