package measured

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/perf/benchfmt"
)

func TestSamplesComeBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "samples", "x.txt")
	facts := Facts("make it")
	var all Samples
	for i, hosts := range []string{"1", "12", "1"} {
		all = append(all, &benchfmt.Result{Config: facts, Name: []byte("LM/hosts=" + hosts + "/rate=1gbit"), Iters: 5,
			Values: []benchfmt.Value{{Value: 0.5 + float64(i), Unit: "sec/op"}, {Value: 1e6, Unit: "words/s"}}})
	}
	if err := all.Save(path); err != nil {
		t.Fatal(err)
	}
	got, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got[0].GetConfig("command") != "make it" || got[2].GetConfig("go") == "" || len(got.Parts("hosts")) != 2 || Part(got[1], "rate") != "1gbit" {
		t.Errorf("%v", got)
	}
	one := got.Pick("hosts=1", "rate=1gbit")
	if v := one.Of("sec/op"); len(one) != 2 || v.Median() != 1.5 || v.Range("%.1f") != "0.5 to 2.5" || one.Median("none") != 0 {
		t.Errorf("%v", one)
	}
	if err := os.WriteFile(path, []byte("BenchmarkX 1 2"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("half a line: %v", err)
	}
}

func TestInsert(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	for _, part := range []string{"one\n", Table([]string{"", "a"}, []string{"b", "1"})} {
		if err := Insert(page, "table", part); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(page)
		if want := "# Benchmarks\n\n<!-- table: begin -->\n" + part + "<!-- table: end -->\n"; err != nil || string(text) != want {
			t.Errorf("%q, %v, want %q", text, err, want)
		}
	}
	if err := Insert(page, "other", "x"); err == nil || !strings.Contains(err.Error(), "not there") {
		t.Errorf("a part without a place: %v", err)
	}
}

func TestDraw(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.svg")
	if err := Draw(path, "nothing was measured", "x", "y", true); err != nil {
		t.Fatal(err)
	}
	if err := Draw(path, "a title", "steps", "loss", true, "first", Points([]float64{1, 2, 3}, []float64{1, 10, 1000}), "second", Points([]float64{2}, []float64{5})); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{">a title<", ">steps<", ">loss<", ">first<", ">second<", "</svg>"} {
		if !strings.Contains(string(svg), text) {
			t.Errorf("%q is not in the picture", text)
		}
	}
}

func TestFollow(t *testing.T) {
	begun, told := time.Now(), ""
	tell := func(line string) (bool, error) {
		told += line + ";"
		return line == "b", nil
	}
	if err := Follow(exec.Command("sh", "-c", "echo a; echo b >&2; exec sleep 50"), tell); err != nil || told != "a;b;" || time.Since(begun) > 20*time.Second {
		t.Errorf("%v, told %q in %v", err, told, time.Since(begun))
	}
	if err := Follow(exec.Command("sh", "-c", "echo why >&2; exit 3"), tell); err == nil || !strings.Contains(err.Error(), "status 3: why") {
		t.Error(err)
	}
	wrong := errors.New("wrong")
	if err := Follow(exec.Command("sh", "-c", "echo a; exec sleep 50"), func(string) (bool, error) { return false, wrong }); !errors.Is(err, wrong) {
		t.Error(err)
	}
}
