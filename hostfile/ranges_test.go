package hostfile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// One line can name several hosts by the ranges that plx itself prints.
func TestRangesAndLists(t *testing.T) {
	for line, want := range map[string]string{
		"gpu[01-04,07]: 0,1":           "gpu01: 0,1; gpu02: 0,1; gpu03: 0,1; gpu04: 0,1; gpu07: 0,1",
		"h1,h2: 0":                     "h1: 0; h2: 0",
		"h1 , h2 : 0":                  "h1: 0; h2: 0",
		"h1: 0-3":                      "h1: 0,1,2,3",
		"h1: 5,0-2,GPU-02ba5a4d":       "h1: 5,0,1,2,GPU-02ba5a4d",
		"h1 exclude=0-1":               "h1 exclude=0,1",
		"gpu[9-11]":                    "gpu9; gpu10; gpu11",
		"gpu[08-10].example.org":       "gpu08.example.org; gpu09.example.org; gpu10.example.org",
		"r[1-2]n[1-2] slots=4":         "r1n1 slots=4; r1n2 slots=4; r2n1 slots=4; r2n2 slots=4",
		"alice@gpu[1-2],login:2222: 0": "alice@gpu1:2222: 0; alice@gpu2:2222: 0; alice@login:2222: 0",
		"alice@h1,bob@h2":              "alice@h1; bob@h2",
		"10.0.0.[1-2]:2222: cpu*2":     "10.0.0.1:2222: cpu*2; 10.0.0.2:2222: cpu*2",
		"[fd00::4],[fd00::5]: 0 A=x,y": "[fd00::4]: 0 A=x,y; [fd00::5]: 0 A=x,y",
		"h[1-2]: MIG-f":                "h1: MIG-f; h2: MIG-f",
	} {
		hosts, err := ParseLines([]string{line})
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if got := strings.ReplaceAll(strings.TrimSuffix(Format(hosts), "\n"), "\n", "; "); got != want {
			t.Errorf("%s: got %s, want %s", line, got, want)
		}
		for _, h := range hosts {
			if h.Pos != (Position{File: "--host", Line: 1}) {
				t.Errorf("%s: %s is at %v", line, h.Name, h.Pos)
			}
		}
	}
	for line, want := range map[string]string{
		"gpu[4-1]: 0": `bad range "[4-1]"`, "gpu[]": `bad range "[]"`, "gpu[a-c]": "bad range", "gpu[1-2": "no closing bracket", "gpu[1-99999999]": "more than 65536 hosts",
		"gpu[0-999]r[0-999]": "more than 65536 hosts", "gpu[10-9]": "bad range", "h1,,h2": "host missing beside a comma", "h1,": "host missing", "h1,h1: 0": "host h1 is named twice, first at --host:1",
		"gpu[01-02],gpu02": "host gpu02 is named twice", "h1,h2 addr=10.0.0.1": "addr=10.0.0.1 is for one host, and the line names 2", "h1: 3-0": `bad range "3-0"`,
		"h1: 0-64": `id "64" is too large`, "h1: 0-3,2": "id 2 is named twice", "h1: 0-": `bad id "0-"`, "0,1": `bad host name "0,1"`, "gpu[1-2]x[": "no closing bracket", "gpu]1[": "no closing bracket",
		"h1:2,h2:2": "are hosts with their slots",
	} {
		if hosts, err := ParseLines([]string{line}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %s", line, hosts, err, want)
		}
	}
	hosts, err := ParseLines([]string{"gpu[01-04]: 0-3"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Filter(hosts, []string{"gpu[01-03]:0-1"}, []string{"gpu01,gpu02:1"})
	if want := "gpu03: 0,1\n"; err == nil && Format(got) != want {
		err = errors.New(Format(got))
	}
	// Only gpu01 and gpu02 lose GPU 1.
	if want := "gpu01: 0\ngpu02: 0\ngpu03: 0,1\n"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// hintOf returns the hint of an error, or "".
func hintOf(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

// node1:4 means four slots for mpirun, but GPU 4 here. A note explains how to
// write slots.
func TestSlotsAfterColonGetNote(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("\ufeffnode1:4\r\nnode2: 4\nnode3:0\nnode4:1,2\nnode5:22:4\na@node6:8 nic=ib0 # x\nn[7-8]:2\nnode9 slots=4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hosts, err := ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	flags := []string{"h1", "h2:3"}
	more, err := ParseLines(flags)
	if err != nil {
		t.Fatal(err)
	}
	notes := Warnings(slices.Concat(hosts, more), flags)
	var want []string
	for _, w := range []struct{ pos, host, n string }{{file + ":1", "node1", "4"}, {file + ":6", "a@node6", "8"}, {file + ":7", "n[7-8]", "2"}, {"--host:2", "h2", "3"}} {
		want = append(want, strings.NewReplacer("POS", w.pos, "HOST", w.host, "N", w.n).Replace(`POS: HOST:N is GPU N of the host, for one worker; N workers are written "HOST slots=N", and GPU N "HOST: N"`))
		for _, line := range []string{w.host + " slots=" + w.n, w.host + ": " + w.n} {
			if hosts, err := ParseLines([]string{line}); err != nil || len(Warnings(hosts, []string{line})) > 0 {
				t.Errorf("%s: %v, %v", line, err, Warnings(hosts, []string{line}))
			}
		}
	}
	if !slices.Equal(notes, want) {
		t.Errorf("notes\n%s\nwant\n%s", strings.Join(notes, "\n"), strings.Join(want, "\n"))
	}
	_, err = ParseLines([]string{"h1:2,h2:4"})
	if got, want := hintOf(err), `a line, or a --host, for each: "h1 slots=2" and "h2 slots=4"`; got != want {
		t.Errorf("h1:2,h2:4: hint %q, want %q", got, want)
	}
}

// For filter entries in DeepSpeed's format, the error has a hint with flags
// that work.
func TestDeepSpeedFiltersGetHint(t *testing.T) {
	parse := func(lines ...string) []Host {
		hosts, err := ParseLines(lines)
		if err != nil {
			t.Fatal(err)
		}
		return hosts
	}
	_, err := Filter(parse("h1 slots=2"), []string{"h1:2,3"}, nil)
	if got, want := hintOf(err), `slots=2 are the GPUs 0 to 1; with GPU 3 its line is "h1 slots=4"`; got != want {
		t.Errorf("%v: hint %q, want %q", err, got, want)
	}
	if got, err := Filter(parse("h1 slots=4"), []string{"h1:2,3"}, nil); err != nil || Format(got) != "h1: 2,3\n" {
		t.Errorf("after the hint: %v, %v", got, err)
	}
	for entry, want := range map[string]string{"h1:0@h2:1": "--include h1:0 --include h2:1", "h1@h2:1": "--include h1 --include h2:1", "h1@h2": "--include h1 --include h2",
		"h1:0,1@h2:1@h3": "--include h1:0,1 --include h2:1 --include h3"} {
		_, err := Filter(parse("h1: 0-3", "h2: 0-3", "h3"), []string{entry}, nil)
		if got := hintOf(err); err == nil || got != want {
			t.Errorf("%s: %v, hint %q, want %q", entry, err, got, want)
		}
		var entries []string
		for _, word := range strings.Fields(want) {
			if word != "--include" {
				entries = append(entries, word)
			}
		}
		if _, err := Filter(parse("h1: 0-3", "h2: 0-3", "h3"), entries, nil); err != nil {
			t.Errorf("after the hint %q: %v", want, err)
		}
	}
	if _, err := Filter(parse("alice@h1: 0"), []string{"alice@h1"}, nil); err != nil {
		t.Error(err)
	}
}
