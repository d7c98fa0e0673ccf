package ledger

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// Every push must have its own row, and the next step's row must be in the
// other half.
func TestRows(t *testing.T) {
	seen := map[int]Push{}
	for g := range Generations {
		for w := range Workers {
			for s := range Steps {
				p := Push{g, w, s}
				row := p.Row()
				if other, twice := seen[row]; twice || row < 0 || row >= Rows || p.check() != nil {
					t.Fatalf("%+v has row %d, as %+v: %v", p, row, other, p.check())
				}
				seen[row] = p
				if first := row < Rows/2; first != (s%2 == 0) {
					t.Errorf("%+v has row %d of %d", p, row, Rows)
				}
			}
		}
	}
	for _, p := range []Push{{Generations, 0, 0}, {0, Workers, 0}, {0, 0, Steps}, {-1, 0, 0}, {0, -1, 0}, {0, 0, -1}} {
		if p.check() == nil {
			t.Errorf("%+v is counted", p)
		}
	}
}

func TestBooks(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "new")
	want := []Entry{
		{Push: Push{0, 0, 100}, Kind: Joined, Workers: 1}, {Push: Push{0, 0, 7}, Kind: Begun, Seen: []int{7, 6}}, {Push: Push{0, 0, 7}, Kind: Made},
		{Push: Push{1, 2, 0}, Kind: Joined, Workers: 3}, {Push: Push{1, 2, 0}, Kind: Late},
	}
	for _, part := range [][]Entry{want[:3], want[3:]} {
		b, err := Create(folder, part[0].Generation, part[0].Worker)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range part {
			if err := b.Note(e); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := Read(folder); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
	if _, err := Create(folder, 0, 0); err == nil {
		t.Error("a book was begun twice")
	}
	for _, text := range []string{"{", `{"kind":"made","step":80}`, `{"kind":"joined"}`, `{"kind":"joined","workers":4}`,
		`{"kind":"joined","workers":2,"worker":2}`, `{"kind":"joined","workers":2,"step":-1}`, `{"kind":"joined","workers":2,"generation":4}`} {
		if err := os.WriteFile(filepath.Join(folder, "3-0.jsonl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(folder); err == nil || !strings.Contains(err.Error(), "entry 1") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestApplied(t *testing.T) {
	folder := t.TempDir()
	if a, err := ReadApplied(folder); a != nil || err != nil {
		t.Errorf("of nothing: %v, %v", a, err)
	}
	want := Applied{"left": make([]float64, Rows)}
	want["left"][3] = 2
	if err := want.Write(folder); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadApplied(folder); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if err := (Applied{"left": {1}}).Write(folder); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadApplied(folder); err == nil {
		t.Error("too few rows were taken")
	}
}

// FuzzRead reads arbitrary ledger files.
func FuzzRead(f *testing.F) {
	f.Add(`{"kind":"made","step":8}`)
	f.Add("{}\n{}\n")
	f.Add(`{"kind":"joined","step":80,"workers":3,"worker":2}`)
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "0-0.jsonl")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		entries, err := Read(filepath.Dir(path))
		for _, e := range entries {
			if (e.Kind != Joined && e.Push.check() != nil) || (e.Kind == Joined && (e.Worker < 0 || e.Worker >= e.Workers || e.Workers > Workers || e.Step < 0)) {
				t.Errorf("%+v of %q, %v", e, text, err)
			}
		}
	})
}
