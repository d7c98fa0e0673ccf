package measured

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestInsert(t *testing.T) {
	page := filepath.Join(t.TempDir(), "docs", "page.md")
	for _, part := range []string{"one\n", "two\n"} {
		if err := Insert(page, "Page", "table", part); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(page)
		if want := "# Page\n\n<!-- table: begin -->\n" + part + "<!-- table: end -->\n"; err != nil || string(text) != want {
			t.Errorf("%q, %v, want %q", text, err, want)
		}
	}
	if err := Insert(page, "Page", "other", "x"); err == nil || !strings.Contains(err.Error(), "not there") {
		t.Errorf("a part without a place: %v", err)
	}
}

func TestSamplesComeBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "samples", "x.json")
	want := map[string][]float64{"a": {1, 2.5}}
	if err := Save(path, want); err != nil {
		t.Fatal(err)
	}
	var got map[string][]float64
	if err := Load(path, &got); err != nil || len(got["a"]) != 2 || got["a"][1] != 2.5 {
		t.Errorf("%v, %v", got, err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Load(path, &got); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("half a file: %v", err)
	}
}

func TestDescribe(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	if m := Describe(root, "make it"); m.Cores < 1 || m.Commit == "" || m.Command != "make it" || m.Go == "" {
		t.Errorf("%+v", m)
	}
	if err := (Machine{Commit: "53f1a5a7"}).Complete(); err != nil {
		t.Error(err)
	}
	if err := Describe(t.TempDir(), "make it").Complete(); err == nil {
		t.Error("a folder that is no repository has a commit")
	}
	if got := Said("", "no such program"); got != "unknown" {
		t.Errorf("%q", got)
	}
}
